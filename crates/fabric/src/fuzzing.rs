//! The fuzz target's checks of the receiving half, in a library so that plain tests run them too
//! (feature `fuzzing`).

use bytes::Bytes;

use crate::{Connection, Extent, Filled, FrameError, FrameLimits, HEADER_BYTES, Inbox};

/// Larger than the inbox's buffer, so that both ways of receiving a part are covered.
const LIMITS: FrameLimits = FrameLimits { message: 24 << 10, payload: 40 << 10 };
/// Bytes of a whole stream, which fits into a socket.
const STREAM_BYTES_MAX: usize = 256 << 10;

/// A header is `F`, a letter for its message's length and one for its payload's; each letter means
/// 3^letter / 2.
fn measure(header: &[u8; HEADER_BYTES]) -> Result<Extent, &'static str> {
    if header[0] != b'F' {
        return Err("no magic");
    }
    let length = |letter: u8| 3_usize.pow(u32::from(letter % 11)) / 2;
    Ok(Extent { message: length(header[1]), payload: length(header[2]) })
}

/// One frame that must arrive.
type Parts = (Vec<u8>, Vec<u8>, Bytes);

/// Cuts the stream in the simplest way: the frames before an error, if there is one, and the rest.
fn expected(mut stream: &[u8]) -> (Vec<Parts>, Result<&[u8], FrameError>) {
    let mut frames = Vec::new();
    while let Some(header) = stream.first_chunk::<HEADER_BYTES>() {
        let extent = match measure(header) {
            Ok(extent) if extent.message > LIMITS.message || extent.payload > LIMITS.payload => {
                return (frames, Err(FrameError::TooLarge(extent)));
            }
            Ok(extent) => extent,
            Err(why) => return (frames, Err(FrameError::Header(why))),
        };
        let head = HEADER_BYTES + extent.message;
        let Some(frame) = stream.get(..head + extent.payload) else { break };
        let payload = Bytes::copy_from_slice(&frame[head..]);
        frames.push((header.to_vec(), frame[HEADER_BYTES..head].to_vec(), payload));
        stream = &stream[frame.len()..];
    }
    (frames, Ok(stream))
}

/// Checks that a stream of the script's frames and garbage arrives as `expected` cuts it, however
/// it is cut on its way.
///
/// The script: byte 0 chooses whether descriptors could come; then pairs of (kind of part, bytes of
/// it that are sent at once).
pub fn inbox(script: &[u8]) {
    let Some((&first, script)) = script.split_first() else { return };
    let (stream, cuts) = stream(script);
    let (frames, end) = expected(&stream);
    let (ours, other) = Connection::pair().expect("a pair of sockets");
    let mut inbox = Inbox::new(measure, LIMITS, first & 1 == 1);
    let mut arrived = 0;
    let mut sent = 0;
    for cut in cuts {
        let piece = &stream[sent..cut];
        other.send_raw(piece, None).expect("the stream fits the socket");
        sent = cut;
        let error = receive(&mut inbox, &ours, &frames, &mut arrived);
        if let Some(error) = error {
            assert_eq!(Err(error), end, "behind {arrived} frames");
            assert_eq!(arrived, frames.len());
            return;
        }
    }
    assert_eq!(arrived, frames.len(), "every whole frame arrives");
    assert_eq!(
        end.map(|rest| !rest.is_empty()),
        Ok(inbox.is_partial()),
        "what is left over is known"
    );
}

/// Receives all that is available.
fn receive(
    inbox: &mut Inbox,
    from: &Connection,
    frames: &[Parts],
    arrived: &mut usize,
) -> Option<FrameError> {
    loop {
        loop {
            match inbox.next_frame() {
                Ok(Some(frame)) => {
                    let got = (frame.header.to_vec(), frame.message.to_vec(), frame.payload);
                    assert!(
                        frames.get(*arrived) == Some(&got),
                        "frame {arrived} arrived in another form"
                    );
                    *arrived += 1;
                }
                Ok(None) => break,
                Err(error) => return Some(error),
            }
        }
        match inbox.fill(from, false).expect("the other end is open") {
            Filled::Some => {}
            Filled::Nothing => return None,
            Filled::End => unreachable!("the other end is open"),
        }
    }
}

/// The bytes that a script describes, and the positions of its cuts.
fn stream(script: &[u8]) -> (Vec<u8>, Vec<usize>) {
    let (mut stream, mut cuts) = (Vec::new(), Vec::new());
    for (number, what) in script.chunks(4).enumerate() {
        let of = |at: usize| what.get(at).copied().unwrap_or_default();
        if stream.len() + LIMITS.message + LIMITS.payload > STREAM_BYTES_MAX {
            break;
        }
        match of(0) % 8 {
            0 => stream.extend_from_slice(what),
            kind => {
                let mut header = [of(3); HEADER_BYTES];
                header[..3].copy_from_slice(&[
                    if of(3) == 0xff { b'G' } else { b'F' },
                    of(1),
                    of(2),
                ]);
                stream.extend_from_slice(&header);
                if let Ok(Extent { message, payload }) = measure(&header)
                    && message <= LIMITS.message
                    && payload <= LIMITS.payload
                {
                    // Every byte depends on its position, so that a shift is noticed; the payload
                    // of kind 7 is cut short.
                    let bytes = (message + payload).saturating_sub(usize::from(kind == 7));
                    stream
                        .extend((0..bytes).map(|at| {
                            (at as u8).wrapping_mul(31) ^ (at >> 8) as u8 ^ number as u8
                        }));
                }
            }
        }
        // Cut here, before here, or not at all.
        let back = usize::from(of(3)) * usize::from(of(0) >> 3);
        let cut = stream.len().saturating_sub(back);
        if of(0) & 0x80 == 0 && cuts.last().is_none_or(|last| *last < cut) {
            cuts.push(cut);
        }
    }
    cuts.push(stream.len());
    (stream, cuts)
}

#[cfg(test)]
mod tests {
    use rand::rngs::StdRng;
    use rand::{Rng, RngCore, SeedableRng};

    use super::*;

    #[test]
    fn random_scripts_arrive_as_they_are_cut_the_obvious_way() {
        let mut random = StdRng::seed_from_u64(20);
        for _ in 0..2000 {
            let mut script = vec![0; random.random_range(0..120)];
            random.fill_bytes(&mut script);
            inbox(&script);
        }
    }

    #[test]
    fn scripts_hold_frames_of_all_sizes_and_errors() {
        let (bytes, _) = stream(&[1, 0, 0, 0, 1, 9, 9, 0, 1, 5, 10, 0]);
        let (frames, end) = expected(&bytes);
        assert_eq!(frames.len(), 3);
        assert_eq!((frames[1].1.len(), frames[1].2.len(), frames[2].2.len()), (9841, 9841, 29524));
        assert_eq!(end, Ok(&[][..]));
        assert!(matches!(expected(&stream(&[1, 10, 0, 0]).0).1, Err(FrameError::TooLarge(_))));
        assert!(matches!(expected(&stream(&[1, 0, 0, 0xff]).0).1, Err(FrameError::Header(_))));
    }
}
