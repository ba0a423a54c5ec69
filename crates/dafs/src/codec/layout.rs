//! Layouts: each says once, for both directions, which bytes stand for a value.
//!
//! Model: a [`Layout`] puts a value into a message and gets it out again. [`Plain`] is that of the
//! values with only one form. The others are told what they check: the most bytes, and the name
//! that an error says. [`record!`] makes the plain layout of a struct whose fields follow each
//! other; [`messages!`] makes both directions of a family of calls or answers from a row for each.
//! A value whose parts do not follow each other (lengths first, bits for what is absent) has its
//! layout written out.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use bytes::Bytes;
use types::limits::{MESSAGE_BYTES_MAX, NAME_BYTES_MAX};
use types::{
    AllocateMode, Beside, BootVerifier, BreakReason, ByteRange, Cookie, DataUse, DataVersion, Fid,
    Lending, LockFamily, LockMode, LockOwner, Name, OpenId, PartitionNo, PersistHow, PrincipalId,
    PrincipalKind, RemoveWhat, RenameMode, Revision, RunKey, Secret, SeekWhat, ServerId, ShareKey,
    SiteKind, TaskState, Timestamp, VnodeNo, VnodeSlots, VolumeId, VolumeKind, WhichVolume,
    XattrMode,
};

use crate::WireError;
use crate::wire::{FieldReader, Writer};

/// The bytes that stand for a `T`.
pub(crate) trait Layout<T> {
    /// Appends the value. The writer remembers a limit that it breaks.
    fn put(&self, to: &mut Writer, value: &T);
    /// Takes a value off the front.
    fn get(&self, from: &mut FieldReader<'_>) -> Result<T, WireError>;
}

/// The layout of values with one form only.
pub(crate) struct Plain;

/// A byte that is 0 or 1, by the name that an error says.
pub(crate) struct Flag(pub &'static str);

impl Layout<bool> for Flag {
    fn put(&self, to: &mut Writer, value: &bool) {
        to.bool(*value);
    }

    fn get(&self, from: &mut FieldReader<'_>) -> Result<bool, WireError> {
        from.bool(self.0)
    }
}

/// A length and so many bytes, or a count and so many elements.
macro_rules! lengths {
    ($($bytes:ident, $list:ident: $length:ident, $size:literal;)*) => {$(
        #[doc = concat!("A length of ", $size, " and so many bytes: what they are, and most.")]
        #[derive(Clone, Copy)]
        pub(crate) struct $bytes(pub &'static str, pub usize);

        impl $bytes {
            fn bytes<'m>(&self, from: &mut FieldReader<'m>) -> Result<&'m [u8], WireError> {
                let length = from.$length(self.0, self.1)?;
                from.bytes(length)
            }

            pub(crate) fn put_bytes(&self, to: &mut Writer, bytes: &[u8]) {
                to.$length(self.0, bytes.len(), self.1).raw(bytes);
            }
        }

        impl Layout<Bytes> for $bytes {
            fn put(&self, to: &mut Writer, value: &Bytes) {
                self.put_bytes(to, value);
            }

            fn get(&self, from: &mut FieldReader<'_>) -> Result<Bytes, WireError> {
                self.bytes(from).map(Bytes::copy_from_slice)
            }
        }

        impl Layout<Secret> for $bytes {
            fn put(&self, to: &mut Writer, value: &Secret) {
                self.put_bytes(to, value.reveal());
            }

            fn get(&self, from: &mut FieldReader<'_>) -> Result<Secret, WireError> {
                self.bytes(from).map(|bytes| bytes.to_vec().into())
            }
        }

        impl Layout<String> for $bytes {
            fn put(&self, to: &mut Writer, value: &String) {
                self.put_bytes(to, value.as_bytes());
            }

            fn get(&self, from: &mut FieldReader<'_>) -> Result<String, WireError> {
                let text = std::str::from_utf8(self.bytes(from)?);
                text.map(str::to_owned).map_err(|_| WireError::BadText)
            }
        }

        #[doc = concat!("A count of ", $size, ": what, at most, least bytes of one, its layout.")]
        pub(crate) struct $list<L>(pub &'static str, pub usize, pub usize, pub L);

        impl<T, L: Layout<T>> Layout<Vec<T>> for $list<L> {
            fn put(&self, to: &mut Writer, value: &Vec<T>) {
                to.$length(self.0, value.len(), self.1);
                value.iter().for_each(|one| self.3.put(to, one));
            }

            fn get(&self, from: &mut FieldReader<'_>) -> Result<Vec<T>, WireError> {
                let count = from.$length(self.0, self.1)?;
                get_all(from, count, self.2, &self.3)
            }
        }
    )*};
}

lengths! {
    Short, ShortList: length16, "two bytes";
    Long, LongList: length32, "four bytes";
}

/// `count` elements, each of which has `least` bytes or more.
pub(crate) fn get_all<T>(
    from: &mut FieldReader<'_>,
    count: usize,
    least: usize,
    layout: &impl Layout<T>,
) -> Result<Vec<T>, WireError> {
    from.check_room(count, least)?;
    (0..count).map(|_| layout.get(from)).collect()
}

/// A page of a list: a count, whether it is the last page, the elements. Elements that do not fit
/// into the message are omitted, and then it is not the last page.
pub(crate) fn put_page<T>(
    to: &mut Writer,
    all: &[T],
    end: bool,
    bytes_of: impl Fn(&T) -> usize,
    layout: &impl Layout<T>,
) {
    let fit = fitting(all, bytes_of);
    to.u32(fit as u32).bool(end && fit == all.len());
    all[..fit].iter().for_each(|one| layout.put(to, one));
}

/// A page of elements of `least` bytes or more, and whether it is the last.
pub(crate) fn get_page<T>(
    from: &mut FieldReader<'_>,
    least: usize,
    layout: &impl Layout<T>,
) -> Result<(Vec<T>, bool), WireError> {
    let (count, end) = (from.u32()? as usize, from.bool("end")?);
    Ok((get_all(from, count, least, layout)?, end))
}

/// Most bytes of an answer besides its list.
const HEAD_BYTES: usize = 32;

/// Number of the first elements that fit into a message.
pub(crate) fn fitting<T>(all: &[T], bytes_of: impl Fn(&T) -> usize) -> usize {
    let mut room = MESSAGE_BYTES_MAX - HEAD_BYTES;
    let fits = |one: &&T| {
        let bytes = bytes_of(one);
        let fits = bytes <= room;
        room = room.saturating_sub(bytes);
        fits
    };
    all.iter().take_while(fits).count()
}

/// Values that the wire has a field for.
macro_rules! fields {
    ($($kind:ty: $field:ident),* $(,)?) => {$(
        impl Layout<$kind> for Plain {
            fn put(&self, to: &mut Writer, value: &$kind) {
                to.$field(*value);
            }

            fn get(&self, from: &mut FieldReader<'_>) -> Result<$kind, WireError> {
                from.$field()
            }
        }
    )*};
}

fields!(u8: u8, u16: u16, u32: u32, u64: u64, u128: u128, Fid: fid, Timestamp: timestamp);

/// Numbers with a type of their own.
macro_rules! numbers {
    ($($kind:ident: $field:ident),* $(,)?) => {$(
        impl Layout<$kind> for Plain {
            fn put(&self, to: &mut Writer, value: &$kind) {
                to.$field(value.0);
            }

            fn get(&self, from: &mut FieldReader<'_>) -> Result<$kind, WireError> {
                from.$field().map($kind)
            }
        }
    )*};
}

numbers! {
    BootVerifier: u64, Cookie: u64, DataVersion: u64, LockOwner: u64, OpenId: u64,
    PartitionNo: u32,
    Revision: u64, RunKey: u128, ServerId: u128, VnodeNo: u64, VolumeId: u64,
}

/// Enums whose discriminants are bytes on the wire, with the name that an error says.
macro_rules! choices {
    ($($kind:ident: $what:literal, $from_wire:expr;)*) => {$(
        impl Layout<$kind> for Plain {
            fn put(&self, to: &mut Writer, value: &$kind) {
                to.u8(*value as u8);
            }

            fn get(&self, from: &mut FieldReader<'_>) -> Result<$kind, WireError> {
                from.choice($what, $from_wire)
            }
        }
    )*};
}

/// The decoder of an enum whose discriminants are wire values, from the list of its variants.
macro_rules! one_of {
    ($kind:ident: $($variant:ident),*) => {
        |byte| [$($kind::$variant),*].into_iter().find(|choice| *choice as u8 == byte)
    };
}

choices! {
    AllocateMode: "allocate mode",
        one_of!(AllocateMode: Extend, KeepSize, PunchHole, ZeroExtend, ZeroKeepSize);
    Beside: "what is done beside", Beside::from_wire;
    DataUse: "use of data", DataUse::from_wire;
    BreakReason: "reason", one_of!(BreakReason: Data, Status, Removed, Pressure, Recall);
    Lending: "lending", one_of!(Lending: Read, Write, Join);
    LockFamily: "lock family", one_of!(LockFamily: Posix, Flock);
    LockMode: "lock mode", lock_mode;
    PersistHow: "how a lock is made persistent", one_of!(PersistHow: New, Claims, Repairs);
    PrincipalKind: "kind of principal", PrincipalKind::from_wire;
    RemoveWhat: "what to remove", one_of!(RemoveWhat: File, Directory, MountPoint);
    RenameMode: "rename mode",
        one_of!(RenameMode: Replace, NoReplace, Exchange, MountPoint, Whiteout);
    SeekWhat: "seek what", one_of!(SeekWhat: Data, Hole);
    SiteKind: "kind of site", SiteKind::from_wire;
    TaskState: "state of a task", TaskState::from_wire;
    VolumeKind: "kind of volume", VolumeKind::from_wire;
    XattrMode: "attribute mode", one_of!(XattrMode: Either, Create, Replace);
}

pub(crate) fn lock_mode(byte: u8) -> Option<LockMode> {
    one_of!(LockMode: Shared, Exclusive)(byte)
}

impl Layout<i64> for Plain {
    fn put(&self, to: &mut Writer, value: &i64) {
        to.raw(&value.to_le_bytes());
    }

    fn get(&self, from: &mut FieldReader<'_>) -> Result<i64, WireError> {
        from.array().map(i64::from_le_bytes)
    }
}

impl<const N: usize> Layout<[u8; N]> for Plain {
    fn put(&self, to: &mut Writer, value: &[u8; N]) {
        to.raw(value);
    }

    fn get(&self, from: &mut FieldReader<'_>) -> Result<[u8; N], WireError> {
        from.array()
    }
}

impl<T> Layout<Box<T>> for Plain
where
    Plain: Layout<T>,
{
    fn put(&self, to: &mut Writer, value: &Box<T>) {
        self.put(to, &**value);
    }

    fn get(&self, from: &mut FieldReader<'_>) -> Result<Box<T>, WireError> {
        self.get(from).map(Box::new)
    }
}

impl Layout<Name> for Plain {
    fn put(&self, to: &mut Writer, value: &Name) {
        to.name_length(value).name(value);
    }

    fn get(&self, from: &mut FieldReader<'_>) -> Result<Name, WireError> {
        let length = from.length16("name bytes", NAME_BYTES_MAX)?;
        from.name(length)
    }
}

/// Whether there is a key, and then the key.
impl Layout<Option<ShareKey>> for Plain {
    fn put(&self, to: &mut Writer, value: &Option<ShareKey>) {
        to.bool(value.is_some()).raw(value.as_ref().map_or(&[], |key| &key.0[..]));
    }

    fn get(&self, from: &mut FieldReader<'_>) -> Result<Option<ShareKey>, WireError> {
        Ok(if from.bool("keyed")? { Some(ShareKey(from.array()?)) } else { None })
    }
}

impl Layout<PrincipalId> for Plain {
    fn put(&self, to: &mut Writer, value: &PrincipalId) {
        to.u32(value.0.cast_unsigned());
    }

    fn get(&self, from: &mut FieldReader<'_>) -> Result<PrincipalId, WireError> {
        Ok(PrincipalId(from.u32()?.cast_signed()))
    }
}

/// The number of a volume; 0: none.
impl Layout<Option<VolumeId>> for Plain {
    fn put(&self, to: &mut Writer, value: &Option<VolumeId>) {
        to.u64(value.map_or(0, |id| id.0));
    }

    fn get(&self, from: &mut FieldReader<'_>) -> Result<Option<VolumeId>, WireError> {
        Ok(Some(VolumeId(from.u64()?)).filter(|id| id.0 != 0))
    }
}

/// In place of a partition: the server chooses one.
const ANY: u32 = u32::MAX;

impl Layout<Option<PartitionNo>> for Plain {
    fn put(&self, to: &mut Writer, value: &Option<PartitionNo>) {
        to.require(*value != Some(PartitionNo(ANY)), "partition", ANY.into())
            .u32(value.map_or(ANY, |partition| partition.0));
    }

    fn get(&self, from: &mut FieldReader<'_>) -> Result<Option<PartitionNo>, WireError> {
        Ok(Some(PartitionNo(from.u32()?)).filter(|partition| partition.0 != ANY))
    }
}

impl Layout<WhichVolume> for Plain {
    fn put(&self, to: &mut Writer, value: &WhichVolume) {
        match value {
            WhichVolume::Id(id) => to.require(id.0 != 0, "volume", 0).u64(id.0).u16(0),
            WhichVolume::Name(name) => to.u64(0).name_length(name).name(name),
        };
    }

    fn get(&self, from: &mut FieldReader<'_>) -> Result<WhichVolume, WireError> {
        let id = from.u64()?;
        let length = from.length16("name bytes", NAME_BYTES_MAX)?;
        match (id, length) {
            (0, length) => from.name(length).map(WhichVolume::Name),
            (id, 0) => Ok(WhichVolume::Id(VolumeId(id))),
            (_, length) => Err(WireError::BadValue { what: "name bytes", value: length as u64 }),
        }
    }
}

/// An address as 16 bytes of IPv6, with IPv4 mapped.
pub(crate) fn octets(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(ip) => ip.to_ipv6_mapped().octets(),
        IpAddr::V6(ip) => ip.octets(),
    }
}

impl Layout<SocketAddr> for Plain {
    fn put(&self, to: &mut Writer, value: &SocketAddr) {
        to.raw(&octets(value.ip())).u16(value.port());
    }

    fn get(&self, from: &mut FieldReader<'_>) -> Result<SocketAddr, WireError> {
        let ip = Ipv6Addr::from(from.array::<16>()?);
        Ok(SocketAddr::new(ip.to_canonical(), from.u16()?))
    }
}

/// No address is all zeros.
impl Layout<Option<IpAddr>> for Plain {
    fn put(&self, to: &mut Writer, value: &Option<IpAddr>) {
        to.require(*value != Some(Ipv6Addr::UNSPECIFIED.into()), "host", 0)
            .raw(&value.map_or([0; 16], octets));
    }

    fn get(&self, from: &mut FieldReader<'_>) -> Result<Option<IpAddr>, WireError> {
        let ip = Ipv6Addr::from(from.array::<16>()?);
        Ok((!ip.is_unspecified()).then(|| ip.to_canonical()))
    }
}

/// The layout that a row names, or the plain one.
macro_rules! layout {
    () => {
        $crate::codec::layout::Plain
    };
    ($layout:expr) => {
        $layout
    };
}

/// The plain layout of a struct whose fields follow each other in this order.
macro_rules! record {
    ($kind:ident { $($field:ident $(: $layout:expr)?),* $(,)? }) => {
        impl Layout<$kind> for Plain {
            fn put(&self, to: &mut Writer, value: &$kind) {
                let $kind { $($field),* } = value;
                $(layout!($($layout)?).put(to, $field);)*
            }

            fn get(&self, from: &mut FieldReader<'_>) -> Result<$kind, WireError> {
                Ok($kind { $($field: layout!($($layout)?).get(from)?),* })
            }
        }
    };
}

/// Both directions of a family of messages. A row is the number of a message and the variant with
/// its fields as they follow each other; a variant in parentheses has one value. `put` and `get`
/// have the arms of the other variants.
macro_rules! messages {
    (
        $kind:ident by $number:ident:
        fn $put:ident($to:ident $(, $put_more:ident: $put_type:ty)?);
        fn $get:ident($from:ident, $no:ident $(, $get_more:ident: $get_type:ty)?);
        { $($row:ident => $variant:ident { $($field:ident $(: $layout:expr)?),* $(,)? })* }
        ( $($value_row:ident => $value:ident $(: $value_layout:expr)?;)* )
        put { $($put_arm:tt)* }
        get { $($get_arm:tt)* }
    ) => {
        pub(crate) fn $put($to: &mut Writer, message: &$kind $(, $put_more: $put_type)?) {
            match message {
                $($kind::$variant { $($field),* } => {
                    $(layout!($($layout)?).put($to, $field);)*
                })*
                $($kind::$value(value) => layout!($($value_layout)?).put($to, value),)*
                $($put_arm)*
            }
        }

        pub(crate) fn $get(
            $from: &mut FieldReader<'_>,
            $no: $number
            $(, $get_more: $get_type)?
        ) -> Result<$kind, WireError> {
            Ok(match $no {
                $($number::$row => $kind::$variant {
                    $($field: layout!($($layout)?).get($from)?),*
                },)*
                $($number::$value_row => $kind::$value(layout!($($value_layout)?).get($from)?),)*
                $($get_arm)*
            })
        }
    };
}

pub(crate) use {layout, messages, record};

record!(ByteRange { start, end });
record!(VnodeSlots { first, count, key });
