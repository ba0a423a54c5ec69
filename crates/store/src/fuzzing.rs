//! The checks of the fuzz targets for data from a partition, also run by plain tests (feature
//! `fuzzing`).
//!
//! Each takes arbitrary bytes and panics if an invariant does not hold. Accidental changes on a
//! disk fail their sum. So the sums are computed here: the checks show that even then the store
//! accepts only what it would have written.

use types::{SessionId, VnodeNo, VolumeId};

use crate::format::header::{TreeHeader, ViewHeader};
use crate::format::record::{self, damaged};
use crate::format::{key, names};
use crate::media::format_file;
use crate::scrub;

/// A record of any kind: decoding refuses it, or encodes the same fields to the same bytes.
///
/// The first byte selects the kind; in its upper half the value is used without a right sum.
pub fn record(bytes: &[u8]) {
    let Some((&choice, fields)) = bytes.split_first() else { return };
    let kind = choice % 0x80 % KINDS;
    let version = if kind == TREE { 2 } else { 1 };
    let value = if choice < 0x80 { record::sealed(KEY, version, fields) } else { fields.to_vec() };
    if let Some(again) = written_again(kind, &value) {
        assert_eq!(again, value, "accepted, and written in another way");
        assert!([USAGE, TREE].contains(&kind) || record::is_sealed(KEY, &value));
    }
}

const KEY: &[u8] = b"key";
const KINDS: u8 = 10;
const TREE: u8 = 4;
const USAGE: u8 = 8;
const VIEW: u8 = 9;

/// Decodes a value and encodes it again; `None`: refused.
fn written_again(kind: u8, value: &[u8]) -> Option<Vec<u8>> {
    match kind {
        0 => {
            let vnode = record::decode_vnode(KEY, VolumeId(1), VnodeNo(2), value).ok()?;
            Some(
                vnode.map_or_else(
                    || record::tombstone(KEY),
                    |vnode| record::encode_vnode(KEY, &vnode),
                ),
            )
        }
        1 => Some(record::encode_bucket(KEY, &record::decode_bucket(KEY, value).ok()?)),
        2 => {
            let sums = record::decode_sums(KEY, value).ok()?;
            let gone = value == record::tombstone(KEY);
            Some(if gone { record::tombstone(KEY) } else { record::encode_sums(KEY, &sums) })
        }
        3 => {
            let found = record::decode_bytes("bytes", KEY, value.to_vec()).ok()?;
            Some(
                found.map_or_else(
                    || record::tombstone(KEY),
                    |bytes| record::encode_bytes(KEY, &bytes),
                ),
            )
        }
        TREE => {
            let header = TreeHeader::decode(KEY, value).ok()?;
            // The first layout has no encoder any more.
            Some(if value[0] == 1 { value.to_vec() } else { header.encode(KEY) })
        }
        5 => Some(record::encode_numbers(KEY, &record::decode_numbers::<2>(KEY, value).ok()?)),
        6 => Some(record::encode_session(
            KEY,
            &record::decode_session(KEY, SessionId(1), value).ok()?,
        )),
        7 => {
            let stored = record::decode_reply(KEY, 1, value).ok()?;
            Some(record::encode_reply(KEY, stored.request, &stored.reply))
        }
        VIEW => Some(ViewHeader::decode(KEY, value).ok()?.encode(KEY)),
        USAGE => Some(record::decode_usage(KEY, value).ok()?.map(i64::to_le_bytes).concat()),
        _ => unreachable!("kinds are counted"),
    }
}

/// A key of any form with any value: the scrub reads it without a panic, and reports a wrong one as
/// damaged.
///
/// The first byte is the length of the key.
pub fn key(bytes: &[u8]) {
    let Some((&length, rest)) = bytes.split_first() else { return };
    let (key, value) = rest.split_at(usize::from(length).min(rest.len()));
    if scrub::checks(key, value) {
        let usage = key.first() == Some(&key::kind::USAGE) && value.len() == 16;
        let tree =
            key.first() == Some(&key::kind::VOLUME) && TreeHeader::decode(key, value).is_ok();
        // Sums of an encrypted tree have a checksum under a version of their own.
        let sums =
            key.first() == Some(&key::kind::SUMS) && record::decode_sealed_sums(key, value).is_ok();
        let sealed = record::is_sealed(key, value);
        assert!(usage || tree || sums || sealed, "{}", damaged("taken", key));
    }
    let end = crate::media::engine::prefix_end(key);
    assert!(
        key.iter().all(|byte| *byte == 0xff) || end.as_slice() > key,
        "keys with a prefix lie before its end"
    );
    assert_eq!(key::number_at(key, 0).is_some(), key.len() >= 9);
    if let Some(head) = key.len().checked_sub(key::EPOCH_BYTES) {
        assert_eq!((!key::epoch_of(key)).to_be_bytes(), key[head..]);
    }
}

/// A part of a stream, with a right checksum: decoding refuses it, or encodes the same items to the
/// same bytes.
pub fn stream_part(bytes: &[u8]) {
    for bytes in [crate::stream::sealed(bytes), bytes::Bytes::copy_from_slice(bytes)] {
        if let Some(again) = crate::stream::rewritten(&bytes) {
            assert_eq!(again, bytes, "accepted, and written in another way");
        }
    }
}

/// FORMAT: an accepted text is exactly what the store would write.
pub fn format(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    for text in [text.to_owned(), waldb::summed(text)] {
        if let Ok((version, id)) = format_file::parse("fuzzed".as_ref(), &text) {
            assert_eq!(format_file::text(version, id), text);
        }
    }
}

/// The name of a body file: an accepted name is canonical, so that no stray file passes for a body.
pub fn body_name(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    if let Some(name) = names::parse_name(VolumeId(1), text) {
        assert_eq!(names::file_name(name), text);
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;
    use crate::tests::golden;

    /// `good` with some bytes changed, removed or inserted.
    fn mutated(good: &[u8], changes: &[(u8, prop::sample::Index, u8)]) -> Vec<u8> {
        let mut bytes = good.to_vec();
        for (how, at, byte) in changes {
            let at = at.index(bytes.len() + 1);
            match (how % 3, at < bytes.len()) {
                (0, true) => bytes[at] = *byte,
                (1, true) => drop(bytes.remove(at)),
                _ => bytes.insert(at, *byte),
            }
        }
        bytes
    }

    fn changes() -> impl Strategy<Value = Vec<(u8, prop::sample::Index, u8)>> {
        vec(
            (
                any::<u8>(),
                any::<prop::sample::Index>(),
                prop_oneof![any::<u8>(), Just(0), Just(1), Just(0xff)],
            ),
            0..4,
        )
    }

    #[test]
    fn golden_records_are_taken() {
        for (kind, value) in golden::values() {
            assert_eq!(written_again(kind, &value).as_deref(), Some(&value[..]), "kind {kind}");
        }
    }

    #[test]
    fn parts_of_streams_are_taken() {
        let part = crate::tests::stream::part();
        assert_eq!(crate::stream::rewritten(&part), Some(part));
    }

    proptest! {
        #[test]
        fn mutated_parts(changes in changes()) {
            let part = crate::tests::stream::part();
            stream_part(&mutated(&part[1..part.len() - 4], &changes));
            stream_part(&mutated(&part, &changes));
        }

        #[test]
        fn mutated_records(which in any::<prop::sample::Index>(), changes in changes()) {
            let values = golden::values();
            let (kind, value) = which.get(&values);
            // Without version and sum, which are made anew.
            let fields = if *kind == USAGE { &value[..] } else { &value[1..value.len() - 4] };
            record(&[&[*kind][..], &mutated(fields, &changes)].concat());
            record(&[&[0x80 | *kind][..], &mutated(value, &changes)].concat());
        }

        #[test]
        fn random_records(bytes in vec(any::<u8>(), 0..300)) {
            record(&bytes);
        }

        #[test]
        fn random_keys(
            first in prop::sample::select(b"PVWNUSRKveisxougcdp".to_vec()),
            bytes in vec(any::<u8>(), 0..100),
        ) {
            key(&bytes);
            key(&[&[1 + bytes.len() as u8 / 2, first][..], &bytes].concat());
        }

        #[test]
        fn mutated_formats(changes in changes()) {
            let text = format_file::text(format_file::FORMAT_VERSION, 7);
            format(&mutated(text.as_bytes(), &changes));
            format(&mutated(b"rialto partition\nversion 1\nid \
                00000000000000000000000000000007\n", &changes));
        }

        #[test]
        fn mutated_body_names(changes in changes()) {
            body_name(&mutated(b"2a.1.f", &changes));
        }
    }
}
