"""Calls: a row for each of the table *Calls* of docs/spec/protocol.md, by number.

Model: a layout for each call; values are dictionaries with the names of its fields. A delegated
call has its head and its call as the two fields of such a dictionary. The payload is beside them.
"""

from fields import (BOOL, I32, I64, NOTHING, U8, U32, U64, U128, Bits, If, Int, Length, Malformed,
                    Many, Maybe, Raw, Record, Rest, Sized, Variant, choice, decode, encode)
from parts import (ACCESS_LIST_BYTES, ADDRESS, BEHALF, BLOCK_DEVICE, CHARACTER_DEVICE, CURSOR,
                   FEED_PLACE, FID, FIDS, FINISH, GROUP, HOST, KIND, MIB, MOUNT_POINT, NAME,
                   NAME_LENGTH, NAME_REST, PRINCIPAL_KIND, PRINCIPAL_NAME, PROGRAM, REALM, ROLES,
                   SERVER, SERVER_NAME, SYMLINK, TIME, TOKEN, VOLUME_KIND, VOLUME_STATES,
                   WHICH_PRINCIPAL, WHOM, XATTR_NAME, absent_are_zero)

DELEGATED = 1 << 15
DELEGABLE = ('Make', 'Link', 'Remove', 'Rename', 'SetStatus', 'XattrSet', 'XattrRemove', 'Write')
DELEGATED_HEAD = Record(at=TIME, slot=U64)

UNCHECKED, GUARDED, EXCLUSIVE = 1, 2, 3
# Fields of SetStatus that are present.
HAS_MODE, HAS_UID, HAS_GID, HAS_SIZE = (1 << bit for bit in range(4))


def make_is_possible(make):
    """Only exclusive ones have a verifier, devices a device, and links a target."""
    return (make['how'] == EXCLUSIVE or make['verifier'] == 0) \
        and (make['kind'] in (CHARACTER_DEVICE, BLOCK_DEVICE) or make['device'] == 0) \
        and (make['kind'] in (SYMLINK, MOUNT_POINT) or not make['target'])


def times_are_given_or_now(change):
    """Not both, of each time."""
    return change['present'] & 0x30 != 0x30 and change['present'] & 0xc0 != 0xc0


def append_has_no_offset(write):
    """The server finds it."""
    return not write['append'] or write['offset'] == 0


def no_list_has_no_bytes(change):
    """The bytes of a list that is not given are none."""
    return change['flags'] & 1 or not change['list']


def one_encryption(volume):
    """On the disk it is encrypted, or is not, or the server decides."""
    return volume['name_flags'] != 0xc000


def present_of_volume_is_possible(change):
    """No option is set both ways."""
    return change['present'] & 0x0c != 0x0c and change['present'] & 0x30 != 0x30


def part_is_no_larger_than_a_payload(changes):
    """Beside bit 31, which allows packed bodies."""
    return changes['bytes'] & 0x7fffffff <= MIB


def volume_is_named_once(which):
    """By number or by name."""
    return (which['volume'] == 0) == (len(which['name']) > 0)


def own_calls_name_no_principal(call):
    """A call on behalf of no other caller has the number 0."""
    return call['given'] or call['principal'] == 0


OF_FILE = Record(fid=FID)
READ = Record(fid=FID, offset=U64, length=Int(4, high=MIB))
WHICH_VOLUME = Record(volume_is_named_once, volume=U64, name=Sized(2, 255))
GUARD_BEHALF = Record(own_calls_name_no_principal, given=BOOL, principal=I32)
PASSWORD = Sized(2, 1024)
JOIN_REQUEST = Record(request=Sized(2, 8192))
CLIENT_KEY = Raw(32)
DATA_USE = choice(3, first=0)


def pts(**fields):
    """A call about principals, in whose name a server asks first (0: the caller)."""
    return Record(on_behalf=I32, **fields)


def auth(*rules, **fields):
    """A call of a login, on behalf of a principal at a host first."""
    return Record(*rules, on_behalf=BEHALF, **fields)


def guard(**fields):
    """A call about fences and mandates, on behalf of a principal first."""
    return Record(on_behalf=GUARD_BEHALF, **fields)


CALLS = {
    1: ('Root', Record(name=NAME)),
    2: ('Lookup', Record(dir=FID, name=NAME)),
    3: ('ReadDir', Record(dir=FID, cookie=U64, bytes=U32, with_status=BOOL)),
    4: ('Make', Record(
        make_is_possible, dir=FID, verifier=U64, device=U64, name_length=NAME_LENGTH,
        target_length=Length(2, 4095), mode=Int(2), kind=KIND, how=choice(3), name=NAME_REST,
        target=Rest())),
    5: ('MakeUnnamed', Record(dir=FID, mode=Int(2))),
    6: ('Link', Record(fid=FID, dir=FID, name=NAME)),
    7: ('Remove', Record(dir=FID, name_length=NAME_LENGTH, what=choice(2, first=0), hold=BOOL,
                         name=NAME_REST)),
    8: ('Rename', Record(
        from_dir=FID, to_dir=FID, from_name_length=NAME_LENGTH, to_name_length=NAME_LENGTH,
        mode=choice(5), hold=BOOL, from_name=NAME_REST, to_name=NAME_REST)),
    9: ('ReadLink', OF_FILE),
    10: ('GetStatus', OF_FILE),
    11: ('SetStatus', Record(
        times_are_given_or_now,
        absent_are_zero({'mode': 0, 'uid': 1, 'gid': 2, 'size': 3, 'accessed': 4, 'modified': 6}),
        fid=FID, size=U64, accessed=TIME, modified=TIME, uid=U32, gid=U32, mode=Int(2),
        present=Bits(2, 0x7ff))),
    12: ('XattrGet', Record(fid=FID, name=XATTR_NAME)),
    13: ('XattrSet', Record(
        fid=FID, value_length=Length(4, 65_536), name_length=NAME_LENGTH, mode=choice(3),
        name=Rest(), value=Rest())),
    14: ('XattrList', OF_FILE),
    15: ('XattrRemove', Record(fid=FID, name=XATTR_NAME)),
    16: ('VolumeStatus', OF_FILE),
    17: ('SetQuota', Record(fid=FID, bytes=U64, files=U64)),
    18: ('Read', READ),
    19: ('Write', Record(append_has_no_offset, fid=FID, offset=U64, length=Int(4, high=MIB),
                         append=BOOL, stable=BOOL, kill_privileges=BOOL)),
    20: ('Allocate', Record(fid=FID, offset=U64, length=U64, mode=choice(5))),
    21: ('Seek', Record(fid=FID, offset=U64, what=choice(2))),
    22: ('Commit', OF_FILE),
    23: ('CommitVolume', OF_FILE),
    24: ('OpenBody', OF_FILE),
    25: ('ReadSums', Record(fid=FID, first=U64, count=U32)),
    26: ('Lock', Record(fid=FID, owner=U64, start=U64, end=U64, pid=U32, family=choice(2),
                        mode=choice(2), wait=BOOL, reclaim=BOOL)),
    27: ('Unlock', Record(fid=FID, owner=U64, start=U64, end=U64, family=choice(2))),
    28: ('TestLock', Record(fid=FID, owner=U64, start=U64, end=U64, family=choice(2),
                            mode=choice(2))),
    29: ('Hold', Record(fids=FIDS)),
    30: ('Unhold', Record(fids=FIDS)),
    31: ('ReclaimDone', NOTHING),
    32: ('ServerReport', NOTHING),
    33: ('Scrub', Record(start=BOOL)),
    34: ('Delegate', OF_FILE),
    35: ('Return', Record(fids=FIDS)),
    36: ('LendBody', Record(fid=FID, how=choice(3))),
    37: ('SettleBody', Record(fid=FID, back=BOOL)),
    38: ('LendBlank', OF_FILE),
    39: ('AdoptBody', Record(fid=FID, blank=U64)),
    40: ('VolumeCreate', Record(
        one_encryption, volume=U64, quota_bytes=U64, quota_files=U64, partition=U32, uid=U32,
        gid=U32, name_length=Length(2, 255, flags=0xc000), name=NAME_REST)),
    41: ('VolumeRemove', Record(volume=U64)),
    42: ('VolumeRename', Record(volume=U64, name=NAME)),
    43: ('VolumeClone', Record(new_volume=U64, volume=U64, name_length=NAME_LENGTH,
                               kind=VOLUME_KIND, replace=BOOL, name=NAME_REST)),
    44: ('VolumeSetFields', Record(
        present_of_volume_is_possible, absent_are_zero({'quota_bytes': 0, 'quota_files': 1}),
        volume=U64, quota_bytes=U64, quota_files=U64, state=Int(1, high=VOLUME_STATES),
        present=Bits(1, 0x3f))),
    45: ('VolumeList', Record(after=U64, partition=U32, most=U32)),
    46: ('VolumeExamine', WHICH_VOLUME),
    47: ('Partitions', NOTHING),
    48: ('VolumeChanges', Record(part_is_no_larger_than_a_payload, volume=U64, since=U64,
                                 cursor=CURSOR, bytes=U32)),
    49: ('VolumeApply', Record(tree=U64, partition=U32, over=BOOL, length=Int(4, high=MIB))),
    50: ('VolumeFinish', Record(tree=U64, partition=U32, finish=FINISH)),
    51: ('VolumePull', Record(volume=U64, tree=U64, partition=U32,
                              addresses=Many(2, ADDRESS, most=16), finish=FINISH)),
    52: ('Tasks', NOTHING),
    53: ('VolumeHold', Record(volume=U64, milliseconds=U32)),
    54: ('VolumeServe', Record(volume=U64)),
    55: ('VolumeIncoming', Record(tree=U64)),
    56: ('GetAcl', OF_FILE),
    57: ('SetAcl', Record(
        no_list_has_no_bytes, fid=FID, flags=Bits(1, 3), list=Sized(4, ACCESS_LIST_BYTES),
        instead_of=If(lambda change: change['flags'] & 2, Raw(32)))),
    58: ('Rights', OF_FILE),
    59: ('VolumeBeside', Record(volume=U64, partition=U32, what=choice(3))),
    60: ('ReadPacked', READ),
    61: ('ByVnode', Record(fid=FID, parent=BOOL)),
    62: ('NoteRead', Record(fid=FID, known=TIME, read=TIME)),
    63: ('VolumeTakeOver', Record(copy=U64, above=U64, name=NAME)),
    64: ('CellGroup', WHICH_VOLUME),
    65: ('CellGroups', Record(after=U64, most=U32)),
    66: ('CellPutGroup', GROUP),
    67: ('CellRemoveGroup', Record(read_write=U64, revision=U64)),
    68: ('CellTakeNumbers', Record(above=U64, count=U32)),
    69: ('CellServers', NOTHING),
    70: ('CellPutServer', SERVER),
    71: ('CellRemoveServer', Record(server=U128, revision=U64)),
    72: ('CellChanges', Record(since=U64, most=U32)),
    73: ('CellMe', NOTHING),
    74: ('CellPrincipal', WHICH_PRINCIPAL),
    75: ('CellSubdomain', Record(principal=I32, host=HOST)),
    76: ('CellWatch', Record(server=U128, since=U64, most=U32)),
    77: ('CellCopy', Record(copy=U64, skip=U64, after=Sized(2, 1024))),
    80: ('PtsNames', pts(principals=Many(2, I32, most=1000))),
    81: ('PtsNumbers', pts(names=Many(2, PRINCIPAL_NAME, most=1000))),
    82: ('PtsExamine', pts(principal=I32)),
    83: ('PtsCreate', pts(kind=PRINCIPAL_KIND, principal=I32, uid=U32, gid=U32,
                          name=PRINCIPAL_NAME, owner=Maybe(WHICH_PRINCIPAL))),
    84: ('PtsDelete', pts(principal=I32)),
    85: ('PtsRename', pts(principal=I32, name=PRINCIPAL_NAME)),
    86: ('PtsChangeOwner', pts(principal=I32, owner=I32)),
    87: ('PtsSetFields', pts(
        principal=I32, present=Bits(1, 0x3f), privacy=U8, locked=BOOL, group_quota=U32, uid=U32,
        gid=U32, tokens_after=I64).with_rules(absent_are_zero({
            'privacy': 0, 'group_quota': 1, 'uid': 2, 'gid': 3, 'tokens_after': 4, 'locked': 5}))),
    88: ('PtsJoin', pts(group=I32, member=I32)),
    89: ('PtsLeave', pts(group=I32, member=I32)),
    90: ('PtsMembership', pts(principal=I32, groups=BOOL, after=I32, most=U32)),
    91: ('PtsOwned', pts(principal=I32, after=I32, most=U32)),
    92: ('PtsEntries', pts(after=I32, most=U32)),
    93: ('PtsMax', pts()),
    94: ('PtsSetMax', pts(highest_user=I32, lowest_group=I32)),
    96: ('AuthPassword', auth(name=PRINCIPAL_NAME, password=PASSWORD, client_key=CLIENT_KEY)),
    97: ('AuthAttest', auth(client_key=CLIENT_KEY)),
    98: ('AuthRenew', auth(token=TOKEN)),
    99: ('AuthSetPassword', auth(name=PRINCIPAL_NAME, old=Maybe(PASSWORD), new=PASSWORD,
                                 keep_tokens=BOOL)),
    100: ('AuthKerberos', auth(request=Sized(2, 48_000), client_key=CLIENT_KEY)),
    104: ('GuardFences', guard(after=U64, most=U32)),
    105: ('GuardAddFence', guard(whom=WHOM, seconds=U64, why=Sized(2, 255))),
    106: ('GuardRemoveFence', guard(number=U64)),
    107: ('GuardMandates', guard(after=U64, most=U32)),
    108: ('GuardAddMandate', guard(principal=I32, realm=REALM)),
    109: ('GuardRemoveMandate', guard(number=U64)),
    110: ('GuardWithdrawKeys', guard(server=U128)),
    111: ('GuardAuditLines', guard(file=U64, offset=U64)),
    112: ('CellInvite', Record(seconds=U64, servers=U32, roles=ROLES, by=I32, public_key=Raw(32),
                               name=SERVER_NAME)),
    113: ('CellInvitations', Record(after=U64, most=U32)),
    114: ('CellUninvite', Record(number=U64)),
    115: ('CellRedeem', JOIN_REQUEST),
    116: ('CellJoin', JOIN_REQUEST),
    117: ('CellCertify', JOIN_REQUEST),
    118: ('CellWithdrawn', NOTHING),
    119: ('CellServerRoles', NOTHING),
    120: ('VolumeStandBy', Record(tree=U64, partition=U32)),
    121: ('VolumeFeed', Record(volume=U64, server=U128)),
    122: ('VolumeFollow', Record(volume=U64, server=U128, base=U64, applied=FEED_PLACE, synced=U64,
                                 heard=U64, bytes=U32)),
    123: ('VolumeStandbys', Record(volume=U64)),
    124: ('VolumeFailOver', Record(volume=U64, force=BOOL)),
    125: ('VolumeInherit', Record(volume=U64, session=U64, slot=U32, request=U64)),
    126: ('VolumeEndTask', Record(number=U64)),
    128: ('CellLevel', Variant({1: NOTHING, 2: PROGRAM, 3: U32})),
    129: ('VolumeFormat', Record(partition=U32, to_raise=BOOL)),
    130: ('VolumeLoads', Record(partition=U32, after=U64, most=U32)),
    131: ('VolumeTrust', Record(partition=U32)),
    132: ('Open', Record(fid=FID, access=DATA_USE, deny=DATA_USE, claims=BOOL,
                         key=Maybe(Raw(16)))),
    133: ('Close', Record(fid=FID, open=U64)),
    134: ('Downgrade', Record(fid=FID, open=U64, access=DATA_USE, deny=DATA_USE)),
    135: ('PersistLock', Record(fid=FID, owner=U64, start=U64, end=U64, pid=U32, how=choice(3))),
    136: ('FinishLock', Record(fid=FID, owner=U64, start=U64, end=U64)),
}
NUMBERS = {name: number for number, (name, _) in CALLS.items()}
WITH_PAYLOAD = ('Write', 'VolumeApply')


def _layout(number):
    """The layout of a call by its number in the header. Raises `Malformed` for an unknown call."""
    name, layout = CALLS.get(number & ~DELEGATED, (None, None))
    if name is None or number & DELEGATED and name not in DELEGABLE:
        raise Malformed(f'no call has the number {number:#x}')
    if number & DELEGATED:
        layout = Record(head=DELEGATED_HEAD, call=layout)
    return name, layout


def _check_payload(name, call, payload):
    """Only some calls have a payload, and say its length. Raises `Malformed`."""
    inner = call['call'] if isinstance(call, dict) and 'head' in call else call
    if len(payload) != (inner['length'] if name in WITH_PAYLOAD else 0):
        raise Malformed(f'{name} with {len(payload)} bytes of payload')


def decode_call(number, message, payload=b''):
    """The fields of a call: of a delegated one those of `head` and `call`. Raises `Malformed`."""
    name, layout = _layout(number)
    call = decode(layout, message)
    _check_payload(name, call, payload)
    return call


def encode_call(number, call, payload=b''):
    """The message of a call. Raises `Malformed`."""
    name, layout = _layout(number)
    _check_payload(name, call, payload)
    return encode(layout, call)
