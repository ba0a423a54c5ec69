"""The values that some golden vectors stand for, as crates/dafs/src/golden.rs gives them to the
other implementation.

Model: a layout with two fields of one size in the wrong order encodes what it decoded to the same
bytes. So each layout that has such fields has a vector here. A dictionary names only the fields
that are compared; fields that others have in the same order are compared once.
"""

FILE = {'volume': 0x0102, 'vnode': 0x0304, 'unique': 0x0506}
DIRECTORY = {'volume': 0x0102, 'vnode': 0x0305, 'unique': 0x0708}
SOME_FID = {'volume': 1, 'vnode': 1, 'unique': 1}
JOE, STAFF, SERVER = 0x0102, -205, 0x0506
CURSOR = {'vnode': 0x0506, 'position': 0x0708, 'stage': 3}
PLACE = {'feed': 0x0708, 'position': 9}
HOST = bytes(10) + b'\xff\xff\x0a\x01\x02\x03'


def time(seconds, nanoseconds):
    """A time of a call."""
    return {'seconds': seconds, 'nanoseconds': nanoseconds}


STATUS = {
    'fid': FILE, 'size': 0x112233445566, 'used': 0x1000, 'device': 0, 'data_version': 9,
    'status_version': 10, 'accessed': 1, 'modified': -3, 'changed': 5, 'created': 7,
    'accessed_nanoseconds': 2, 'modified_nanoseconds': 999_999_999, 'changed_nanoseconds': 6,
    'created_nanoseconds': 8, 'uid': 1000, 'gid': 100, 'links': 2, 'mode': 0o4755, 'kind': 1,
    'flags': 0}
OF_DIRECTORY = {'fid': DIRECTORY, 'kind': 2}
GROUP = {
    'revision': 0x0304, 'read_write': 0x0102, 'read_only': 0x0103, 'backup': 0, 'released_epoch': 9,
    'name': b'home.a', 'sites': [
        {'server': 0x0506, 'epoch': 0, 'kind': 1, 'partition': b'/vicepa'},
        {'server': 0x0607, 'epoch': 9, 'kind': 2, 'partition': b'/b'}],
    'claim': {'since': -2, 'operation': b'release', 'by': b'admin'}}
RANGE = {'owner': 77, 'start': 5, 'end': 9}
ORIGIN = {'session': 0x0b, 'slot': 2, 'request': 12}

CALLS = {
    'lookup': {'dir': DIRECTORY, 'name': b'file'},
    'read-dir': {'cookie': 0x10, 'bytes': 65_536, 'with_status': 1},
    'make-file': {'verifier': 0xfeed, 'device': 0, 'mode': 0o644, 'kind': 1, 'how': 3},
    'make-char-device': {'verifier': 0, 'device': 1 << 32 | 3, 'kind': 6, 'how': 2},
    'make-symlink': {'name': b'new', 'target': b'../to', 'kind': 3},
    'link': {'fid': FILE, 'dir': DIRECTORY},
    'remove': {'what': 0, 'hold': 1},
    'rename': {'from_dir': DIRECTORY, 'to_dir': SOME_FID, 'from_name': b'a', 'to_name': b'bc',
               'mode': 3, 'hold': 0},
    'set-status-all': {
        'size': 3, 'accessed': time(-1, 5), 'modified': time(0, 0), 'uid': 1, 'gid': 2,
        'mode': 0o640, 'present': 0b11_1001_1111},
    'xattr-set': {'name': b'user.a', 'value': b'value', 'mode': 2},
    'set-quota': {'bytes': 1 << 30, 'files': 1000},
    'read': {'offset': 4096, 'length': 1 << 20},
    'write': {'offset': 17, 'length': 4, 'append': 0, 'stable': 0, 'kill_privileges': 1},
    'append': {'offset': 0, 'append': 1, 'stable': 1, 'kill_privileges': 0},
    'allocate': {'offset': 1, 'length': 2, 'mode': 3},
    'seek': {'offset': 12, 'what': 2},
    'read-sums': {'first': 3, 'count': 64},
    'open': {'fid': FILE, 'access': 3, 'deny': 2, 'claims': 0, 'key': bytes([0xa5] * 16)},
    'open-claim': {'access': 1, 'deny': 0, 'claims': 1, 'key': None},
    'downgrade': {'open': 0x0807_0000_0006, 'access': 1, 'deny': 3},
    'lock': RANGE | {'pid': 4711, 'family': 1, 'mode': 2, 'wait': 1, 'reclaim': 0},
    'unlock': {'owner': 77, 'start': 0, 'end': (1 << 64) - 1, 'family': 2},
    'test-lock': RANGE | {'family': 1, 'mode': 1},
    'hold': {'fids': [FILE, DIRECTORY]},
    'note-read': {'known': time(5, 6), 'read': time(7, 8)},
    'by-vnode-parent': {'fid': DIRECTORY | {'unique': 0}, 'parent': 1},
    'delegated-make': {'head': {'at': time(-1, 999_999_999), 'slot': 9},
                       'call': {'dir': DIRECTORY, 'name': b'new'}},
    'volume-create': {'volume': 0x0708, 'quota_bytes': 1 << 30, 'quota_files': 7, 'partition': 2,
                      'uid': 1000, 'gid': 100, 'name': b'home.a', 'name_flags': 0},
    'volume-create-encrypted': {'name_flags': 0x8000, 'name': b'b'},
    'volume-clone': {'new_volume': 0x0708, 'volume': 0x0102, 'kind': 3, 'replace': 1},
    'volume-set-fields': {'quota_bytes': 1 << 20, 'quota_files': 0, 'state': 2, 'present': 3},
    'volume-set-read-times': {'present': 4},
    'volume-clear-afs': {'present': 32},
    'volume-list': {'after': 0x0102, 'partition': 1, 'most': 500},
    'volume-changes-packed': {'since': 0x0304, 'cursor': CURSOR, 'bytes': 1 << 20 | 1 << 31},
    'volume-apply': {'tree': 0x0102, 'partition': 1, 'over': 0, 'length': 4},
    'volume-finish-view': {'finish': (1, {'volume': 0x0103, 'kind': 2, 'replace': 1,
                                          'name': b'home.readonly'})},
    'volume-finish-dated': {'finish': (4, {
        'updated': time(3, 4), 'quota_bytes': 5, 'quota_files': 6, 'created': time(1, 2),
        'arriving': 0, 'name': b'home.a'})},
    'volume-pull': {'volume': 0x0103, 'tree': 0x0102, 'partition': 0xffffffff},
    'volume-hold': {'volume': 0x0102, 'milliseconds': 10_000},
    'volume-beside': {'volume': 0x0102, 'partition': 1, 'what': 2},
    'volume-take-over': {'copy': 0x0102, 'above': 0x0304, 'name': b'home.a'},
    'volume-follow': {'volume': 0x0102, 'server': SERVER, 'base': 3, 'applied': PLACE, 'synced': 8,
                      'heard': 4, 'bytes': 1 << 20},
    'volume-inherit': ORIGIN | {'volume': 0x0102},
    'volume-loads': {'partition': 1, 'after': 7, 'most': 2000},
    'cell-put-group': GROUP,
    'cell-remove-group': {'read_write': 0x0102, 'revision': 0x0304},
    'cell-take-numbers': {'above': 0x0102, 'count': 3},
    'cell-changes': {'since': 0x0304, 'most': 100},
    'cell-principal-uid': (3, 1000),
    'cell-subdomain': {'principal': JOE, 'host': HOST},
    'cell-copy-next': {'copy': 0x0708, 'skip': 0x0910, 'after': b'P\x80\0\0\x01'},
    'cell-invite': {'seconds': 3600, 'servers': 2, 'roles': 1, 'by': JOE, 'name': b'two'},
    'cell-level-tell': (2, {'server': SERVER, 'knows': 2, 'version': b'0.1.0'}),
    'pts-on-behalf': {'on_behalf': JOE},
    'pts-create': {'kind': 2, 'principal': STAFF, 'uid': 0xffffffff, 'gid': 100,
                   'name': b'joe:staff', 'owner': (2, b'joe')},
    'pts-change-owner': {'principal': STAFF, 'owner': JOE},
    'pts-set-fields': {'principal': JOE, 'present': 0b10_0101, 'locked': 1, 'group_quota': 0,
                       'uid': 1000, 'gid': 0, 'tokens_after': 0},
    'pts-join': {'group': STAFF, 'member': JOE},
    'pts-membership': {'principal': JOE, 'groups': 1, 'after': STAFF, 'most': 100},
    'pts-owned': {'principal': JOE, 'after': STAFF},
    'pts-set-max': {'highest_user': JOE, 'lowest_group': STAFF},
    'auth-password': {'on_behalf': {'principal': JOE, 'host': HOST}, 'name': b'joe',
                      'password': b'open sesame', 'client_key': bytes([7]) * 32},
    'auth-set-password': {'old': b'open sesame', 'new': b'xyzzy plugh', 'keep_tokens': 0},
    'guard-fences': {'on_behalf': {'given': 0, 'principal': 0}, 'after': 7, 'most': 100},
    'guard-fence-host': {'whom': {'kind': 2, 'prefix': 24}, 'seconds': 3600, 'why': b'lost'},
    'guard-mandate-partition': {'principal': JOE, 'realm': (3, {'server': SERVER,
                                                                'partition': b'/vicepa'})},
    'guard-audit-lines': {'file': 8, 'offset': 0x0708},
}

ANSWERS = {
    'status': {'status': STATUS},
    'status-own-list': {'status': {'flags': 3}},
    'entry': {'dir_version': 44, 'sole': 0},
    'entries-link': {'dir_version': 44, 'end': 1, 'entries': [
        {'fid': FILE, 'cookie': 17, 'kind': 3, 'flags': 5, 'name': b'l', 'target': b'to/there'}]},
    'made': {'status': STATUS, 'dir': OF_DIRECTORY, 'existed': 1},
    'removed': {'status': STATUS, 'dir': OF_DIRECTORY},
    'renamed-over': {'status': STATUS, 'from_dir': OF_DIRECTORY, 'to_dir': OF_DIRECTORY,
                     'other': STATUS},
    'volume': {'quota_bytes': 1, 'quota_files': 2, 'used_bytes': 3, 'used_files': 4,
               'partition_bytes': 5, 'free_bytes': 6},
    'data': {'length': 5, 'end': 1},
    'written': {'offset': 17, 'previous_version': 8, 'boot_verifier': 0xb007, 'count': 4},
    'lock-conflict': {'start': 5, 'end': (1 << 64) - 1, 'pid': 4711, 'mode': 1},
    'delegation': {'first_slot': 0x1000, 'slots': 64, 'key': b'\x11' + bytes(15)},
    'volumes': {'end': 1, 'volumes': [{
        'volume': 0x0102, 'tree': 0x0101, 'created': time(1, 2), 'updated': time(3, 4),
        'quota_bytes': 5, 'quota_files': 6, 'used_bytes': 7, 'used_files': 8, 'epoch': 9,
        'origin': 0x0103, 'partition': 3, 'kind': 4, 'state': 1, 'name': b'home.monday',
        'key': None}]},
    'partitions': {'partitions': [{
        'total_bytes': 1 << 40, 'free_bytes': 1 << 39, 'partition': 1, 'name': b'/vicepb',
        'compression': b'zstd'}]},
    'cursor': CURSOR,
    'tasks': {'tasks': [{'number': 1, 'tree': 0x0102, 'since': 2, 'epoch': 3, 'bytes': 4,
                         'total_bytes': 5, 'state': 3, 'text': b'why'}]},
    'incoming': {'base': 7, 'trees': [{'tree': 0x0102, 'since': 3, 'epoch': 4, 'bytes': 5,
                                       'used_bytes': 6, 'partition': 1, 'over': 1}]},
    'rights': {'of': DIRECTORY, 'rights': 127},
    'groups': {'end': 0, 'groups': [GROUP]},
    'servers': {'servers': [{
        'revision': 0x0304, 'server': SERVER, 'name': b'one', 'keys': [bytes([10]) * 32],
        'addresses': [{'ip': bytes(10) + b'\xff\xff\xc0\0\x02\x01', 'port': 7620},
                      {'ip': b'\x20\x01\x0d\xb8' + bytes(11) + b'\x01', 'port': 7621}]}]},
    'changes': {'revision': 0x0305, 'known': 1, 'changes': [
        {'revision': 0x0304, 'number': 0x0102, 'kind': 1},
        {'revision': 0x0305, 'number': SERVER, 'kind': 2}]},
    'principals': {'principals': [{
        'principal': STAFF, 'kind': 2, 'locked': 0, 'owner': JOE, 'creator': JOE, 'group_quota': 3,
        'count': 7, 'uid': 0xffffffff, 'gid': 100, 'tokens_after': 5, 'name': b'joe:staff'}]},
    'packed': {'offset': 1 << 16, 'unpacked': 70_000, 'length': 5, 'end': 1, 'frames': [5, 0],
               'sums': [1, 2, 3, 0, 5]},
    'records': {'copy': 0x0708, 'revision': 0x0304, 'length': 7, 'end': 1},
    'fences': {'fences': [{'number': 8, 'whom': {'kind': 3}, 'since': 5, 'until': 6, 'by': JOE,
                           'why': b'lost'}]},
    'mandates': {'mandates': [{'number': 9, 'principal': JOE, 'by': 0}] * 3},
    'invitations': {'invitations': [{
        'number': 8, 'public_key': bytes([5]) * 32, 'roles': 3, 'servers': 2, 'since': 5,
        'until': 9, 'by': JOE, 'name': b'two',
        'admitted': [{'key': bytes([7]) * 32, 'at': 6, 'name': b'two'}]}]},
    'joined': {'facts': b'{}', 'keys': b'1 key'},
    'feed': {'place': PLACE, 'base': 0x0103, 'epoch': 3},
    'standbys': {'standbys': [{
        'server': SERVER, 'entries_behind': 1, 'bytes_behind': 2, 'oldest_milliseconds': 3,
        'asked_milliseconds': 4, 'sync': 1, 'in_step': 0}]},
    'inherited': ORIGIN | {'answer': b'record'},
    'level': {'level': 1, 'programs': [{'server': SERVER, 'knows': 2}]},
}

MESSAGES = {
    'attach': {'client': 0x0102030405060708090a0b0c0d0e0f10, 'incarnation': 3, 'pid': 4711,
               'display': b'host rialto'},
    'credential': {'uid': 1000, 'gid': 100, 'count': 3, 'groups': [1, 2, 3]},
    'attached': {
        'server': 0x5e4e, 'boot_verifier': 0xb007, 'bind_key': 0x1112131415161718191a1b1c1d1e1f20,
        'lease_milliseconds': 15_000, 'resumed': 1, 'renewed': 1},
    'break': {'items': [{'fid': FILE, 'reason': 1, 'hint': b'entry'},
                        *({'fid': FILE, 'reason': reason, 'hint': b''} for reason in (2, 3, 4))]},
}

FRAMES = {
    'request': {'kind': 4, 'procedure': 10, 'credits': 2, 'session': 7, 'request': 9, 'slot': 3,
                'credential': 1},
    'reply-direct': {'procedure': 12, 'flags': 0x91, 'region_offset': 0x2000, 'region_handle': 5},
    'reply-fault': {'status': 8},
}

HELLOS = {
    'hello': {'lowest_version': 1, 'highest_version': 1, 'features': 5, 'slots': 128,
              'payload_bytes': 1 << 20, 'server': 0},
    'hello-to-one': {'server': 7},
    'welcome': {'refusal': 0, 'version': 1, 'slots': 128, 'features': 5, 'payload_bytes': 1 << 20},
}

EXPECTED = {'calls': CALLS, 'answers': ANSWERS, 'records': {
    name: answer for name, answer in ANSWERS.items()
    if name not in ('data', 'packed', 'part', 'records')}, 'messages': MESSAGES, 'frames': FRAMES,
            'hellos': HELLOS}
