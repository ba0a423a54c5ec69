#!/bin/bash
# A mount over the network whose daemon does not run (SIGSTOP, a frozen cgroup, a machine that
# hangs):
# the server gives its client up, others change what it cached, and from the moment that a change
# has returned no stat, listing or read through that mount shows what was before. They wait for the
# daemon.
. "$(dirname "$0")/../lib/real.sh"
needs_cell
[ "$QUICK" = yes ] && stopped_for=0 || stopped_for=60
there=$A/stopped here=$B/stopped
mkdir "$there" "$there/dir"
echo old > "$there/file" && chmod 600 "$there/file"
head -c 100000 /dev/zero > "$there/larger"
echo old > "$there/dir/before" && ln -s old "$there/link"
cat > "$WORK/stopped.py" << 'END'
"""Keeps a file and a directory open, and looks at everything twice: now, and when it is told to."""
import os, sys, time
here, trigger, out = sys.argv[1:]
def absent():
    try:
        os.lstat(here + "/new")
    except FileNotFoundError:
        return "absent"
    return "there"
with open(here + "/file", "rb") as file, open(here + "/larger", "rb") as larger:
    listing = os.open(here + "/dir", os.O_RDONLY)
    looks = {
        "mode": lambda: "%o" % (os.stat(here + "/file").st_mode & 0o777),
        "mode.fd": lambda: "%o" % (os.fstat(file.fileno()).st_mode & 0o777),
        "read": lambda: open(here + "/file").read().strip(),
        "read.fd": lambda: os.pread(file.fileno(), 3, 0).decode(),
        "read.larger": lambda: "old"
        if os.pread(larger.fileno(), 4096, 8192) == bytes(4096) else "new",
        "names": lambda: " ".join(sorted(os.listdir(here + "/dir"))),
        "names.fd": lambda: " ".join(sorted(os.listdir(listing))),
        "link": lambda: os.readlink(here + "/link"),
        "new": absent,
    }
    # Twice, so that the kernel has it all.
    first = {name: look() for name, look in looks.items()}
    first = {name: look() for name, look in looks.items()}
    with open(out + "/first", "w") as said:
        said.writelines(f"{name} {seen}\n" for name, seen in sorted(first.items()))
    while not os.path.exists(trigger):
        time.sleep(0.05)
    # A process each: one that waits must not keep the others from showing what they would.
    children = []
    for name, look in looks.items():
        child = os.fork()
        if child == 0:
            try:
                seen = look()
            except OSError as error:
                seen = f"error {error.errno}"
            with open(out + "/then", "a") as said:
                said.write(f"{name} {seen}\n")
            os._exit(0)
        children.append(child)
    for child in children:
        os.waitpid(child, 0)
END
mkdir "$WORK/stopped"
python3 "$WORK/stopped.py" "$here" "$WORK/stopped/go" "$WORK/stopped" & looking=$!
check "everything is cached" within 30 sh \
    -c "until test -s '$WORK/stopped/first'; do sleep 0.05; done"
cat > "$WORK/stopped/old" << 'END'
link old
mode 600
mode.fd 600
names before
names.fd before
new absent
read old
read.fd old
read.larger old
END
check "as it was" diff "$WORK/stopped/old" "$WORK/stopped/first"
daemon=$(mount_pid "$B")
kill -STOP "$daemon"
SECONDS=0
# Each returns when the server has given up the client that is silent: after 16 s at most.
check "changes return" within 120 sh -c \
    "echo new > '$there/file' && sync '$there/file' && chmod 640 '$there/file' &&
    printf new | dd of='$there/larger' bs=1 seek=8192 conv=notrunc,fsync status=none &&
    mv '$there/dir/before' '$there/dir/after' && ln -sfn new '$there/link' && : > '$there/new' &&
    sync '$there/new'"
changed=$SECONDS
touch "$WORK/stopped/go"
# Long enough to answer from the kernel's memory, which is what must not happen.
sleep 3
old='mode(.fd)? 600|names(.fd)? before|new absent|link old|read(.fd|.larger)? old'
shows_old() { grep -Ex "$old" "$WORK/stopped/then" 2> /dev/null; }
check "nothing old is shown while the daemon is stopped" refused shows_old
[ $SECONDS -ge $stopped_for ] || sleep $((stopped_for - SECONDS))
check "nor later" refused shows_old
kill -CONT "$daemon"
check "all of them end when it goes on" within 60 sh \
    -c "until test \"\$(wc -l < '$WORK/stopped/then' 2> /dev/null)\" = 9; do sleep 0.05; done"
wait $looking
cat > "$WORK/stopped/new" << 'END'
link new
mode 640
mode.fd 640
names after
names.fd after
new there
read new
read.fd new
read.larger new
END
check "and show what is there now" sh -c "sort '$WORK/stopped/then' | diff '$WORK/stopped/new' -"
note "the changes took $changed s"
rm -rf "$there"
finish
