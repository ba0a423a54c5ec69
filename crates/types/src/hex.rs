//! Bytes as hexadecimal digits, where people or text files carry them.

/// Two lower-case digits for each byte.
pub fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digits = bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]);
    digits.map(|digit| char::from(DIGITS[usize::from(digit)])).collect()
}

/// The bytes of hexadecimal digits, in either case; `None`: it is something else. Unlike
/// [`u8::from_str_radix`] it takes no sign.
pub fn unhex(text: &[u8]) -> Option<Vec<u8>> {
    let value = |digit: u8| char::from(digit).to_digit(16).map(|value| value as u8);
    let (pairs, rest) = text.as_chunks::<2>();
    let byte = |[high, low]: &[u8; 2]| Some((value(*high)? << 4) | value(*low)?);
    let bytes: Option<Vec<u8>> = pairs.iter().map(byte).collect();
    bytes.filter(|_| rest.is_empty())
}

/// As [`unhex`], of so many bytes exactly.
pub fn unhex_array<const N: usize>(text: &[u8]) -> Option<[u8; N]> {
    // The length first: a caller from outside does not choose how much memory is taken.
    if text.len() != 2 * N { None } else { unhex(text)?.try_into().ok() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_read_as_they_are_written_and_nothing_else_is() {
        let all: Vec<u8> = (0..=255).collect();
        assert_eq!(unhex(hex(&all).as_bytes()), Some(all));
        assert_eq!(hex(&[0, 0x0a, 0xff]), "000aff");
        assert_eq!(unhex(b"0AfF"), Some(vec![10, 255]));
        assert_eq!(unhex(b""), Some(Vec::new()));
        for wrong in ["0", "0af", "zz", "+f", "-0", " 0", "0x", "0\u{e9}", "ff "] {
            assert_eq!(unhex(wrong.as_bytes()), None, "{wrong:?}");
        }
        assert_eq!(unhex_array(b"0a0b"), Some([10, 11]));
        assert_eq!(unhex_array::<2>(b"0a"), None);
        assert_eq!(unhex_array::<1>(b"0a0b"), None);
    }
}
