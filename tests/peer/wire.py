"""The bytes of a connection: the hello, its answer, and frames with their checksums, as
*Connections* of docs/spec/protocol.md has them.

Model: functions from values to bytes and back; `connection.py` has the sockets. A header that
breaks a rule of its kind of frame is refused before its lengths are believed.
"""

from fields import U16, U32, U64, U128, Bits, Int, Malformed, Raw, Record, decode, encode

MAGIC = b'RIALTO-DAFS\r\n\x1a\n\0'
BYTE_ORDER = 0x01020304
VERSION = 1
HELLO_BYTES, HELLO_ANSWER_BYTES, HEADER_BYTES = 64, 128, 64
MESSAGE_BYTES_MAX, PAYLOAD_BYTES_MAX = 256 << 10, 1 << 20
SLOTS_MAX = 128

CHECKSUMS, PAYLOAD_CHECKSUMS, DESCRIPTORS = 1, 2, 4
NEEDS_TLS = 7

(FROM_SERVER, CHAIN_START, CHAIN_MIDDLE, CHAIN_END, CHECKSUM, PAYLOAD_CHECKSUM, DESCRIPTOR, DIRECT,
 ABORTED) = (1 << bit for bit in range(9))
CHAIN = CHAIN_START | CHAIN_MIDDLE | CHAIN_END

(ATTACH, BIND, CREDENTIAL, REQUEST, CANCEL, BREAK_ACK, RENEW, CREDITS_TAKEN, DETACH, PROBE,
 TOKEN) = range(1, 12)
LANE, REGION, BELL = range(12, 15)
ATTACHED, BOUND, REPLY, BREAK, RENEWED, CREDITS, GOODBYE, PROBED = range(65, 73)
LANE_OPEN, REGION_OPEN, RUNG = range(73, 76)
KINDS = {*range(1, 15), *range(65, 76)}
WITH_CREDITS = (REQUEST, ATTACHED, CREDITS)


def _crc_table():
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ (0x82f63b78 if byte & 1 else 0)
        table.append(byte)
    return table


_CRC_TABLE = _crc_table()


def crc32c(data, before=0):
    """The checksum of data that follows data with the checksum `before`."""
    crc = before ^ 0xffffffff
    for byte in data:
        crc = _CRC_TABLE[(crc ^ byte) & 0xff] ^ crc >> 8
    return crc ^ 0xffffffff


HELLO = Record(
    magic=Raw(16), byte_order=U32, lowest_version=U16, highest_version=U16, features=U64, slots=U32,
    payload_bytes=U32, server=U128, ignored=Raw(4))
HELLO_ANSWER = Record(
    magic=Raw(16), refusal=Int(2, high=8), version=U16, slots=U32, features=U64, payload_bytes=U32,
    text=Raw(88))


def decode_hello(data):
    """The fields of a hello (64 bytes) or of its answer (128 bytes). Raises `Malformed`."""
    layout = {HELLO_BYTES: HELLO, HELLO_ANSWER_BYTES: HELLO_ANSWER}.get(len(data))
    if layout is None or crc32c(data[:-4]) != decode(U32, data[-4:]):
        raise Malformed(f'{len(data)} bytes are no hello')
    hello = decode(layout, data[:-4])
    if hello['magic'] != MAGIC or hello.get('byte_order', BYTE_ORDER) != BYTE_ORDER:
        raise Malformed('the hello is of another protocol')
    return hello


def encode_hello(hello):
    """The bytes of a hello or of its answer. Raises `Malformed`."""
    data = encode(HELLO if 'byte_order' in hello else HELLO_ANSWER, hello)
    return data + encode(U32, crc32c(data))


def hello_of(features, payload_bytes=PAYLOAD_BYTES_MAX, slots=SLOTS_MAX):
    """The hello of a client that wants any server."""
    return {'magic': MAGIC, 'byte_order': BYTE_ORDER, 'lowest_version': VERSION,
            'highest_version': VERSION, 'features': features, 'slots': slots,
            'payload_bytes': payload_bytes, 'server': 0, 'ignored': bytes(4)}


def flags_fit_the_kind(header):
    """Each flag is of some kinds of frames only."""
    kind, flags = header['kind'], header['flags']
    return bool(flags & FROM_SERVER) == (kind > 64) \
        and (flags & CHAIN).bit_count() <= 1 \
        and (kind == REQUEST or not flags & (CHAIN | ABORTED)) \
        and (kind == REPLY or not flags & DESCRIPTOR) \
        and (kind in (REQUEST, REPLY) or not flags & DIRECT) \
        and (flags & CHECKSUM or not flags & PAYLOAD_CHECKSUM)


def absent_header_fields_are_zero(header):
    """Procedure, payload, status, credits and region are of some frames only."""
    kind = header['kind']
    has_region = header['region_offset'] or header['region_handle']
    return (kind in (REQUEST, REPLY) or not (header['procedure'] or header['payload_bytes'])) \
        and (kind in (REPLY, GOODBYE) or not header['status']) \
        and (kind in WITH_CREDITS or not header['credits']) \
        and (header['flags'] & DIRECT or not has_region) \
        and (header['flags'] & CHECKSUM or not header['checksum'])


def kind_is_known(header):
    """Of both sides."""
    return header['kind'] in KINDS


HEADER = Record(
    kind_is_known, flags_fit_the_kind, absent_header_fields_are_zero,
    magic=Raw(4), version=Int(2, low=VERSION, high=VERSION), kind=Int(1), zero=Int(1, high=0),
    procedure=U16, flags=Bits(2, (1 << 9) - 1), status=U16, credits=U16, session=U64, request=U64,
    slot=U32, credential=U32, region_offset=U64, region_handle=U32,
    message_bytes=Int(4, high=MESSAGE_BYTES_MAX), payload_bytes=Int(4, high=PAYLOAD_BYTES_MAX),
    checksum=U32)


def decode_header(data):
    """The fields of a frame's header. Raises `Malformed`."""
    header = decode(HEADER, data)
    if header['magic'] != b'RiaF':
        raise Malformed('no frame begins here')
    return header


def _sum(header, message, payload):
    crc = crc32c(message, crc32c(encode(HEADER, {**header, 'checksum': 0})))
    return crc32c(payload, crc) if header['flags'] & PAYLOAD_CHECKSUM else crc


def check_frame(header, message, payload, features=None):
    """Raises `Malformed` if lengths or checksum are wrong, or not those that the hello agreed on
    (`features`, if given)."""
    if (len(message), len(payload)) != (header['message_bytes'], header['payload_bytes']):
        raise Malformed('the lengths in the header are wrong')
    sums = header['flags'] & (CHECKSUM | PAYLOAD_CHECKSUM)
    if features is not None and sums != _sums(features, payload):
        raise Malformed(f'checksums {sums:#x} were not agreed on')
    if header['flags'] & CHECKSUM and _sum(header, message, payload) != header['checksum']:
        raise Malformed('the checksum is wrong')


def _sums(features, payload):
    """The flags of the checksums that a frame has; an empty payload has none."""
    if not features & CHECKSUMS:
        return 0
    return CHECKSUM | (PAYLOAD_CHECKSUM if features & PAYLOAD_CHECKSUMS and payload else 0)


def encode_frame(kind, message=b'', payload=b'', features=0, **fields):
    """The bytes of a frame whose other header fields are zero unless given. Raises `Malformed`."""
    header = dict.fromkeys(HEADER.fields, 0) | fields
    header |= {'magic': b'RiaF', 'version': VERSION, 'kind': kind, 'checksum': 0,
               'message_bytes': len(message), 'payload_bytes': len(payload)}
    header['flags'] |= _sums(features, payload) | (FROM_SERVER if kind > 64 else 0)
    if header['flags'] & CHECKSUM:
        header['checksum'] = _sum(header, message, payload)
    return encode(HEADER, header) + message + payload
