"""files.py ADDRESS TREE [AUTHORITY]: works on files of a cell as a second implementation, beside a
mount of its root volume at TREE. ADDRESS and AUTHORITY are those of `connection.py`.

Model: each step is a function of one `World`, runs after the ones before, and raises if it finds
anything else than the protocol says. A step prints a PASS or a FAIL line with its name; the exit
code is 1 if one failed. It runs as root: the server believes a uid only from hosts that it trusts.
"""

import fcntl
import os
import secrets
import subprocess
import sys
import time
import traceback

import calls
import messages
import parts
import wire
from connection import Connection, Ended
from faults import NUMBERS
from session import NO_TIME, Refused, Request, Session

MIB = 1 << 20
EXPIRED = NUMBERS['Expired']
FOR_EVER = (1 << 64) - 1
POSIX, EXCLUSIVE_LOCK = 1, 2
# Seconds that another process may take on a loaded machine.
PATIENCE = 30
# Seconds for which an acknowledgement is held back.
HELD_BACK = 1


class World:
    """The session under test, another one, and the directory in which they work."""

    def __init__(self, address, tree, authority):
        self.address, self.authority = address, authority
        self.name = b'peer-' + address.split(':', 1)[0].encode()
        self.at = os.path.join(os.fsencode(tree), self.name)
        self.session, self.other = self.new_session(), self.new_session()
        self.root = self.directory = self.file = None

    def new_session(self):
        """A session with the superuser registered."""
        session = Session(self.address, authority=self.authority)
        session.register(1, uid=0, gid=0)
        return session

    def path(self, name):
        """Where the mount has an entry of the directory."""
        return os.path.join(self.at, name)

    def make(self, name, kind=parts.FILE, directory=None, mode=0o644):
        """The fid of a new entry, which must not be there."""
        made = self.session.call('Make', **make(directory or self.directory, name, kind, mode))
        return made['status']['fid']

    def write(self, fid, data, append=False):
        """The answer to one stable write at the begin or the end of a file."""
        return self.session.call('Write', data, **write(fid, len(data), append=append))

    def size(self, fid):
        """Bytes of a file, as the other session sees it."""
        return self.other.call('GetStatus', fid=fid)['status']['size']


def make(directory, name, kind=parts.FILE, mode=0o644):
    """The fields of a `Make`."""
    return {'dir': directory, 'verifier': 0, 'device': 0, 'mode': mode, 'kind': kind,
            'how': calls.GUARDED, 'name': name, 'target': b''}


def write(fid, length, offset=0, append=False):
    """The fields of a stable `Write` of so many bytes."""
    return {'fid': fid, 'offset': offset, 'length': length, 'append': int(append), 'stable': 1,
            'kill_privileges': 0}


def lock(fid, session_owner=1):
    """The fields of a `Lock` of the first ten bytes that does not wait."""
    return {'fid': fid, 'owner': session_owner, 'start': 0, 'end': 9, 'pid': os.getpid(),
            'family': POSIX, 'mode': EXCLUSIVE_LOCK, 'wait': 0, 'reclaim': 0}


def unlock(fid, session_owner=1):
    """The fields of the `Unlock` of what `lock` locks."""
    return {'fid': fid, 'owner': session_owner, 'start': 0, 'end': 9, 'family': POSIX}


def equal(got, wanted):
    """Raises if they are not."""
    if got != wanted:
        raise AssertionError(f'{got!r:.300} and not {wanted!r:.300}')


def refused(fault, function, *args, **kwargs):
    """Raises unless the function is refused with this fault."""
    try:
        got = function(*args, **kwargs)
    except Refused as error:
        return equal(error.fault, fault)
    raise AssertionError(f'{got} and not {fault}')


def contents(path):
    """All bytes of a file of the mount."""
    with open(path, 'rb') as file:
        return file.read()


def the_root_volume_is_found(world):
    root = world.session.call('Root', name=b'root.cell')['status']
    equal(root['kind'], parts.DIRECTORY)
    refused('NoVolume', world.session.call, 'Root', name=b'no.such.volume')
    world.root = root['fid']


def a_directory_and_a_file_are_made(world):
    world.directory = world.make(world.name, parts.DIRECTORY, world.root, 0o755)
    world.file = world.make(b'large')
    refused('Exists', world.make, b'large')
    found = world.other.call('Lookup', dir=world.directory, name=b'large')['status']
    equal((found['fid'], found['mode'], found['uid']), (world.file, 0o644, 0))
    equal(os.listdir(world.at), [b'large'])


def three_mib_are_written_and_read_back(world):
    data, part, session = secrets.token_bytes(3 * MIB), MIB // 2, world.session
    places = range(0, len(data), part)
    sent = [session.begin('Write', data[at:at + part],
                          **write(world.file, part, offset=at) | {'stable': 0}) for at in places]
    for request, at in zip(sent, places):
        written = session.reply(request).result()
        equal((written['offset'], written['count']), (at, part))
    equal(session.call('Commit', fid=world.file)['boot_verifier'], written['boot_verifier'])
    read = [world.other.call('Read', fid=world.file, offset=at, length=part) for at in places]
    equal(b''.join(answer['payload'] for answer in read), data)
    equal([answer['end'] for answer in read], [0] * 5 + [1])
    equal(contents(world.path(b'large')), data)


def a_file_of_the_mount_is_read(world):
    data = secrets.token_bytes(MIB + 1)
    with open(world.path(b'mounted'), 'wb') as file:
        file.write(data)
    fid = world.session.call('Lookup', dir=world.directory, name=b'mounted')['status']['fid']
    read = [world.session.call('Read', fid=fid, offset=at, length=MIB) for at in (0, MIB)]
    equal(b''.join(answer['payload'] for answer in read), data)


def a_directory_is_listed_in_pages(world):
    directory = world.make(b'list', parts.DIRECTORY)
    wanted = [b'entry-%03d' % number for number in range(60)]
    for name in wanted:
        world.make(name, directory=directory)
    names, cookie, pages, end = [], 0, 0, 0
    while not end:
        listed = world.session.call('ReadDir', dir=directory, cookie=cookie, bytes=4096,
                                    with_status=1)
        equal({entry['flags'] & 1 for entry in listed['entries']}, {1})
        names += [entry['name'] for entry in listed['entries']]
        cookie, end, pages = listed['entries'][-1]['cookie'], listed['end'], pages + 1
    equal(sorted(names), wanted)
    equal(pages > 1, True)
    equal(sorted(os.listdir(world.path(b'list'))), wanted)


def names_are_changed_and_removed(world):
    call, where = world.session.call, world.directory
    fid = world.make(b'before')
    renamed = call('Rename', from_dir=where, to_dir=where, mode=2, hold=0, from_name=b'before',
                   to_name=b'after')
    equal((renamed['status']['fid'], renamed['other']), (fid, None))
    refused('NotFound', call, 'Lookup', dir=where, name=b'before')
    equal(os.path.exists(world.path(b'after')), True)
    equal(call('Remove', dir=where, what=0, hold=0, name=b'after')['status']['links'], 0)
    refused('Stale', call, 'GetStatus', fid=fid)
    refused('NotEmpty', call, 'Remove', dir=where, what=1, hold=0, name=b'list')
    equal(os.path.exists(world.path(b'after')), False)


def a_status_is_set(world):
    fid = world.make(b'status')
    times = {'seconds': 1000, 'nanoseconds': 7}
    answer = world.session.call(
        'SetStatus', fid=fid, size=5, accessed=NO_TIME, modified=times, uid=0, gid=0, mode=0o600,
        present=calls.HAS_MODE | calls.HAS_SIZE | 1 << 6)
    equal((answer['status']['mode'], answer['status']['size']), (0o600, 5))
    seen = os.stat(world.path(b'status'))
    equal((seen.st_mode & 0o777, seen.st_size, seen.st_mtime_ns), (0o600, 5, 1000 * 10**9 + 7))


def a_chain_leads_to_the_file_that_it_makes(world):
    made, written, status = [reply.result() for reply in world.session.chain(
        ('Make', make(world.directory, b'chained'), b''),
        ('Write', write(parts.CURRENT, 7), b'chained'),
        ('GetStatus', {'fid': parts.CURRENT}, b''))]
    equal((status['status']['fid'], status['status']['size']), (made['status']['fid'], 7))
    equal(written['count'], 7)
    equal(contents(world.path(b'chained')), b'chained')


def a_refused_member_aborts_its_chain(world):
    replies = world.session.chain(
        ('Lookup', {'dir': world.directory, 'name': b'none'}, b''),
        ('Make', make(world.directory, b'aborted'), b''),
        ('GetStatus', {'fid': world.directory}, b''))
    for reply, fault in zip(replies, ('NotFound', 'ChainAborted', 'ChainAborted')):
        refused(fault, reply.result)
    equal(os.path.exists(world.path(b'aborted')), False)


def a_lock_is_refused_to_all_others(world):
    fid = world.make(b'locked')
    world.session.call('Lock', **lock(fid))
    refused('Locked', world.other.call, 'Lock', **lock(fid))
    refused('Locked', world.session.call, 'Lock', **lock(fid, session_owner=2))
    asked = {'fid': fid, 'owner': 1, 'start': 9, 'end': FOR_EVER, 'family': POSIX, 'mode': 1}
    conflict = world.other.call('TestLock', **asked)
    equal((conflict['start'], conflict['end'], conflict['mode']), (0, 9, EXCLUSIVE_LOCK))
    equal(world.other.call('TestLock', **asked | {'start': 10})['mode'], 0)
    with open(world.path(b'locked'), 'wb') as file:
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 10)
            raise AssertionError('the mount has the lock too')
        except BlockingIOError:
            pass
        world.session.call('Unlock', **unlock(fid))
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 10)
        refused('Locked', world.session.call, 'Lock', **lock(fid))
    world.other.call('Lock', **lock(fid))
    world.other.call('Unlock', **unlock(fid))


def a_waiting_lock_is_cancelled(world):
    fid = world.make(b'waited-for')
    world.session.call('Lock', **lock(fid))
    request = world.other.begin('Lock', **lock(fid) | {'wait': 1})
    world.other.probe()
    equal((request.slot, request.number) in world.other.unanswered, True)
    world.other.cancel(request)
    refused('Cancelled', world.other.reply(request).result)
    world.session.call('Unlock', **unlock(fid))


def a_request_without_reply_is_done_once(world):
    fid, session = world.make(b'once'), world.session
    world.write(fid, b'first\n', append=True)
    # In a slot that no other call takes, because it is repeated below.
    request = Request('Write', write(fid, 5, append=True), b'once\n', slot=session.credits - 1)
    session.send(request)
    session.lose_connections()
    # Normally it is done before the session is resumed, and its reply is lost.
    start = time.monotonic()
    while world.size(fid) == 6 and time.monotonic() < start + 2:
        time.sleep(0.01)
    session.resume()
    reply = session.reply(request)
    equal((reply.result()['offset'], reply.result()['count']), (6, 5))
    world.same_request = request, reply
    equal(contents(world.path(b'once')), b'first\nonce\n')


def a_repeated_request_has_its_recorded_answer(world):
    request, before = world.same_request
    world.write(world.make(b'meanwhile'), b'in other slots')
    for again in range(2):
        if again:
            world.session.lose_connections()
            world.session.resume()
        world.session.send(request)
        equal(world.session.reply(request).message, before.message)
    equal(contents(world.path(b'once')), b'first\nonce\n')


def a_number_out_of_order_ends_the_connection_alone(world):
    number = world.session.numbers[0] + 2
    request = Request('GetStatus', {'fid': world.file}, slot=0, number=number)

    def sends():
        world.session.send(request)
        world.session.unanswered.clear()
    ends_the_connection(world, sends)


def a_damaged_frame_ends_the_connection_alone(world):
    frame = bytearray(wire.encode_frame(wire.PROBE, features=wire.CHECKSUMS, request=1,
                                        session=world.session.session))
    if world.address.startswith('tls:'):
        frame[0] ^= 1  # Frames have no checksum there.
    frame[-1] ^= 1
    ends_the_connection(world, lambda: world.session.operations.send_bytes(frame))


def ends_the_connection(world, sends):
    """Raises unless what is sent ends the connection and the session goes on over another."""
    sends()
    try:
        got = world.session.operations.receive()
    except Ended:
        world.session.lose_connections()
        world.session.resume()
        world.session.call('GetStatus', fid=world.file)
        return
    raise AssertionError(f'the server answered {got}')


def an_unknown_call_is_unsupported(world):
    request = Request('GetStatus', {'fid': world.file})
    request.procedure = 0x7ffe
    world.session.send(request)
    refused('Unsupported', world.session.reply(request).result)
    world.session.call('GetStatus', fid=world.file)


def an_unregistered_credential_is_refused(world):
    request = Request('GetStatus', {'fid': world.file})
    world.session.send(request, credential=2)
    refused('NoCredential', world.session.reply(request).result)


def a_user_without_rights_is_refused(world):
    world.session.register(2, uid=4711, gid=4711)
    request = Request('Make', make(world.directory, b'not-allowed'))
    world.session.send(request, credential=2)
    refused('AccessDenied', world.session.reply(request).result)


def a_change_waits_until_its_break_is_acknowledged(world):
    session, fid = world.session, world.make(b'promised')
    world.write(fid, b'old')
    session.call('GetStatus', fid=fid)
    session.breaks.clear()
    session.acknowledges.clear()
    writer = subprocess.Popen(['sh', '-c', 'printf new >> "$0" && sync "$0"',
                               world.path(b'promised')])
    try:
        equal(session.saw_break(fid, PATIENCE), True)
        time.sleep(HELD_BACK)
        equal(writer.poll(), None)
    finally:
        session.acknowledges.set()
    equal(writer.wait(PATIENCE), 0)
    equal(session.call('Read', fid=fid, offset=0, length=100)['payload'], b'oldnew')


def a_name_that_is_not_there_is_promised_too(world):
    session, directory = world.session, world.make(b'empty', parts.DIRECTORY)
    refused('NotFound', session.call, 'Lookup', dir=directory, name=b'new')
    session.breaks.clear()
    with open(world.path(b'empty/new'), 'wb'):
        equal(session.saw_break(directory, PATIENCE), True)
    session.call('Lookup', dir=directory, name=b'new')


def a_silent_session_ends_and_a_renewed_one_stays(world):
    fid, silent = world.make(b'left'), world.new_session()
    silent.call('Lock', **lock(fid))
    world.session.call('Lock', **lock(world.file))
    silent.lose_connections()
    start, lease = time.monotonic(), silent.attached['lease_milliseconds'] / 1000
    refused('Locked', world.other.call, 'Lock', **lock(fid))
    world.other.call('Lock', **lock(fid) | {'wait': 1})
    took = time.monotonic() - start
    equal(lease - 6 < took < lease + PATIENCE, True)
    equal(world.session.renewals >= 3, True)
    refused('Locked', world.other.call, 'Lock', **lock(world.file))
    before = silent.session
    equal((silent.attach()['resumed'], silent.session == before), (0, False))
    silent.operations.close()


def a_bind_without_the_key_is_refused(world):
    bind_key = world.session.attached['bind_key'] ^ 1
    message = messages.encode_message(wire.BIND, {'key': bind_key})
    for number, status in ((world.session.session, 0), (1, EXPIRED)):
        stranger = Connection(world.address, wire.CHECKSUMS, world.authority)
        stranger.send(wire.BIND, message, session=number)
        try:
            raise AssertionError(stranger.receive())
        except Ended as end:
            equal(end.status, status)


def a_client_with_a_lower_incarnation_stops_for_good(world):
    client = world.new_session()
    client.incarnation += 1
    equal(client.attach()['resumed'], 0)
    client.incarnation -= 1
    try:
        raise AssertionError(client.attach())
    except Ended as end:
        equal(end.status, EXPIRED)


def sessions_end_with_a_detach(world):
    fid = world.make(b'detached')
    world.other.call('Lock', **lock(fid))
    world.other.detach()
    world.session.call('Lock', **lock(fid))
    world.session.detach()


STEPS = (
    the_root_volume_is_found,
    a_directory_and_a_file_are_made,
    three_mib_are_written_and_read_back,
    a_file_of_the_mount_is_read,
    a_directory_is_listed_in_pages,
    names_are_changed_and_removed,
    a_status_is_set,
    a_chain_leads_to_the_file_that_it_makes,
    a_refused_member_aborts_its_chain,
    a_lock_is_refused_to_all_others,
    a_waiting_lock_is_cancelled,
    a_request_without_reply_is_done_once,
    a_repeated_request_has_its_recorded_answer,
    a_number_out_of_order_ends_the_connection_alone,
    a_damaged_frame_ends_the_connection_alone,
    an_unknown_call_is_unsupported,
    an_unregistered_credential_is_refused,
    a_user_without_rights_is_refused,
    a_change_waits_until_its_break_is_acknowledged,
    a_name_that_is_not_there_is_promised_too,
    a_silent_session_ends_and_a_renewed_one_stays,
    a_bind_without_the_key_is_refused,
    a_client_with_a_lower_incarnation_stops_for_good,
    sessions_end_with_a_detach,
)


def main(address, tree, authority=None):
    """Runs the steps. Returns how many failed."""
    world, failures = World(address, tree, authority), 0
    kind = address.split(':', 1)[0]
    for step in STEPS:
        what = f'{kind}: {step.__name__.replace("_", " ")}'
        try:
            step(world)
            print(f'PASS peer: {what}', flush=True)
        except Exception:
            failures += 1
            print(f'FAIL peer: {what}', flush=True)
            traceback.print_exc(file=sys.stdout)
    return failures


if __name__ == '__main__':
    sys.exit(main(*sys.argv[1:]) > 0)
