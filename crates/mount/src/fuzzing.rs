//! The properties of request decoding that the fuzz target checks, so that plain tests run it too
//! (feature `fuzzing`).

use zerocopy::IntoBytes;

use crate::abi::{self, opcode};
use crate::request::{KernelRequest, Operation, forgets};

/// Arbitrary bytes are a request or are refused, as they are and behind a header that fits them.
///
/// For the latter the first byte is the operation and the second how many words of extensions there
/// are.
pub fn request(bytes: &[u8]) {
    check(bytes);
    let Some((&[code, extensions], body)) = bytes.split_first_chunk() else { return };
    let header = abi::InHeader {
        len: u32::try_from(size_of::<abi::InHeader>() + body.len())
            .expect("fuzzed inputs are small"),
        opcode: if code == 0xff { opcode::INIT } else { u32::from(code) },
        unique: 2,
        nodeid: 1,
        total_extlen: u16::from(extensions) % 8,
        ..Default::default()
    };
    check(&[header.as_bytes(), body].concat());
}

/// Decoded parts lie in the bytes, names end before their NUL, and lengths are the declared ones.
fn check(bytes: &[u8]) {
    let Ok(request) = KernelRequest::decode(bytes) else { return };
    assert_eq!(request.header.len as usize, bytes.len());
    let room =
        bytes.len() - size_of::<abi::InHeader>() - usize::from(request.header.total_extlen) * 8;
    let (names, data): (Vec<&[u8]>, &[u8]) = match request.operation {
        Operation::Lookup { name }
        | Operation::Mknod { name, .. }
        | Operation::Mkdir { name, .. }
        | Operation::Unlink { name }
        | Operation::Rmdir { name }
        | Operation::Link { name, .. }
        | Operation::Create { name, .. }
        | Operation::Getxattr { name, .. }
        | Operation::Removexattr { name } => (vec![name], &[]),
        Operation::Symlink { name, target } => (vec![name, target], &[]),
        Operation::Rename { from, to, .. } => (vec![from, to], &[]),
        Operation::Setxattr { of, name, value } => {
            assert_eq!(value.len(), of.size as usize);
            (vec![name], value)
        }
        Operation::Write { of, data } => {
            assert_eq!(data.len(), of.size as usize);
            (vec![], data)
        }
        Operation::BatchForget(members) => {
            assert_eq!(forgets(members).count() * size_of::<abi::ForgetOne>(), members.len());
            (vec![], members)
        }
        Operation::Unoffered(code) => return assert_eq!(code, request.header.opcode),
        _ => (vec![], &[]),
    };
    let mut taken = data.len();
    for name in names {
        assert!(!name.contains(&0), "a name goes on behind its NUL");
        taken += name.len() + 1;
    }
    assert!(taken <= room, "{taken} bytes taken of {room}");
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn any_bytes_are_a_request_or_refused(bytes in vec(any::<u8>(), 0..300)) {
            request(&bytes);
        }

        #[test]
        fn so_is_any_body_of_any_operation(
            code in 0u8..60,
            extensions in 0u8..4,
            body in vec(prop_oneof![any::<u8>(), Just(0), Just(1)], 0..200),
        ) {
            request(&[&[code, extensions][..], &body].concat());
        }
    }
}
