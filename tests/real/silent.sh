#!/bin/bash
# A server that is silent (SIGSTOP) while a hundred programs wait for it: everything else on the
# machine goes on. In a cell of its own with two servers, each of which is silent once: the one that
# has the cell database, and the other.
. "$(dirname "$0")/../lib/real.sh"
needs_cell
needs_root
readers=100
case $(uname -m) in x86_64) syncfs=306 ;; *) syncfs=267 ;; esac
base=$WORK/silent
one=$base/one two=$base/two home=$base/home other_home=$base/other at=$base/at other=$base/other.at
mkdir -p "$base" "$home" "$other_home" "$at" "$other" "$base/log"
cleanup() {
    kill -CONT "${first:-}" "${second:-}" 2> /dev/null
    [ -z "${looking:-}" ] || kill -KILL "$looking" 2> /dev/null
    within 60 "$RIALTO" umount --lazy --dir "$other_home" "$other" > /dev/null 2>&1
    within 60 "$RIALTO" umount --lazy --dir "$home" "$at" > /dev/null 2>&1
    within 60 "$RIALTO" down --lazy --dir "$two" > /dev/null 2>&1
    for cell in "$one" "$base/died"; do
        within 60 "$RIALTO" down --lazy --dir "$cell" > /dev/null 2>&1
    done
}
trap cleanup EXIT
address_of() { sed -n 's/^listen = "\(.*\)"/\1/p' "$1/cell.toml"; }
vos() { within 90 "$RIALTO" vos --dir "$one" "$@"; }
mounted() { within 60 "$RIALTO" mount --daemon --dir "$home" "$(address_of "$one")" "$at"; }
pid_at() { head -n 1 "$home"/mounts/*.pid; }
# prompt WHAT COMMAND...: the command succeeds in less than five seconds, on a loaded machine too.
# Shows how long it took.
prompt() {
    local what=$1 began took
    shift
    began=$(date +%s%N)
    # A function stops its command by itself.
    if [ "$(type -t "$1")" = function ]; then check "$what" "$@"; else
        check "$what" within 5 "$@"; fi
    took=$((($(date +%s%N) - began) / 1000000))
    note "$what: $took ms"
}
# ends MILLISECONDS PROCESS: the process ends within that time.
ends() {
    local tries=$(($1 / 20))
    until is_over "$2"; do
        [ $((tries--)) -gt 0 ] || { echo "process $2 is there"; return 1; }
        sleep 0.02
    done
}

cat > "$base/files.py" << 'END_OF_FILES'
"""files.py DIR COUNT: directories with so many files each."""
import os, sys
for part in "first", "second", "rest":
    os.mkdir(f"{sys.argv[1]}/{part}")
    for number in range(int(sys.argv[2])):
        with open(f"{sys.argv[1]}/{part}/file.{number}", "wb") as file:
            file.write(b"x" * 5000 + b"%d\n" % number)
            os.fsync(file.fileno())
END_OF_FILES
trusted=(--trust 127.0.0.0/8 --trust-root)
check "a server" within 90 "$RIALTO" up --no-mount --dir "$one" --cell silent.test \
    --listen 127.0.0.1:0 "${trusted[@]}"
check "a second one of its cell" within 90 "$RIALTO" up --no-mount --dir "$two" \
    --join "$(address_of "$one")" --keys "$one/keys" --server two "${trusted[@]}"
first=$(head -n 1 "$one/server.pid") second=$(head -n 1 "$two/server.pid")
check "a volume on the first" vos create localhost vicep on.one
check "and one on the second" vos create two vicep on.two
check "a mount" mounted
for number in one two; do
    check "a mount point of on.$number" within 60 "$RIALTO" fs mkmount "$at/$number" on.$number -rw
    # In a directory for each use, since the client fetches the next files of one ahead.
    check "files of on.$number" within 60 python3 "$base/files.py" "$at/$number" $readers
done

# A change of a directory waits for clients that earlier parts have killed, until their leases end.
for tree in "$A" "$B"; do
    check "a change in $(basename "$tree")" within 60 sh -c \
        "echo new > '$tree/silent' && rm '$tree/silent'"
done

cat > "$base/readers.py" << 'END_OF_READERS'
"""readers.py DIR COUNT GO LOG: processes that read a file each when the file GO is there:
every other one has its file open before. Prints how many read what is in it; `LOG/opened` and
`LOG/asked` get a line of each."""
import os, signal, sys, time
place, count, go, log = sys.argv[1], int(sys.argv[2]), *sys.argv[3:]
signal.signal(signal.SIGTERM, signal.SIG_DFL)
def say(name, number):
    out = os.open(f"{log}/{name}", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.write(out, b"%d\n" % number)
    os.close(out)
def read(number):
    path = f"{place}/file.{number}"
    file = os.open(path, os.O_RDONLY) if number % 2 else None
    say("opened", number)
    while not os.path.exists(go):
        time.sleep(0.02)
    say("asked", os.getpid())
    if file is None:
        file = os.open(path, os.O_RDONLY)
    return os.read(file, 8192) == b"x" * 5000 + b"%d\n" % number
children = []
for number in range(count):
    child = os.fork()
    if child == 0:
        os._exit(0 if read(number) else 1)
    children.append(child)
right = sum(os.waitpid(child, 0)[1] == 0 for child in children)
print(right)
END_OF_READERS
lines() { wc -l < "$base/log/$1" 2> /dev/null || echo 0; }
# Each is in its call: a program that waits for an answer, and does not sleep by itself.
all_wait() {
    local pid waits=0
    [ "$(lines asked)" -eq $readers ] || return 1
    while read -r pid; do
        grep -qE "request_wait|folio_wait" "/proc/$pid/wchan" 2> /dev/null && waits=$((waits + 1))
    done < "$base/log/asked"
    [ $waits -eq $readers ] || { echo "$waits wait"; return 1; }
}
until_true() { # until_true COMMAND...: within a minute
    local end=$((SECONDS + 60))
    until "$@"; do [ $SECONDS -lt $end ] || return 1; sleep 0.05; done
}
has_lines() { [ "$(lines "$1")" -eq "$2" ]; }
begin_readers() { # begin_readers VOLUME PART
    rm -rf "$base/go" "$base/log"
    mkdir "$base/log"
    python3 "$base/readers.py" "$at/$1/$2" $readers "$base/go" "$base/log" \
        > "$base/read" 2> "$base/readers.err" & looking=$!
    check "readers have half of the files open" until_true has_lines opened $readers
}

# silence SERVER VOLUME OTHER: SERVER has VOLUME, and the other server has OTHER.
silence() {
    local server=$1 volume=$2 others=$3 daemon pid
    # Nothing is cached.
    check "$volume: the mount anew" within 60 umount --recursive "$at"
    mounted
    daemon=$(pid_at)
    within 10 ls "$at/$volume" > /dev/null
    within 10 sh -c "cat '$at/$others/rest/file.0' > /dev/null && echo > '$at/$others/known'"
    begin_readers "$volume" first
    # From here on without the path: a client that has lost its lease asks for each name on it.
    exec 8< "$at/$volume"
    cd "$at/$others" || return
    kill -STOP "$server"
    touch "$base/go"
    check "$volume: $readers programs wait for its server" until_true all_wait
    prompt "$volume: sync" within 30 sync
    prompt "$volume: syncfs of the silent volume" perl -e 'exit(syscall($ARGV[0], 8) != 0)' \
        "$syncfs"
    prompt "$volume: sync -f of the other volume" sync -f .
    prompt "$volume: a read of the other volume" cat rest/file.50
    prompt "$volume: a write of the other volume" sh -c \
        "echo new > new && sync new && rm new && sync ."
    prompt "$volume: a listing of the other volume" ls -l .
    cd "$WORK" || return
    exec 8<&-
    for tree in "$other" "$A" "$B"; do
        prompt "$volume: a file of $(basename "$tree")" sh -c "
            echo new > '$tree/silent' && sync '$tree/silent' && cat '$tree/silent' &&
            rm '$tree/silent'"
    done
    check "$volume: all of them still wait" all_wait
    prompt "$volume: rialto umount says which programs use it" says "python3 (pid" 32 within 5 \
        "$RIALTO" umount --dir "$home" "$at"
    kill -CONT "$server"
    wait $looking
    check "$volume: each has read its file when the server goes on" test "$(cat "$base/read")" \
        -eq $readers
    check "$volume: and it can be written" within 30 sh -c \
        "cd '$at/$volume' && echo new > new && sync new && rm new && sync ."
    within 30 sync "$at/$others"
    # Nothing is unsaved from here on: the bytes of a file that is gone are worth nothing.
    check "$volume: a file is written and removed" within 30 sh -c "cd '$at/$volume' &&
        echo old > gone && sync gone && echo new > gone && rm gone && sync ."

    # The same once more, and they are killed.
    begin_readers "$volume" second
    kill -STOP "$server"
    touch "$base/go"
    check "$volume: again they wait" until_true all_wait
    kill -KILL $looking
    wait $looking 2> /dev/null
    xargs kill -KILL < "$base/log/asked" 2> /dev/null
    while read -r pid; do ends 5000 "$pid" || break; done < "$base/log/asked" > "$base/ended"
    check "$volume: killed readers end" test ! -s "$base/ended"
    looking=''
    prompt "$volume: umount, with nothing unsaved" "$RIALTO" umount --dir "$home" "$at"
    check "$volume: and its process has ended" ends 5000 "$daemon"
    kill -CONT "$server"
    check "$volume: it can be mounted again" mounted
    check "$volume: and read" grep -qx 70 <(within 30 tr -d x \
        < "$at/$volume/rest/file.70")
}

# The other mount has only what the server has that is not silent.
with_other() { # with_other DIR VOLUME SERVER
    check "another mount, of $2" within 60 "$RIALTO" mount --daemon --dir "$other_home" \
        --volume "$2" "$(address_of "$1")" "$other"
}
with_other "$one" on.one
silence "$second" two one
check "unmounted" within 30 umount "$other"
with_other "$two" on.two
silence "$first" one two
check "unmounted" within 30 umount "$other"
check "the mount too" within 30 umount --recursive "$at"

# A server that dies twice: its client would have to ask it for the names on the way to the volumes
# that are mounted below.
died=$base/died
up_again() { within 90 "$RIALTO" up --dir "$died" --at "$died.at" "$@"; }
dies() {
    local server
    server=$(head -n 1 "$died/server.pid")
    kill -KILL "$server"
    ends 5000 "$server"
}
check "a cell of one server" up_again --cell died.test "${trusted[@]}"
check "a volume in it" within 90 "$RIALTO" vos --dir "$died" create -name below
for place in a b; do
    check "a mount point of it" within 60 "$RIALTO" fs mkmount "$died.at/$place" below
    check "it is entered" within 30 sh -c "echo $place > '$died.at/$place/file'"
done
check "its server dies" dies
check "and runs again" up_again
check "files of a new directory" within 30 sh -c \
    "mkdir '$died.at/new' && echo 1 > '$died.at/new/1' && echo 2 > '$died.at/new/2'"
check "it dies once more" dies
check "down ends, and says what waits" says "still has changes for the server" 1 within 30 \
    "$RIALTO" down --dir "$died"
check "nothing is mounted" refused grep -qF "$died.at" /proc/self/mountinfo
check "the server runs again" within 90 "$RIALTO" up --no-mount --dir "$died"
saved() { up_again && within 30 grep -qx 2 "$died.at/new/2"; }
check "and has the changes" until_true saved
check "down ends all" within 60 "$RIALTO" down --dir "$died"
finish
