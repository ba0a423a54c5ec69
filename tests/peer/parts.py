"""The parts that several calls and answers share, as docs/spec/protocol.md names them.

Model: layouts, and the numbers that they have names for. Times are seconds and nanoseconds since
1970, sizes are bytes, names are bytes as a file system has them.
"""

from fields import (BOOL, I32, I64, NOTHING, U8, U16, U32, U64, U128, Bits, If, Int, Items, Length,
                    Many, Maybe, Raw, Record, Rest, Sized, Variant, choice, is_name, is_text)

MIB = 1 << 20
# In place of a partition, a uid or a gid: any, none.
ALL_ONES_32 = 0xffffffff
IPV4_MAPPED = bytes(10) + b'\xff\xff'

(FILE, DIRECTORY, SYMLINK, NAMED_PIPE, SOCKET, CHARACTER_DEVICE, BLOCK_DEVICE,
 MOUNT_POINT) = range(1, 9)

FID = Record(volume=U64, vnode=U64, unique=U64)
# The file to which the members of a chain before led.
CURRENT = dict.fromkeys(FID.fields, (1 << 64) - 1)
NANOSECONDS = Int(4, high=999_999_999)
TIME = Record(seconds=I64, nanoseconds=NANOSECONDS)
KIND = choice(MOUNT_POINT)
MODE = Int(2, high=0o7777)
# A name behind its length, and one whose length stands earlier.
NAME, NAME_REST, NAME_LENGTH = Sized(2, 255, is_name), Rest(is_name), Length(2, 255)
XATTR_NAME = Sized(2, 255)
ACCESS_LIST_BYTES = 65_536


def list_flags_are_possible(status):
    """A file has a list of its own only where lists decide."""
    return status['flags'] & 3 != 2


STATUS = Record(
    list_flags_are_possible, fid=FID, size=U64, used=U64, device=U64, data_version=U64,
    status_version=U64, accessed=I64, modified=I64, changed=I64, created=I64,
    accessed_nanoseconds=NANOSECONDS, modified_nanoseconds=NANOSECONDS,
    changed_nanoseconds=NANOSECONDS, created_nanoseconds=NANOSECONDS, uid=U32, gid=U32, links=U32,
    mode=MODE, kind=KIND, flags=Bits(1, 7))

# Of volumes.
VOLUME_KIND, VOLUME_STATES = choice(4), 7
CURSOR = Record(vnode=U64, position=U64, stage=U8)
FEED_PLACE = Record(feed=U64, position=U64)
ADDRESS = Record(ip=Raw(16), port=U16)
PARTITION_NAME = Sized(2, 255, is_text)

READ_WRITE_FINISH = {
    'quota_bytes': U64, 'quota_files': U64, 'created': TIME, 'arriving': BOOL, 'name': NAME}
FINISH = Variant({
    0: NOTHING,
    1: Record(volume=U64, name_length=NAME_LENGTH, kind=VOLUME_KIND, replace=BOOL, name=NAME_REST),
    2: Record(**READ_WRITE_FINISH),
    3: NOTHING,
    4: Record(updated=TIME, **READ_WRITE_FINISH),
    5: Record(updated=TIME),
})

# Of the cell's database.
SITE = Record(server=U128, epoch=U64, kind=choice(4), partition=PARTITION_NAME)
CLAIM = Record(since=I64, operation=Sized(2, 255, is_text), by=Sized(2, 255, is_text))
GROUP = Record(
    revision=U64, read_write=U64, read_only=U64, backup=U64, released_epoch=U64,
    name_length=NAME_LENGTH, sites_length=Length(2, 1000), busy=Int(2, high=1), name=NAME_REST,
    sites=Items(SITE), claim=If(lambda group: group['busy'] == 1, CLAIM))
SERVER_NAME = Sized(2, 253, is_text)
SERVER = Record(
    revision=U64, server=U128, addresses_length=Length(2, 16), keys_length=Length(2, 4),
    name=SERVER_NAME, addresses=Items(ADDRESS), keys=Items(Raw(32)))
PROGRAM = Record(server=U128, knows=U32, version=Sized(2, 64, is_text))
ROLES = Bits(4, 7)

# Of principals and rules.
PRINCIPAL_NAME = Sized(2, 63, is_text)
WHICH_PRINCIPAL = Variant({1: I32, 2: PRINCIPAL_NAME, 3: U32})
PRINCIPAL_KIND = choice(3)
TOKEN = Sized(2, 1024)
HOST = Raw(16)


def whom_is_possible(whom):
    """Numbers fit their kinds, and only hosts have a prefix."""
    number = int.from_bytes(whom['number'], 'little')
    longest = 32 if whom['number'].startswith(IPV4_MAPPED) else 128
    bits = {1: 32, 2: 128, 3: 128, 4: 128, 5: 64}[whom['kind']]
    return number >> bits == 0 and whom['prefix'] <= (longest if whom['kind'] == 2 else 0)


WHOM = Record(whom_is_possible, kind=choice(5), prefix=U8, number=Raw(16))
REALM = Variant({
    1: Record(pattern=Sized(2, 255, is_text)),
    2: Record(server=U128),
    3: Record(server=U128, partition=PARTITION_NAME),
})


def page(**items):
    """A page of a list: a count, whether it is the last page, the items."""
    (name, layout), = items.items()
    return Record(**{f'{name}_length': Length(4, ALL_ONES_32), 'end': BOOL, name: Items(layout)})


def absent_are_zero(bits):
    """A rule: a field whose bit of `present` is not set is zero. `bits` has the bit of each."""
    def absent_fields_are_zero(value):
        zeros = (0, {'seconds': 0, 'nanoseconds': 0})
        return all(value['present'] & 1 << bit or value[name] in zeros
                   for name, bit in bits.items())
    return absent_fields_are_zero


FIDS = Many(4, FID, most=4096)
BEHALF = Maybe(Record(principal=I32, host=HOST))
