"""Answers: a row for each of the table *Answers* of docs/spec/protocol.md, by number; and the
records of answers that a partition stores.

Model: a layout for each answer; values are dictionaries with the names of its fields. The payload
is beside them, and the answer's length is that of the payload.
"""

from fields import (BOOL, I32, I64, NOTHING, U8, U16, U32, U64, U128, Bits, Follow, If, Int, Items,
                    Length, Malformed, Many, Maybe, Raw, Record, Sized, choice, decode, encode,
                    is_text)
from parts import (ACCESS_LIST_BYTES, CURSOR, FEED_PLACE, FID, GROUP, KIND, MIB, NAME_LENGTH,
                   NAME_REST, PARTITION_NAME, PRINCIPAL_KIND, PRINCIPAL_NAME, PROGRAM, REALM,
                   ROLES, SERVER, SERVER_NAME, STATUS, SYMLINK, TIME, TOKEN, VOLUME_KIND,
                   VOLUME_STATES, WHOM, XATTR_NAME, page)

CHUNK_BYTES, BLOCK_BYTES = 64 << 10, 16 << 10
HAS_STATUS, IS_SOLE, HAS_TARGET = 1, 2, 4
HAS_KEY = 0x80


def entry_is_possible(entry):
    """Flags come with a status, and a target with that of a symbolic link."""
    return (entry['flags'] & HAS_STATUS or entry['flags'] == 0) \
        and (entry['kind'] == SYMLINK or not entry['flags'] & HAS_TARGET)


def free_is_all_zero(conflict):
    """No lock is in the way, so none is described."""
    return conflict['mode'] or not any(conflict.values())


def state_is_known(volume):
    """Bit 7 beside it says that a key follows."""
    return 1 <= volume['state'] & ~HAS_KEY <= VOLUME_STATES


def forgotten_has_no_changes(changes):
    """Of changes that are forgotten none follow."""
    return changes['known'] or not changes['changes']


def changed_number_is_possible(change):
    """Volumes and principals have shorter numbers than servers, and the rest has none."""
    bits = {1: 64, 2: 128, 3: 32, 4: 0, 5: 0}[change['kind']]
    return change['number'] >> bits == 0


def run_is_whole(run):
    """Frames fill the payload, and chunks begin where chunks do."""
    return sum(run['frames']) == run['length'] and run['offset'] % CHUNK_BYTES == 0


ENTRY = Record(
    entry_is_possible, fid=FID, cookie=U64, name_length=NAME_LENGTH, kind=KIND, flags=Bits(1, 7),
    name=NAME_REST, status=If(lambda entry: entry['flags'] & HAS_STATUS != 0, STATUS),
    target=If(lambda entry: entry['flags'] & HAS_TARGET != 0, Sized(2, 512)))
VOLUME = Record(
    state_is_known, volume=U64, tree=U64, created=TIME, updated=TIME, quota_bytes=U64,
    quota_files=U64, used_bytes=U64, used_files=U64, epoch=U64, origin=U64, partition=U32,
    name_length=NAME_LENGTH, kind=VOLUME_KIND, state=U8, name=NAME_REST,
    key=If(lambda volume: volume['state'] & HAS_KEY != 0, U32))
PARTITION = Record(total_bytes=U64, free_bytes=U64, partition=U32, name=PARTITION_NAME,
                   compression=PARTITION_NAME)
TASK = Record(number=U64, tree=U64, since=U64, epoch=U64, bytes=U64, total_bytes=U64,
              state=choice(3), text=Sized(2, 255, is_text))
TREE = Record(tree=U64, since=U64, epoch=U64, bytes=U64, used_bytes=U64, partition=U32, over=BOOL)
CHANGE = Record(changed_number_is_possible, revision=U64, number=U128, kind=choice(5))
PRINCIPAL = Record(
    principal=I32, kind=PRINCIPAL_KIND, privacy=U8, locked=BOOL, owner=I32, creator=I32,
    group_quota=U32, count=U32, uid=U32, gid=U32, tokens_after=I64, name=PRINCIPAL_NAME)
NAMED = Record(principal=I32, name=PRINCIPAL_NAME)
FENCE = Record(number=U64, whom=WHOM, since=I64, until=I64, by=I32, why=Sized(2, 255, is_text))
MANDATE = Record(number=U64, principal=I32, by=I32, realm=REALM)
ADMITTED = Record(key=Raw(32), at=I64, name=SERVER_NAME)
INVITATION = Record(
    number=U64, public_key=Raw(32), roles=ROLES, servers=U32, since=I64, until=I64, by=I32,
    name=SERVER_NAME, admitted=Many(2, ADMITTED, most=64))
STANDBY = Record(server=U128, entries_behind=U64, bytes_behind=U64, oldest_milliseconds=U64,
                 asked_milliseconds=U64, sync=BOOL, in_step=BOOL)

ANSWERS = {
    1: ('Done', NOTHING),
    2: ('Status', Record(status=STATUS)),
    3: ('Entry', Record(status=STATUS, dir_version=U64, sole=BOOL)),
    4: ('Entries', Record(dir_version=U64, entries_length=Length(4, 0xffffffff), end=BOOL,
                          entries=Items(ENTRY))),
    5: ('Made', Record(status=STATUS, dir=STATUS, existed=BOOL)),
    6: ('Removed', Record(status=STATUS, dir=STATUS)),
    7: ('Renamed', Record(status=STATUS, from_dir=STATUS, to_dir=STATUS, other=Maybe(STATUS))),
    8: ('Target', Record(target=Sized(2, 4095))),
    9: ('Xattr', Record(value=Sized(4, 65_536))),
    10: ('XattrNames', Record(names=Many(4, XATTR_NAME))),
    11: ('Volume', Record(quota_bytes=U64, quota_files=U64, used_bytes=U64, used_files=U64,
                          partition_bytes=U64, free_bytes=U64)),
    12: ('Data', Record(status=STATUS, length=Int(4, high=MIB), end=BOOL)),
    13: ('Written', Record(status=STATUS, offset=U64, previous_version=U64, boot_verifier=U64,
                           count=U32)),
    14: ('Offset', Record(offset=U64)),
    15: ('Committed', Record(boot_verifier=U64)),
    16: ('Body', Record(status=STATUS)),
    17: ('Sums', Record(version=U64, sums=Many(4, U32, most=65_000))),
    18: ('LockTest', Record(free_is_all_zero, start=U64, end=U64, pid=U32, mode=Int(1, high=2))),
    19: ('Report', Record(text=Sized(4, (256 << 10) - 4, is_text))),
    20: ('Delegation', Record(status=STATUS, first_slot=U64, slots=U32, key=Raw(16))),
    21: ('Blank', Record(number=U64)),
    22: ('Volumes', page(volumes=VOLUME)),
    23: ('Partitions', Record(partitions=Many(4, PARTITION))),
    24: ('Part', Record(length=Int(4, high=MIB))),
    25: ('Cursor', CURSOR),
    26: ('Tasks', Record(tasks=Many(4, TASK))),
    27: ('Incoming', Record(base=U64, trees=Many(4, TREE))),
    28: ('Acl', Record(of=FID, list=Sized(4, ACCESS_LIST_BYTES))),
    29: ('Rights', Record(of=FID, rights=U32)),
    32: ('Groups', page(groups=GROUP)),
    33: ('Servers', Record(servers=Many(4, SERVER))),
    34: ('Revision', Record(revision=U64)),
    35: ('Number', Record(volume=U64)),
    36: ('Changes', Record(forgotten_has_no_changes, revision=U64, known=BOOL,
                           changes=Many(4, CHANGE))),
    37: ('Principals', page(principals=PRINCIPAL)),
    38: ('Names', page(names=NAMED)),
    39: ('Subdomain', Record(revision=U64, principals=Many(4, I32))),
    40: ('Token', Record(token=TOKEN)),
    41: ('Packed', Record(
        run_is_whole, status=STATUS, offset=U64, unpacked=Int(4, low=1, high=MIB + (128 << 10)),
        length=Int(4, high=MIB), end=BOOL,
        frames=Follow(lambda run: -(-run['unpacked'] // CHUNK_BYTES), U32),
        sums=Follow(lambda run: -(-run['unpacked'] // BLOCK_BYTES), U32))),
    42: ('Records', Record(copy=U64, revision=U64, length=Int(4, high=MIB), end=BOOL)),
    48: ('Fences', page(fences=FENCE)),
    49: ('Mandates', page(mandates=MANDATE)),
    50: ('Enforced', Record(number=U64, missing=Many(4, U128))),
    51: ('Invitations', page(invitations=INVITATION)),
    52: ('Joined', Record(facts=Sized(4, 32_768, is_text), keys=Sized(4, 32_768))),
    53: ('Feed', Record(place=FEED_PLACE, base=U64, epoch=U64)),
    54: ('Standbys', Record(standbys=Many(4, STANDBY, most=1000))),
    55: ('Inherited', Record(session=U64, slot=U32, request=U64, answer=Sized(4, 65_536))),
    60: ('Ticket', Record(token=TOKEN, reply=Sized(2, 48_000))),
    62: ('Level', Record(level=U32, programs=Many(2, PROGRAM, most=350))),
    63: ('Opened', Record(status=STATUS, open=U64)),
}
NUMBERS = {name: number for number, (name, _) in ANSWERS.items()}
WITH_PAYLOAD = ('Data', 'Part', 'Packed', 'Records')


def _layout(number):
    """Name and layout of an answer. Raises `Malformed` for an unknown one."""
    if number not in ANSWERS:
        raise Malformed(f'no answer has the number {number}')
    return ANSWERS[number]


def _check_payload(name, answer, payload):
    """Only some answers have a payload, and say its length. Raises `Malformed`."""
    if len(payload) != (answer['length'] if name in WITH_PAYLOAD else 0):
        raise Malformed(f'{name} with {len(payload)} bytes of payload')


def decode_answer(number, message, payload=b''):
    """The fields of an answer. Raises `Malformed`."""
    name, layout = _layout(number)
    answer = decode(layout, message)
    _check_payload(name, answer, payload)
    return answer


def encode_answer(number, answer, payload=b''):
    """The message of an answer. Raises `Malformed`."""
    name, layout = _layout(number)
    _check_payload(name, answer, payload)
    return encode(layout, answer)


def decode_record(record):
    """Number and fields of the answer that a reply record stores. Raises `Malformed`: data is never
    recorded."""
    number = decode(U16, record[:2])
    if _layout(number)[0] in WITH_PAYLOAD:
        raise Malformed(f'answer {number} is never recorded')
    return number, decode_answer(number, record[2:])


def encode_record(number, answer):
    """The reply record of an answer. Raises `Malformed`."""
    return encode(U16, number) + encode_answer(number, answer)
