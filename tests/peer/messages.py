"""Session messages: a row for each of the table *Session messages* of docs/spec/protocol.md.

Model: for each kind of frame the header fields that it uses, and the layout of its message.
"""

import wire
from fields import (BOOL, NOTHING, U32, U64, U128, Follow, Int, Length, Malformed, Many, Raw,
                    Record, Rest, Sized, choice, decode, encode, is_name, is_text)
from parts import ALL_ONES_32, FID, FIDS, TOKEN

BREAK_DATA, BREAK_STATUS, BREAK_REMOVED, BREAK_PRESSURE, BREAK_RECALL = range(1, 6)
HINT_BYTES_MAX = 64 << 10
CREDENTIALS_MAX = 64
# In place of a count: the groups were not looked up.
GROUPS_UNKNOWN = ALL_ONES_32


def hint_is_name_or_none(hint):
    """A break of a directory may name the entry that changed."""
    return not hint or is_name(hint)


def hints_fit(message):
    """All hints of a break together."""
    return sum(len(item['hint']) for item in message['items']) <= HINT_BYTES_MAX


def group_count_is_possible(message):
    """Of groups that were looked up."""
    return message['count'] <= 1024 or message['count'] == GROUPS_UNKNOWN


def groups_that_follow(message):
    """Their number."""
    return 0 if message['count'] == GROUPS_UNKNOWN else message['count']


BREAK_ITEM = Record(fid=FID, hint_length=Length(2, 255), reason=choice(BREAK_RECALL),
                    zero=Int(1, high=0), hint=Rest(hint_is_name_or_none))

# Of each kind of frame the header fields that it uses, beside the session, and its message.
MESSAGES = {
    wire.ATTACH: ((), Record(client=U128, incarnation=U64, pid=U32,
                             display=Sized(2, 128, is_text))),
    wire.BIND: ((), Record(key=U128)),
    wire.CREDENTIAL: (('credential',), Record(
        group_count_is_possible, uid=U32, gid=U32, count=U32,
        groups=Follow(groups_that_follow, U32))),
    wire.CANCEL: (('slot', 'request'), NOTHING),
    wire.BREAK_ACK: (('request',), Record(open=FIDS)),
    wire.RENEW: (('request',), NOTHING),
    wire.CREDITS_TAKEN: (('request',), NOTHING),
    wire.DETACH: ((), NOTHING),
    wire.PROBE: (('request',), NOTHING),
    wire.TOKEN: (('credential',), Record(token=TOKEN, proof=Raw(64))),
    wire.ATTACHED: (('credits', 'request'), Record(
        server=U64, boot_verifier=U64, bind_key=U128, lease_milliseconds=U32, resumed=BOOL,
        renewed=BOOL, challenge=Raw(32))),
    wire.BOUND: ((), NOTHING),
    wire.BREAK: (('request',), Record(hints_fit, items=Many(4, BREAK_ITEM, most=4096))),
    wire.RENEWED: (('request',), Record(renewed=BOOL)),
    wire.CREDITS: (('credits', 'request'), NOTHING),
    wire.GOODBYE: (('status',), Record(reason=Sized(2, 200, is_text))),
    wire.PROBED: (('request',), NOTHING),
    wire.LANE: ((), NOTHING),
    wire.REGION: ((), Record(handle=U32, begins=BOOL)),
    wire.BELL: ((), NOTHING),
    wire.LANE_OPEN: ((), NOTHING),
    wire.REGION_OPEN: ((), Record(handle=U32, is_open=BOOL)),
    wire.RUNG: ((), NOTHING),
}
HEADER_FIELDS = ('status', 'credits', 'request', 'slot', 'credential')


def _row(kind):
    if kind not in MESSAGES:
        raise Malformed(f'frames of kind {kind} have no session message')
    return MESSAGES[kind]


def decode_message(header, data):
    """The fields of a session message. Raises `Malformed`, also for a header field that the message
    does not use."""
    used, layout = _row(header['kind'])
    set_in_vain = [name for name in HEADER_FIELDS if header[name] and name not in used]
    handle = header['credential']
    if set_in_vain or 'credential' in used and not 1 <= handle <= CREDENTIALS_MAX:
        raise Malformed(f'{set_in_vain} of a header, credential {handle}')
    return decode(layout, data)


def encode_message(kind, message):
    """The bytes of a session message. Raises `Malformed`."""
    return encode(_row(kind)[1], message)
