"""check_vectors.py [DIR]: compares this implementation with the golden vectors in DIR [default:
crates/dafs/golden] and with the tables of docs/spec/protocol.md.

Each line of each file is decoded into values and encoded into the same bytes again, and has the
values of `expected.py` if it is named there. Each shorter form, each with a byte more and each with
one bit of a byte turned is refused, or stands for other values. Each call and each answer of the
page has a layout here and a vector there, and nothing else has. Prints how many of each it checked;
ends with 1 if anything is otherwise.
"""

import collections
import os
import re
import sys

import answers
import calls
import messages
import wire
from expected import EXPECTED
from faults import FAULTS
from fields import U16, Malformed, decode as decode_bytes

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', '..')
FAULTS_OF_SERVERS = os.path.join(ROOT, 'crates', 'types', 'src', 'fault.rs')
PAGE = os.path.join(ROOT, 'docs', 'spec', 'protocol.md')


def of_number(decode, encode):
    """A codec of vectors that begin with the number of a call or an answer, in two bytes."""
    def values(head, message, payload):
        number = decode_bytes(U16, head)
        return number, decode(number, message, payload)

    def again(head, decoded, payload):
        number, inner = decoded
        return head, encode(number, inner, payload)
    return values, again


def frame_values(head, message, payload):
    """Header, message and payload. The lengths and the checksum stand for nothing else."""
    header = wire.decode_header(head)
    wire.check_frame(header, message, payload)
    return {name: header[name] for name in header if name != 'checksum'}, message


def frame_again(head, decoded, payload):
    header, message = decoded
    fields = {name: header[name] for name in header
              if name not in ('kind', 'flags', 'checksum', 'message_bytes', 'payload_bytes')}
    sums = header['flags'] & (wire.CHECKSUM | wire.PAYLOAD_CHECKSUM)
    features = (wire.CHECKSUMS if sums & wire.CHECKSUM else 0) \
        | (wire.PAYLOAD_CHECKSUMS if sums & wire.PAYLOAD_CHECKSUM else 0)
    frame = wire.encode_frame(header['kind'], message, payload, features,
                              flags=header['flags'] & ~sums, **fields)
    return frame[:wire.HEADER_BYTES], frame[wire.HEADER_BYTES:len(frame) - len(payload)]


def message_values(head, message, payload):
    """Header and fields of a session message."""
    header, _ = frame_values(head, message, payload)
    return header, messages.decode_message(header, message)


def message_again(head, decoded, payload):
    header, inner = decoded
    return frame_again(head, (header, messages.encode_message(header['kind'], inner)), payload)


def without_head(decode, encode):
    """A codec of vectors that are one run of bytes."""
    def values(head, message, payload):
        if head or payload:
            raise Malformed('there is more than one run of bytes')
        return decode(message)

    def again(head, decoded, payload):
        return head, encode(decoded)
    return values, again


FAMILIES = {
    'hellos': without_head(wire.decode_hello, wire.encode_hello),
    'frames': (frame_values, frame_again),
    'messages': (message_values, message_again),
    'calls': of_number(calls.decode_call, calls.encode_call),
    'answers': of_number(answers.decode_answer, answers.encode_answer),
    'records': without_head(answers.decode_record, lambda record: answers.encode_record(*record)),
}


def load(path):
    """Name, head, message and payload of each line of a file of vectors."""
    with open(path, encoding='ascii') as file:
        for line in file:
            if line.strip() and not line.startswith('#'):
                name, *parts = line.split()
                yield name, *(b'' if part == '-' else bytes.fromhex(part) for part in parts)


def damaged(data):
    """Each shorter form of some bytes, one that is longer, and each with a bit turned."""
    for at, byte in enumerate(data):
        yield data[:at]
        yield data[:at] + bytes([byte ^ 1 << at % 8]) + data[at + 1:]
    yield data + b'\0'


def damages(head, message, payload):
    """Each damaged form of the parts of a vector."""
    yield from ((other, message, payload) for other in damaged(head))
    yield from ((head, other, payload) for other in damaged(message))
    yield from ((head, message, other) for other in (payload[:-1], payload + b'\0')
                if other != payload)


def has(got, wanted):
    """Whether a value is the expected one, in the fields that the expected one names."""
    if isinstance(wanted, dict):
        return all(has(got[name], value) for name, value in wanted.items())
    if isinstance(wanted, (list, tuple)):
        return len(got) == len(wanted) and all(map(has, got, wanted))
    return got == wanted


def inner(family, decoded):
    """The fields of a decoded vector without its number, header or message beside them."""
    match family:
        case 'hellos':
            return decoded
        case 'frames':
            return decoded[0]
        case _:
            return decoded[1]


def check_vector(family, name, vector):
    """How many damaged forms were refused. Raises `Malformed` or `AssertionError`."""
    values, again = FAMILIES[family]
    decoded = values(*vector)
    head, message, payload = vector
    wanted = EXPECTED[family].get(name, {})
    assert has(inner(family, decoded), wanted), f'{inner(family, decoded)} has not {wanted}'
    assert again(head, decoded, payload) == (head, message), 'other bytes come of its values'
    refused = 0
    for other in damages(*vector):
        try:
            same = values(*other) == decoded
        except Malformed:
            refused += 1
        else:
            assert not same, f'{[part.hex() for part in other]} stands for the same'
    return refused


def table(title):
    """Number and name of each row of the page's table below a heading. A row may be for several."""
    with open(PAGE, encoding='utf-8') as file:
        section = re.search(rf'^#+ {title}$(.*?)(^#|\Z)', file.read(), re.M | re.S).group(1)
    row = r'^\| ([\d, ]+) \| ([A-Z]\w+(?:, [A-Z]\w+)*) \|'
    for numbers, names in re.findall(row, section, re.M):
        yield from zip(map(int, numbers.split(',')), names.replace(' ', '').split(','),
                       strict=True)


def faults_of_servers():
    """Number and name of each fault that servers have."""
    with open(FAULTS_OF_SERVERS, encoding='utf-8') as file:
        for name, number in re.findall(r'^ {4}(\w+) = (\d+),$', file.read(), re.M):
            yield int(number), name


def check_table(title, rows, seen=None):
    """Complaints about rows that are on the page or here only, or have no vector."""
    page = list(table(title))
    for row in sorted(set(page) ^ set(rows)):
        yield f'{title}: {row} is not both on the page and here'
    for number, count in collections.Counter(number for number, _ in page).items():
        if count > 1:
            yield f'{title}: the page has number {number} more than once'
    for number, name in rows:
        if seen is not None and number not in seen:
            yield f'{title}: {name} has no vector'


def check_family(family, path, complaints):
    """Checks the vectors of a file and prints how many. Returns the numbers that they have."""
    count = refused = forms = 0
    names, numbers = set(EXPECTED[family]), set()
    for name, *vector in load(path):
        names.discard(name)
        count += 1
        forms += sum(1 for _ in damages(*vector))
        head = vector[0]
        numbers.add(head[6] if family == 'messages'
                    else int.from_bytes(head[:2], 'little') & ~calls.DELEGATED)
        try:
            refused += check_vector(family, name, vector)
        except (Malformed, AssertionError) as error:
            complaints.append(f'{family} {name}: {error}')
    complaints += [f'{family}: the expected {name} is not there' for name in sorted(names)]
    print(f'{family}: {count} vectors, {len(EXPECTED[family])} with given values, {refused} of '
          f'{forms} damaged forms refused, the others have other values')
    return numbers


def main(directory):
    """Checks everything and returns the complaints."""
    files = {name.removesuffix('.txt') for name in os.listdir(directory) if name.endswith('.txt')}
    complaints = [f'{family} is not known here, or has no file'
                  for family in sorted(files ^ set(FAMILIES))]
    seen = {family: check_family(family, os.path.join(directory, f'{family}.txt'), complaints)
            for family in sorted(files & set(FAMILIES))}
    for title, family, rows in (('Calls', 'calls', calls.CALLS),
                                ('Answers', 'answers', answers.ANSWERS)):
        complaints += check_table(title, [(number, row[0]) for number, row in rows.items()],
                                  seen.get(family, ()))
    complaints += check_table('Faults', list(FAULTS.items()))
    # No vector has every fault, so the page is compared with the servers' own list.
    if set(faults_of_servers()) != set(FAULTS.items()):
        complaints.append(f'Faults: {FAULTS_OF_SERVERS} has others')
    complaints += [f'messages: kind {kind} has no vector'
                   for kind in sorted(set(messages.MESSAGES) - seen.get('messages', set()))]
    return complaints


if __name__ == '__main__':
    found = main(*sys.argv[1:] or [os.path.join(ROOT, 'crates', 'dafs', 'golden')])
    print(*found, sep='\n', end='\n' if found else '')
    sys.exit(1 if found else 0)
