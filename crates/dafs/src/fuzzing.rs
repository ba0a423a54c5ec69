//! The checks of the fuzz targets, in a library so that plain tests run them too (feature
//! `fuzzing`).
//!
//! Each takes arbitrary bytes and panics if a property does not hold.

use bytes::Bytes;
use types::limits::{MESSAGE_BYTES_MAX, PAYLOAD_BYTES_MAX};

use crate::codec::{EncodedAnswer, EncodedCall};
use crate::message::Message;
use crate::packed::unpack;
use crate::{
    Frame, FrameHeader, Hello, HelloAnswer, decode_answer, decode_answer_record, decode_call,
    encode_answer, encode_answer_record, encode_call,
};

pub use crate::fuzzing_session::{client_session, server_session};

/// An accepted header is within the limits, and has no other form.
pub fn header(bytes: &[u8]) {
    let Some(bytes) = bytes.first_chunk::<{ FrameHeader::BYTES }>() else { return };
    if let Ok(header) = FrameHeader::parse(bytes) {
        assert!(header.message_bytes as usize <= MESSAGE_BYTES_MAX);
        assert!(header.payload_bytes as usize <= PAYLOAD_BYTES_MAX);
        assert_eq!(header.to_bytes(), *bytes);
    }
}

/// An accepted hello encodes to an equal hello; so does an answer.
pub fn hello(bytes: &[u8]) {
    if let Some(bytes) = bytes.first_chunk::<{ Hello::BYTES }>()
        && let Ok(hello) = Hello::parse(bytes)
    {
        assert_eq!(Hello::parse(&hello.to_bytes()), Ok(hello));
        if let Ok(terms) = hello.agree(&crate::Terms::full(crate::Features(u64::MAX))) {
            let answer = HelloAnswer::Welcome(terms);
            assert_eq!(HelloAnswer::parse(&answer.to_bytes(), &hello), Ok(answer));
        }
    }
    if let Some(bytes) = bytes.first_chunk::<{ HelloAnswer::BYTES }>() {
        let hello = Hello::full(crate::Features(u64::MAX));
        if let Ok(answer) = HelloAnswer::parse(bytes, &hello) {
            assert_eq!(HelloAnswer::parse(&answer.to_bytes(), &hello), Ok(answer));
        }
    }
}

/// An accepted call encodes to the same bytes.
pub fn call(procedure: u16, message: &[u8], payload: Bytes) {
    if let Ok(call) = decode_call(procedure, message, payload.clone()) {
        let again = encode_call(&call).expect("an accepted call can be sent");
        assert_eq!(again, EncodedCall { procedure, message: message.to_vec(), payload });
    }
}

/// An accepted answer encodes to the same bytes; so does a record.
pub fn answer(procedure: u16, message: &[u8], payload: Bytes) {
    if let Ok(record) = decode_answer_record(message)
        && !matches!(
            record,
            types::Answer::Data { .. }
                | types::Answer::Packed { .. }
                | types::Answer::Part(_)
                | types::Answer::Records { .. }
        )
    {
        assert_eq!(encode_answer_record(&record), message);
    }
    if let Ok(answer) = decode_answer(procedure, message, payload.clone()) {
        if let types::Answer::Packed { run, .. } = &answer {
            let wanted = run.offset..run.offset.saturating_add(run.length.into());
            assert!(
                unpack(run, wanted).map_or(true, |bytes| bytes.len() == run.length as usize),
                "all or nothing"
            );
        }
        let again = encode_answer(&answer).expect("an accepted answer can be sent");
        assert_eq!(again, EncodedAnswer { procedure, message: message.to_vec(), payload });
    }
}

/// An accepted session message makes the same frame.
pub fn message(bytes: &[u8]) {
    let Some((head, message)) = bytes.split_first_chunk::<{ FrameHeader::BYTES }>() else { return };
    let Ok(header) = FrameHeader::parse(head) else { return };
    let frame = Frame { header, message: Bytes::copy_from_slice(message), payload: Bytes::new() };
    if let Ok(Some(read)) = Message::of_frame(&frame) {
        let again = read.to_frame(header.session).expect("an accepted message can be sent");
        assert_eq!(again.message, frame.message);
        let same = FrameHeader {
            flags: header.flags,
            checksum: header.checksum,
            region: header.region,
            ..again.header
        };
        assert_eq!(
            FrameHeader { message_bytes: header.message_bytes, ..same },
            FrameHeader { payload_bytes: 0, ..header }
        );
    }
}

/// Splits arbitrary bytes into a procedure, a message and a payload, for [`call`] and [`answer`].
pub fn split(bytes: &[u8]) -> Option<(u16, &[u8], Bytes)> {
    let (head, rest) = bytes.split_first_chunk::<4>()?;
    let procedure = u16::from_le_bytes([head[0], head[1]]);
    let payload_bytes = usize::from(u16::from_le_bytes([head[2], head[3]]));
    let (payload, message) = rest.split_at_checked(payload_bytes)?;
    Some((procedure, message, Bytes::copy_from_slice(payload)))
}
