//! Version packets.

/// Size of the text in a version packet, with its zero bytes.
pub const VERSION_BYTES: usize = 65;

/// The payload of a version packet: the text, cut to fit, then zero bytes.
pub fn version_text(text: &str) -> [u8; VERSION_BYTES] {
    let mut bytes = [0; VERSION_BYTES];
    let len = text.len().min(VERSION_BYTES - 1);
    bytes[..len].copy_from_slice(&text.as_bytes()[..len]);
    bytes
}
