#!/bin/bash
# Three machines, each a server and a member of etcd; four volumes with a synchronous standby each.
# A machine's server, its member or both are killed again and again under a compiler, SQLite and
# 1,000 small writers: no program sees an error, nothing that was synced is lost, and each volume is
# at one place. OUTLIVE_ROUNDS says how often [100; quick: 1]. Says how long programs paused.
. "$(dirname "$0")/../lib/real.sh"
. "$(dirname "$0")/../lib/etcd.sh"
command -v etcd > /dev/null && command -v openssl > /dev/null ||
    { fail "etcd and openssl are there: 'scripts/setup.sh test' installs them"; finish; }
base=$WORK/outlive
mkdir -p "$base"
rounds=${OUTLIVE_ROUNDS:-100}
[ "$QUICK" = no ] || rounds=${OUTLIVE_ROUNDS:-1}
machines=(one two three) volumes=(small rows build more) programs=()
end() {
    touch "$base/stop"
    local pid name
    for pid in "${programs[@]}"; do kill -9 "$pid" 2> /dev/null; done
    for name in "${volumes[@]}"; do
        within 30 "$RIALTO" umount --lazy --dir "$base/one" "$base/mount/$name" > /dev/null 2>&1
    done
    for name in three two one; do
        within 60 "$RIALTO" down --lazy --dir "$base/$name" > /dev/null 2>&1; done
    end_members
    wait 2> /dev/null
}
trap end EXIT
soon() { local until=$((SECONDS + 90))
    until "$@" > /dev/null 2>&1; do [ $SECONDS -lt $until ] || return 1; sleep 0.2; done; }
vos() { within 60 "$RIALTO" vos --dir "$base/$1" "${@:2}"; }
start() { within 90 "$RIALTO" up --no-mount --dir "$base/$1"; }

check "certificates of the members" members "$base/etcd" || finish
for number in 0 1 2; do member $number; done
check "a cell" within 90 "$RIALTO" up --no-mount --dir "$base/one" --cell outlive.test \
    --listen 127.0.0.1:0
within 60 "$RIALTO" down --dir "$base/one" > /dev/null
sed -i '/^socket = /a server = "one"' "$base/one/cell.toml"
address=$(sed -n 's/^listen = "\(.*\)"/\1/p' "$base/one/cell.toml")
check "its database is in etcd" soon within 60 "$RIALTO" cell migrate "${to_etcd[@]}" \
    --dir "$base/one"
check "the first server" start one
for name in two three; do
    check "server $name joins" within 90 "$RIALTO" up --no-mount --dir "$base/$name" \
        --join "$address" --keys "$base/one/keys" --server $name
    within 60 "$RIALTO" down --dir "$base/$name" > /dev/null
    sed -i '/^database = /d' "$base/$name/cell.toml"
    sed -n '/^\[etcd\]/,$p' "$base/one/cell.toml" >> "$base/$name/cell.toml"
    check "and reaches etcd itself" start $name
done
place() { # place VOLUME SERVER STANDBY
    vos one create "$2" vicep "$1" && vos one addstandby "$3" vicep "$1" -sync &&
        mkdir -p "$base/mount/$1" &&
        within 60 "$RIALTO" mount --daemon --dir "$base/one" --volume "$1" \
            "unix:$base/one/server.sock" "$base/mount/$1"
}
check "volume small" place small one two
check "volume rows" place rows two three
check "volume build" place build three one
check "volume more" place more two one

# Each program says after each step how long it took, if that was long: WHEN SECONDS.
cat > "$base/steps.py" << 'STEPS'
import os, threading, time
class Steps:
    def __init__(self, at, stop):
        self.log, self.stop, self.lock, self.count = open(at, 'a'), stop, threading.Lock(), 0
    def goes_on(self):
        return not os.path.exists(self.stop)
    def did(self, began):
        took = time.time() - began
        with self.lock:
            self.count += 1
            if took > 1 or self.count % 50 == 0:
                self.log.write('%.3f %.3f\n' % (time.time(), took))
                self.log.flush()
STEPS
cat > "$base/small.py" << 'SMALL'
# FILES small files are written anew, each by one writer at a time: written, synced, renamed.
import hashlib, os, sys, threading, time
from steps import Steps
tree, log, stop, files = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])
steps, known, threads = Steps(log, stop), {}, 20
def write(first):
    turn = 0
    while steps.goes_on():
        for number in range(first, files, threads):
            began = time.time()
            name = os.path.join(tree, 'f%04d' % number)
            body = os.urandom(100 + (number * 37 + turn * 211) % 6000)
            file = os.open(name + '.new', os.O_CREAT | os.O_TRUNC | os.O_WRONLY)
            assert os.write(file, body) == len(body)
            os.fsync(file)
            os.close(file)
            os.rename(name + '.new', name)
            known[number] = hashlib.sha256(body).digest()
            steps.did(began)
            if not steps.goes_on():
                return
        turn += 1
def run(first):
    try:
        write(first)
    except BaseException as error:
        print('writer', first, repr(error), flush=True)
        os._exit(1)
all = [threading.Thread(target=run, args=(first,)) for first in range(threads)]
for one in all: one.start()
for one in all: one.join()
for number, digest in known.items():
    with open(os.path.join(tree, 'f%04d' % number), 'rb') as file:
        assert hashlib.sha256(file.read()).digest() == digest, number
print(steps.count, 'files were written;', len(known), 'are as written last')
SMALL
cat > "$base/rows.py" << 'ROWS'
import os, sqlite3, sys, time
from steps import Steps
tree, log, stop = sys.argv[1:4]
steps = Steps(log, stop)
rows = sqlite3.connect(os.path.join(tree, 'rows.db'), timeout=100)
rows.execute('pragma synchronous=full')
rows.execute('create table rows (n integer primary key, text)')
while steps.goes_on():
    began = time.time()
    rows.execute('insert into rows values (?, ?)', (steps.count, 'row %d' % steps.count))
    rows.commit()
    steps.did(began)
count = rows.execute('select count(*) from rows').fetchone()[0]
assert count == steps.count, (count, steps.count)
assert rows.execute('pragma integrity_check').fetchone()[0] == 'ok'
print(count, 'rows are there')
ROWS
cat > "$base/build.py" << 'BUILD'
import os, subprocess, sys, time
from steps import Steps
tree, log, stop = sys.argv[1:4]
steps, made = Steps(log, stop), 0
def run(*words):
    began = time.time()
    done = subprocess.run(words, cwd=tree, capture_output=True, text=True)
    assert done.returncode == 0, (words, done.stderr)
    steps.did(began)
    return done.stdout
while steps.goes_on():
    for number in range(8):
        with open(os.path.join(tree, 'part%d.c' % number), 'w') as file:
            file.write('int part%d(void) { return %d; }\n' % (number, made + number))
        run('cc', '-c', 'part%d.c' % number)
    with open(os.path.join(tree, 'main.c'), 'w') as file:
        calls = ['part%d' % number for number in range(8)]
        file.write('#include <stdio.h>\n' + ''.join('int %s(void);\n' % one for one in calls))
        file.write('int main(void) { printf("%d\\n", ' + ' + '.join(one + '()' for one in calls))
        file.write('); return 0; }\n')
    run('cc', '-o', 'all', 'main.c', *('part%d.o' % number for number in range(8)))
    assert run('./all') == '%d\n' % (made * 8 + 28), made
    made += 1
print(made, 'programs were made and run')
BUILD
run_program() { # run_program VOLUME SCRIPT ARGUMENT...
    local name=$1 script=$2
    shift 2
    (cd "$base" && exec python3 "$script.py" "$base/mount/$name" "$base/$name.steps" "$base/stop" \
        "$@" > "$base/$name.said" 2>&1) &
    programs+=($!)
}
run_program small small 700
run_program rows rows
run_program build build
run_program more small 300

# All standbys may take over; and programs have gone on since.
in_step() {
    local name
    for name in "${volumes[@]}"; do
        vos "$1" listvldb "$name" --json 2> /dev/null | python3 -c 'import json, sys
sites = json.load(sys.stdin)["sites"]
kinds = sorted((site["kind"], site["epoch"]) for site in sites)
sys.exit([kind for kind, _ in kinds] != ["RW", "SB"] or
         [epoch for kind, epoch in kinds if kind == "SB"] != [1])' 2> /dev/null || return 1
    done
}
went_on() { # went_on: each program has made a step since its file of steps was marked
    local name
    for name in "${volumes[@]}"; do
        [ "$(wc -l < "$base/$name.steps")" -gt "$(cat "$base/$name.mark")" ] || return 1; done
}
mark() { local name; for name in "${volumes[@]}"; do
    touch "$base/$name.steps"; wc -l < "$base/$name.steps" > "$base/$name.mark"; done; }
all_run() {
    local pid
    for pid in "${programs[@]}"; do kill -0 "$pid" 2> /dev/null || return 1; done
}
mark
check "all standbys are in step" soon in_step one
check "and programs work" soon went_on
for round in $(seq "$rounds"); do
    victim=$((RANDOM % 3)) how=$((RANDOM % 3))
    name=${machines[$victim]} other=${machines[$(((victim + 1) % 3))]}
    mark
    # Of a machine that is lost all is lost at once, or one half of it.
    date +%s.%N >> "$base/losses"
    [ $how = 1 ] || kill -9 "$(head -n 1 "$base/$name/server.pid")"
    [ $how = 0 ] || lose $victim
    ok=yes
    soon went_on || ok="programs stand still"
    all_run || ok="a program ended"
    [ $how = 0 ] || member $victim
    [ $how = 1 ] || start "$name" > "$base/start.log" 2>&1 || ok="the server does not start"
    soon in_step "$other" || ok="${ok#yes} a standby is not in step"
    [ "$ok" = yes ] || { fail "loss $round ($name, $how): $ok"; break; }
    [ $((round % 10)) -ne 0 ] || note "$round of $rounds losses"
done
[ "$failures" -gt 0 ] || pass "$rounds losses"
touch "$base/stop"
for number in 0 1 2 3; do
    ended() {
        wait "${programs[$number]}" ||
            { tail -n 5 "$base/${volumes[$number]}.said"; false; }
    }
    check "the program of ${volumes[$number]} ended without an error, and all is there" ended
    note "${volumes[$number]}: $(tail -n 1 "$base/${volumes[$number]}.said" | cut -c1-150)"
done
programs=()
once() { # once VOLUME: one server has it and serves it
    local name
    for name in "${machines[@]}"; do vos one listvol "$name" --json; done > "$base/listed" &&
        python3 -c 'import json, sys
found = [json.loads(line) for line in open(sys.argv[1])]
mine = [one for one in found if one.get("name") == sys.argv[2]]
sys.exit(0 if len(mine) == 1 else str(mine))' "$base/listed" "$1"
}
for name in "${volumes[@]}"; do check "volume $name is at one place" once "$name"; done
python3 - "$base" "${volumes[@]}" << 'PAUSES' > "$base/pauses"
import sys
base, volumes = sys.argv[1], sys.argv[2:]
losses = [float(line) for line in open(base + '/losses')]
pauses = []
for at, begins in enumerate(losses):
    ends = losses[at + 1] if at + 1 < len(losses) else float('inf')
    for name in volumes:
        steps = [[float(word) for word in line.split()] for line in open(f'{base}/{name}.steps')]
        took = [took for when, took in steps if when > begins and when - took < ends]
        pauses.append(max(took, default=0))
pauses.sort()
print('of %d losses the pauses of programs were: median %.1f s, 99th percentile %.1f s, '
      'longest %.1f s' % (len(losses), pauses[len(pauses) // 2],
                          pauses[int(len(pauses) * 0.99)], pauses[-1]))
PAUSES
note "$(cat "$base/pauses")"
finish
