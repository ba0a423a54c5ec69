#!/bin/bash
# The commands as people use them, on a cell of its own: up twice, what died is mended, messages say
# what to do.
. "$(dirname "$0")/../lib/real.sh"
needs_cell
cell=$WORK/cli/cell at=$WORK/cli/tree
trap 'within 60 "$RIALTO" down --lazy --dir "$cell" > /dev/null 2>&1' EXIT

up() { within 90 "$RIALTO" up --dir "$cell" --at "$at" --cell cli.test --trust 127.0.0.0/8 \
    --trust-root --listen 127.0.0.1:0 --listen 127.0.0.1:0; }
pid_of_server() { head -n 1 "$cell/server.pid"; }
pid_of_mount() { "$RIALTO" status --dir "$cell" --json |
    python3 -c 'import json, sys; print(json.load(sys.stdin)["mounts"][0]["pid"])'; }

check "status without a cell ends with 3" says "holds none" 3 within 90 "$RIALTO" status \
    --dir "$cell"
check "up makes a cell" says "the tree of cli.test is there" 0 within 90 "$RIALTO" up \
    --dir "$cell" --at "$at" --cell cli.test --trust 127.0.0.0/8 --trust-root --listen 127.0.0.1:0
echo kept > "$at/file"
server=$(pid_of_server)
check "up again finds it" says "was there already" 0 within 90 "$RIALTO" up --dir "$cell" --at "$at"
[ "$(pid_of_server)" = "$server" ] && pass "and leaves the server alone" ||
    fail "the server was started again"
check "doctor finds nothing wrong" says "answers" 0 within 90 "$RIALTO" doctor --dir "$cell"
check "doctor --scrub finds nothing wrong" says "nothing is damaged" 0 within 90 "$RIALTO" doctor \
    --scrub --dir "$cell"
check "status in JSON" sh -c "'$RIALTO' status --dir '$cell' --json | python3 -c '
import json, sys
status = json.load(sys.stdin)
assert status[\"server\"][\"answers\"] and status[\"mounts\"][0][\"state\"] == \"answers\"'"

# A reader that has left, as head leaves a pipe.
cat > "$WORK/leave.py" << 'END'
import os, subprocess, sys
reader, writer = os.pipe()
os.close(reader)
done = subprocess.run(sys.argv[1:], stdout=writer, stderr=subprocess.PIPE, text=True, timeout=60)
print(done.returncode, done.stderr)
sys.exit(done.stderr != "" or done.returncode not in (0, -13))
END
for command in "status" "status --json" "vos listvldb" "vos listvldb --json" "vos listvol" \
    "vos listaddrs" "vos partinfo --json" "pts listentries" "audit show" "doctor"; do
    check "$command ends quietly when its reader has left" sh -c \
        "RIALTO_HOME='$cell' python3 '$WORK/leave.py' '$RIALTO' $command"
done
# The examples of the help are for such a cell.
for verb in create listvol partinfo; do
    example=$("$RIALTO" vos $verb --help | grep -e "-partition [a-z]" | grep -e "^ *rialto" |
        sed 's/^ *rialto //; s/  .*//; s/ |.*//' | head -n 1)
    # shellcheck disable=SC2086 # The words of a command.
    check "as its help has it: $example" env RIALTO_HOME="$cell" "$RIALTO" $example
done
check "fs listquota too" python3 "$WORK/leave.py" "$RIALTO" fs listquota "$at"

# Where docs/spec/signals.md says that the times of requests are.
cat > "$WORK/waits.py" << 'END'
import json, os, sys
status, path, at = json.load(sys.stdin), sys.argv[1].strip(".").split("."), sys.argv[2]
for part in path:
    status = status[part]
names = {wait["name"] for wait in status}
assert "server_call" in names, names
names = {wait["name"] for wait in json.loads(os.getxattr(at, "rialto.waits"))}
assert {"mount_request", "client_call"} <= names, names
END
waits=$(grep -o '`\.report[a-z.]*`' "$(dirname "$0")/../../docs/spec/signals.md" | tr -d '`')
check "server and mount tell the times of their requests" sh -c \
    "'$RIALTO' status --dir '$cell' --json | python3 '$WORK/waits.py' '$waits' '$at/file'"

# Over TCP nobody sees a process end: the session must say so, or its promises hold up everybody
# else for the rest of its lease.
port=$(sed -n 's/^listen = ".*:\(.*\)"/\1/p' "$cell/cell.toml")
sessions() { "$RIALTO" status --dir "$cell" --json |
    python3 -c 'import json, sys; print(json.load(sys.stdin)["report"]["sessions"])'; }
before=$(sessions)
mkdir -p "$WORK/cli/far" "$WORK/cli/other"
check "a mount over TCP" within 60 "$RIALTO" mount --daemon \
    --dir "$WORK/cli/other" "127.0.0.1:$port" "$WORK/cli/far"
dd if=/dev/zero of="$WORK/cli/far/large" bs=1M count=8 conv=fsync status=none
check "is unmounted" within 60 "$RIALTO" umount --dir "$WORK/cli/other" "$WORK/cli/far"
check "and its session is over at once" test "$(sessions)" = "$before"

kill -9 "$(pid_of_server)"
check "doctor sees the dead server" says "crashed" 1 within 90 "$RIALTO" doctor --dir "$cell"
check "status too, with 3" says "does not run" 3 within 90 "$RIALTO" status --dir "$cell"
check "up starts it again" says "starting it again" 0 within 90 "$RIALTO" up --dir "$cell" \
    --at "$at"
check "the mount goes on" grep -q kept "$at/file"

mkdir "$at/delegated" && for i in 1 2 3; do echo $i > "$at/delegated/$i"; done
kill -9 "$(pid_of_server)"
echo late > "$at/delegated/late"
check "down without a server says that changes wait for it" says "'rialto up' starts it" 1 within \
    90 "$RIALTO" down --dir "$cell"
check "status says so too" says "hands back" 3 within 90 "$RIALTO" status --dir "$cell"
check "up brings them to it, and mounts again" says "they are sent first" 0 within 90 "$RIALTO" up \
    --dir "$cell" --at "$at"
check "nothing of them is lost" grep -q late "$at/delegated/late"

kill -9 "$(pid_of_mount)"
check "doctor sees the stale mount" says "stale" 1 within 90 "$RIALTO" doctor --dir "$cell"
check "up mounts it again" says "mounting it again" 0 within 90 "$RIALTO" up --dir "$cell" \
    --at "$at"
check "and the file is there" grep -q kept "$at/file"

(cd "$at" && exec sleep 300) & user=$!
sleep 0.3
check "a busy mount is not taken away, and who uses it is said" says "works in" 32 within 90 \
    "$RIALTO" umount --dir "$cell" "$at"
check "down says so too, and leaves the server" says "server still runs" 1 within 90 "$RIALTO" \
    down --dir "$cell"
kill $user; wait $user 2>/dev/null
# The mount answers changes and tells the server later; unmounting, it must tell it first.
mkdir "$at/last" && touch "$at/last/stays" "$at/last/goes" && rm "$at/last/goes"
check "umount" within 60 "$RIALTO" umount --dir "$cell" "$at"
check "up mounts it once more" says "the tree of cli.test is there" 0 within 90 "$RIALTO" up \
    --dir "$cell" --at "$at"
check "what was done just before the umount is there" test "$(ls "$at/last" 2>&1)" = stays
within 60 "$RIALTO" umount --dir "$cell" "$at"
check "umount again ends with 3" says "nothing is mounted there" 3 within 90 "$RIALTO" umount \
    --dir "$cell" "$at"
check "down" says "stopped the server" 0 within 90 "$RIALTO" down --dir "$cell"
check "down again" says "does not run" 0 within 90 "$RIALTO" down --dir "$cell"

port=$(sed -n 's/^listen = ".*:\(.*\)"/\1/p' "$cell/cell.toml")
python3 -c "
import socket, time
taken = socket.socket()
taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
taken.bind(('127.0.0.1', $port))
taken.listen()
print('there', flush=True)
time.sleep(60)" > "$WORK/taken" & taker=$!
within 30 sh -c "until [ -s '$WORK/taken' ]; do sleep 0.1; done"
check "a taken port: up says where to change it" says "cell.toml" 1 within 90 "$RIALTO" up \
    --dir "$cell" --at "$at"
check "a taken port: doctor says who has it" says "python3 (pid $taker)" 1 within 90 "$RIALTO" \
    doctor --dir "$cell"
kill $taker; wait $taker 2>/dev/null
mv "$cell/vicep/FORMAT" "$WORK/FORMAT"
check "a damaged partition is refused with what to do" says "FORMAT" 1 within 90 "$RIALTO" up \
    --dir "$cell" --at "$at"
mv "$WORK/FORMAT" "$cell/vicep/FORMAT"
mv "$cell/vicep" "$WORK/vicep"
check "without its partition the server does not start" says "is missing" 1 within 90 "$RIALTO" \
    up --dir "$cell" --at "$at"
check "and makes none" test ! -e "$cell/vicep"
check "doctor says what to do" says "mount the disk" 1 within 90 "$RIALTO" doctor --dir "$cell"
mv "$WORK/vicep" "$cell/vicep"
check "everything is there in the end" sh \
    -c "'$RIALTO' up --dir '$cell' --at '$at' > /dev/null && grep -q kept '$at/file'"
check "fs mkmount says what is missing" says "the volume that $at/alice is to show is missing" 2 \
    "$RIALTO" fs mkmount -dir "$at/alice"
check "fs mkmount with options" "$RIALTO" fs mkmount -dir "$at/alice" -vol home.alice
check "fs mkmount with words" "$RIALTO" fs mkmount "$at/alice.too" home.alice
check "both lead to the volume" sh -c "echo hers > '$at/alice/file' && cat '$at/alice.too/file'"
check "manual pages" sh -c "'$RIALTO' man '$WORK/man' && test -s '$WORK/man/rialto-up.1'"
check "completions" sh -c "'$RIALTO' completions bash | bash -n"
finish
