"""Layouts of values on the wire, by which both directions are made.

Model: a layout puts a value behind the bytes that are there and gets it from the front of the bytes
that are left. `Record` is one of fields that follow each other, and its value is a dictionary. A
length that stands before its bytes (fixed part first, variable parts behind) is a field of its own
in the layout and no value: it is made from the value, and checked against it. Each value has one
form, so `get` raises `Malformed` for what `put` would never write.
"""


class Malformed(Exception):
    """Bytes that are no form of any value, or a value that breaks a limit of the protocol."""


class Reader:
    """The bytes of a message that were not read yet."""

    def __init__(self, data):
        self.data, self.at = data, 0

    def take(self, count):
        """The next `count` bytes. Raises `Malformed` if there are fewer."""
        part = self.data[self.at:self.at + count]
        if len(part) != count:
            raise Malformed(f'{count} bytes are wanted, {len(part)} are left')
        self.at += count
        return part

    def end(self):
        """Raises `Malformed` if anything follows the last field."""
        if self.at != len(self.data):
            raise Malformed(f'{len(self.data) - self.at} bytes follow the last field')


def encode(layout, value):
    """The bytes of a value. Raises `Malformed`."""
    out = bytearray()
    layout.put(out, value)
    return bytes(out)


def decode(layout, data):
    """The value that all of `data` stands for. Raises `Malformed`."""
    reader = Reader(data)
    value = layout.get(reader)
    reader.end()
    return value


class Int:
    """A number in little-endian order, from `low` to `high` (ends included) if they are given."""

    def __init__(self, size, signed=False, low=None, high=None):
        self.size, self.signed, self.low, self.high = size, signed, low, high

    def check(self, value):
        """The value. Raises `Malformed` if it is out of its bounds."""
        if self.low is not None and value < self.low or self.high is not None and value > self.high:
            raise Malformed(f'{value} is not within {self.low} and {self.high}')
        return value

    def put(self, out, value):
        try:
            out += self.check(value).to_bytes(self.size, 'little', signed=self.signed)
        except OverflowError as error:
            raise Malformed(str(error)) from error

    def get(self, reader):
        return self.check(int.from_bytes(reader.take(self.size), 'little', signed=self.signed))


class Bits(Int):
    """A number in which only some bits may be set."""

    def __init__(self, size, known):
        super().__init__(size)
        self.known = known

    def check(self, value):
        if value & ~self.known:
            raise Malformed(f'{value:#x} has bits beside {self.known:#x}')
        return value


class Raw:
    """Always so many bytes."""

    def __init__(self, size):
        self.size = size

    def put(self, out, value):
        if len(value) != self.size:
            raise Malformed(f'{len(value)} bytes in place of {self.size}')
        out += value

    def get(self, reader):
        return reader.take(self.size)


def any_bytes(value):
    """Whether bytes may have these values: always."""
    return True


def is_text(value):
    """Whether these bytes are text in UTF-8."""
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True


def is_name(value):
    """Whether these bytes may name an entry of a directory, or a volume."""
    return 0 < len(value) < 256 and not set(value) & {0, ord('/')} and value not in (b'.', b'..')


class Rest:
    """Bytes in the variable part of a record. The record's field `<name of this field>_length` has
    their number."""

    def __init__(self, allows=any_bytes):
        self.allows = allows

    def check(self, value):
        """The value. Raises `Malformed` if these bytes are not allowed here."""
        if not self.allows(value):
            raise Malformed(f'{value!r} is not allowed here')
        return value


class Items:
    """Values in the variable part of a record. The record's field `<name of this field>_length` has
    their number."""

    def __init__(self, layout):
        self.layout = layout


class Length:
    """The number of bytes or items of a later field of the record, at most `most`. `flags` are bits
    beside the length; the record's field `<name of the later field>_flags` is their value."""

    def __init__(self, size, most, flags=0):
        self.number, self.most, self.flags = Int(size), most, flags


class Sized:
    """A length and at most `most` bytes."""

    def __init__(self, size, most, allows=any_bytes):
        self.length, self.bytes = Int(size, high=most), Rest(allows)

    def put(self, out, value):
        self.length.put(out, len(value))
        out += self.bytes.check(value)

    def get(self, reader):
        return self.bytes.check(reader.take(self.length.get(reader)))


class Many:
    """A count and at most `most` values."""

    def __init__(self, size, layout, most=None):
        self.count, self.layout = Int(size, high=most), layout

    def put(self, out, value):
        self.count.put(out, len(value))
        for one in value:
            self.layout.put(out, one)

    def get(self, reader):
        return [self.layout.get(reader) for _ in range(self.count.get(reader))]


class Follow:
    """Values whose number follows from the fields before: `count` is a function of them."""

    def __init__(self, count, layout):
        self.count, self.layout = count, layout


class If:
    """A value that is there only if `condition`, a function of the fields before it, says so. None
    if it is not."""

    def __init__(self, condition, layout):
        self.condition, self.layout = condition, layout


class Maybe:
    """A byte, 1 and a value, or 0 and nothing (None)."""

    def __init__(self, layout):
        self.layout = layout

    def put(self, out, value):
        BOOL.put(out, int(value is not None))
        if value is not None:
            self.layout.put(out, value)

    def get(self, reader):
        return self.layout.get(reader) if BOOL.get(reader) else None


class Variant:
    """A number of one byte and the layout that it chooses. The value is a pair."""

    def __init__(self, layouts):
        self.layouts = layouts

    def layout(self, number):
        """The layout for a number. Raises `Malformed` if there is none."""
        if number not in self.layouts:
            raise Malformed(f'there is no choice {number}')
        return self.layouts[number]

    def put(self, out, value):
        number, inner = value
        layout = self.layout(number)
        U8.put(out, number)
        layout.put(out, inner)

    def get(self, reader):
        number = U8.get(reader)
        return number, self.layout(number).get(reader)


class Record:
    """Fields that follow each other, by name. `rules` are functions that say whether a record may
    be (`Malformed` if not)."""

    def __init__(self, *rules, **fields):
        self.rules, self.fields = rules, fields

    def with_rules(self, *rules):
        """The same fields with further rules."""
        return Record(*self.rules, *rules, **self.fields)

    def check(self, value):
        """Raises `Malformed` if a rule forbids the record."""
        for rule in self.rules:
            if not rule(value):
                raise Malformed(f'{rule.__name__}: {value}')

    def names(self):
        """The names of the fields that a value has."""
        for name, layout in self.fields.items():
            if not isinstance(layout, Length):
                yield name
            elif layout.flags:
                yield name.removesuffix('_length') + '_flags'

    def put(self, out, value):
        if set(value) != set(self.names()):
            raise Malformed(f'the fields are {sorted(self.names())}, not {sorted(value)}')
        self.check(value)
        for name, layout in self.fields.items():
            match layout:
                case Length():
                    of = name.removesuffix('_length')
                    length, flags = len(value[of]), value.get(f'{of}_flags', 0)
                    if length > layout.most or flags & ~layout.flags:
                        raise Malformed(f'{name} {length}, flags {flags:#x}')
                    layout.number.put(out, length | flags)
                case Rest():
                    out += layout.check(value[name])
                case Items():
                    for one in value[name]:
                        layout.layout.put(out, one)
                case Follow():
                    if len(value[name]) != layout.count(value):
                        raise Malformed(f'{len(value[name])} {name}, not {layout.count(value)}')
                    for one in value[name]:
                        layout.layout.put(out, one)
                case If():
                    if bool(layout.condition(value)) != (value[name] is not None):
                        raise Malformed(f'{name} is there or not, against the other fields')
                    if value[name] is not None:
                        layout.layout.put(out, value[name])
                case _:
                    layout.put(out, value[name])

    def get(self, reader):
        value, lengths = {}, {}
        for name, layout in self.fields.items():
            match layout:
                case Length():
                    of, number = name.removesuffix('_length'), layout.number.get(reader)
                    lengths[of] = number & ~layout.flags
                    if lengths[of] > layout.most:
                        raise Malformed(f'{name} {lengths[of]}')
                    if layout.flags:
                        value[f'{of}_flags'] = number & layout.flags
                case Rest():
                    value[name] = layout.check(reader.take(lengths[name]))
                case Items():
                    value[name] = [layout.layout.get(reader) for _ in range(lengths[name])]
                case Follow():
                    value[name] = [layout.layout.get(reader) for _ in range(layout.count(value))]
                case If():
                    there = layout.condition(value)
                    value[name] = layout.layout.get(reader) if there else None
                case _:
                    value[name] = layout.get(reader)
        self.check(value)
        return value


U8, U16, U32, U64, U128 = (Int(size) for size in (1, 2, 4, 8, 16))
I32, I64 = Int(4, signed=True), Int(8, signed=True)
BOOL = Int(1, high=1)
NOTHING = Record()


def choice(last, first=1):
    """One byte, from `first` to `last`."""
    return Int(1, low=first, high=last)
