//! Values and their bytes, which the tests of the services share.
//!
//! A golden table has a row for each procedure: number, name, a call and its bytes, an answer and
//! its bytes. The bytes were worked out from the definitions of AFS, not from this crate.

use std::fmt::Debug;

use crate::structs::*;
use crate::xdr::{Chars, Xdr, XdrError, XdrList, XdrReader};
use crate::{ProcedureRow, RpcError, RpcMessage};

/// The bytes of hexadecimal digits, blanks ignored.
pub(super) fn unhex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> =
        text.bytes().filter_map(|digit| char::from(digit).to_digit(16)).map(|d| d as u8).collect();
    assert!(digits.len().is_multiple_of(2), "{text}");
    digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect()
}

pub(super) fn hex(bytes: &[u8]) -> String {
    let word = |word: &[u8]| word.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    bytes.chunks(4).map(word).collect::<Vec<_>>().join(" ")
}

/// Words that count up.
pub(super) fn words(from: u32, to: u32) -> String {
    (from..=to).map(|word| format!("{word:08x} ")).collect()
}

/// Numbers that count up.
pub(super) fn count<T: TryFrom<u32>, const N: usize>(from: u32) -> [T; N] {
    std::array::from_fn(|no| T::try_from(from + no as u32).ok().unwrap())
}

/// A word for each character, `all` in number.
pub(super) fn char_words(text: &str, all: usize) -> String {
    let used: String = text.bytes().map(|byte| format!("000000{byte:02x} ")).collect();
    used + &"00000000 ".repeat(all - text.len())
}

pub(super) fn chars<const N: usize>(text: &str) -> Chars<N> {
    Chars::new(text.as_bytes()).unwrap()
}

pub(super) fn list<T, const MAX: usize>(all: impl Into<Vec<T>>) -> XdrList<T, MAX> {
    XdrList::new(all.into()).unwrap()
}

pub(super) fn text<const MAX: usize>(text: &str) -> crate::xdr::XdrBytes<MAX> {
    crate::xdr::XdrBytes::new(text).unwrap()
}

/// The string `ab`.
pub(super) const AB: &str = "00000002 61620000";
/// The string `wxyz`.
pub(super) const WXYZ: &str = "00000004 7778797a";
/// The empty string or list.
pub(super) const EMPTY: &str = "00000000";

pub(super) const FID: AfsFid = AfsFid { volume: 0x2000_0007, vnode: 3, unique: 5 };
pub(super) const FID_HEX: &str = "20000007 00000003 00000005";
pub(super) const DIR: AfsFid = AfsFid { volume: 0x2000_0007, vnode: 1, unique: 1 };
pub(super) const DIR_HEX: &str = "20000007 00000001 00000001";

pub(super) const CALLBACK: CallBack = CallBack { version: 1, expiration: 14400, kind: 2 };
pub(super) const CALLBACK_HEX: &str = "00000001 00003840 00000002";

pub(super) const SYNC: VolSync = VolSync { created: 0x6500_0000, spares: [0; 5] };
pub(super) const SYNC_HEX: &str = "65000000 00000000 00000000 00000000 00000000 00000000";

/// Each member has the number of its place, so that two that are exchanged are noticed.
pub(super) fn status_from(first: u32) -> FetchStatus {
    let at = |place: u32| first + place;
    FetchStatus {
        interface_version: at(0),
        file_type: at(1),
        link_count: at(2),
        length_low: at(3),
        data_version_low: at(4),
        author: at(5),
        owner: at(6),
        caller_access: at(7),
        anonymous_access: at(8),
        mode: at(9),
        parent_vnode: at(10),
        parent_unique: at(11),
        residency_mask: at(12),
        client_mod_time: at(13),
        server_mod_time: at(14),
        group: at(15),
        sync_counter: at(16),
        data_version_high: at(17),
        lock_count: at(18),
        length_high: at(19),
        error_code: at(20),
    }
}

pub(super) fn status() -> FetchStatus {
    status_from(1)
}

/// The bytes of [`status_from`].
pub(super) fn status_hex(first: u32) -> String {
    words(first, first + 20)
}

pub(super) const STORE: StoreStatus = StoreStatus {
    mask: 0x0000_040f,
    client_mod_time: 0x6500_0001,
    owner: 7,
    group: 8,
    mode: 0o644,
    segment_size: 9,
};
pub(super) const STORE_HEX: &str = "0000040f 65000001 00000007 00000008 000001a4 00000009";

/// A UUID with bytes whose sign is extended.
pub(super) const UUID: AfsUuid = AfsUuid([
    0x80, 0x11, 0x22, 0x33, 0x84, 0x55, 0x86, 0x77, 0x88, 0x19, 0xaa, 0x1b, 0xcc, 0x1d, 0xee, 0x7f,
]);
pub(super) const UUID_HEX: &str = "80112233 00008455 00008677 ffffff88 00000019 ffffffaa 0000001b \
    ffffffcc 0000001d ffffffee 0000007f";

/// Checks a value's bytes in both directions, and that no part of them is enough.
pub(super) fn check_value<T: Xdr + Debug + PartialEq>(value: &T, bytes: &str) {
    let bytes = unhex(bytes);
    assert_eq!(hex(&value.to_xdr()), hex(&bytes));
    assert_eq!(T::from_xdr(&bytes).as_ref(), Ok(value));
    assert!(T::LEAST_BYTES <= bytes.len());
    for length in 0..bytes.len() {
        assert_eq!(T::from_xdr(&bytes[..length]), Err(XdrError::Truncated), "{length} bytes");
    }
}

/// A row of a golden table: what a message is, and its bytes.
pub(super) fn check_message<M: RpcMessage + Debug + PartialEq>(
    number: u32,
    name: &str,
    message: &M,
    bytes: &[String],
    malformed: fn(XdrError) -> RpcError,
) {
    let bytes = unhex(&bytes.concat());
    assert_eq!(message.procedure(), number);
    assert_eq!((message.row().number, message.row().name), (number, name));
    assert_eq!(hex(&message.to_bytes()), hex(&bytes), "{name}");
    let request = [&number.to_be_bytes()[..], &bytes].concat();
    assert_eq!(message.to_request(), request);
    let mut from = XdrReader::new(&bytes);
    assert_eq!(M::decode(number, &mut from).as_ref(), Ok(message), "{name}");
    assert_eq!(from.rest(), b"", "{name}");
    // The stream of a call begins where its arguments end.
    let longer = [&bytes[..], b"stream"].concat();
    let mut from = XdrReader::new(&longer);
    assert_eq!(M::decode(number, &mut from).as_ref(), Ok(message), "{name}");
    assert_eq!(from.rest(), b"stream", "{name}");
    for length in 0..bytes.len() {
        let refused = M::decode(number, &mut XdrReader::new(&bytes[..length]));
        assert_eq!(refused, Err(malformed(XdrError::Truncated)), "{name}: {length} bytes");
    }
    // Any word may be a count that the bytes do not have. It may be accepted where it is none.
    for at in (0..bytes.len()).step_by(4) {
        let mut lie = bytes.clone();
        lie[at..at + 4].fill(0xff);
        drop(M::decode(number, &mut XdrReader::new(&lie)));
    }
}

/// Checks that a golden table has a row for each procedure, in their order.
pub(super) fn check_all(rows: &[u32], table: &[ProcedureRow]) {
    assert_eq!(rows, table.iter().map(|row| row.number).collect::<Vec<_>>());
    assert!(rows.is_sorted());
}

/// Rows `NUMBER NAME { call } = [bytes] -> { answer } = [bytes];`.
macro_rules! golden {
    ($calls:ident $answers:ident $(
        $number:literal $name:ident { $($call:tt)* } = [$($call_hex:expr),* $(,)?]
            -> { $($answer:tt)* } = [$($answer_hex:expr),* $(,)?];
    )*) => {{
        $(
            crate::tests::fixtures::check_message(
                $number,
                stringify!($name),
                &$calls::$name { $($call)* },
                &[$( $call_hex.to_string() ),*],
                crate::RpcError::Arguments,
            );
            crate::tests::fixtures::check_message(
                $number,
                stringify!($name),
                &$answers::$name { $($answer)* },
                &[$( $answer_hex.to_string() ),*],
                crate::RpcError::Results,
            );
        )*
        let table = <$calls as crate::RpcMessage>::PROCEDURES;
        crate::tests::fixtures::check_all(&[$($number),*], table);
        assert_eq!(<$answers as crate::RpcMessage>::PROCEDURES, table);
    }};
}

pub(super) use golden;

/// The procedures of a service that have a stream, by place.
pub(super) fn streams<M: RpcMessage>() -> (Vec<&'static str>, Vec<&'static str>) {
    let at = |place| {
        let rows = M::PROCEDURES.iter().filter(move |row| row.stream == place);
        rows.map(|row| row.name).collect()
    };
    (at(crate::StreamPlace::BehindArguments), at(crate::StreamPlace::BeforeResults))
}
