//! XDR itself.

use super::fixtures::*;
use crate::xdr::*;

#[test]
fn numbers_have_their_bytes() {
    check_value(&0x0102_0304_u32, "01020304");
    check_value(&-2_i32, "fffffffe");
    check_value(&0x0102_0304_0506_0708_u64, "01020304 05060708");
    check_value(&-2_i64, "ffffffff fffffffe");
    check_value(&0xfedc_u16, "0000fedc");
    check_value(&-2_i16, "fffffffe");
    check_value(&0xfe_u8, "000000fe");
    check_value(&-2_i8, "fffffffe");
    check_value(&true, "00000001");
    check_value(&false, "00000000");
    check_value(&[1_i32, 2], "00000001 00000002");
    check_value(&Box::new(5_u32), "00000005");
}

#[test]
fn the_high_bits_of_short_types_do_not_count() {
    let word = unhex("12345678");
    assert_eq!(u16::from_xdr(&word), Ok(0x5678));
    assert_eq!(i16::from_xdr(&word), Ok(0x5678));
    assert_eq!(u8::from_xdr(&word), Ok(0x78));
    assert_eq!(i8::from_xdr(&word), Ok(0x78));
    assert_eq!(bool::from_xdr(&word), Ok(true));
}

#[test]
fn strings_are_padded_and_bounded() {
    check_value(&text::<4>(""), "00000000");
    check_value(&text::<4>("a"), "00000001 61000000");
    check_value(&text::<4>("abcd"), "00000004 61626364");
    let long = XdrError::TooMany { count: 5, most: 4 };
    assert_eq!(XdrBytes::<4>::from_xdr(&unhex("00000005 61626364 65000000")), Err(long));
    assert_eq!(XdrBytes::<4>::new("abcde"), Err(long));
    assert_eq!(XdrBytes::<4>::new("abcd").unwrap().as_bytes(), b"abcd");
    assert_eq!(XdrBytes::<4>::new("abcd").unwrap().into_bytes(), b"abcd");
    // The padding's bytes do not count, but they must be there.
    assert_eq!(XdrBytes::<4>::from_xdr(&unhex("00000001 61ffffff")), Ok(text("a")));
    assert_eq!(XdrBytes::<4>::from_xdr(&unhex("00000001 6100")), Err(XdrError::Truncated));
    assert_eq!(format!("{:?}", text::<4>("a\n")), r#""a\n""#);
}

#[test]
fn opaque_arrays_are_packed_and_characters_are_not() {
    check_value(&FixedOpaque(*b"abcde"), "61626364 65000000");
    check_value(&Chars::<3>::new(b"ab").unwrap(), "00000061 00000062 00000000");
    // Signed characters are sign-extended, and read with any high bits.
    check_value(&Chars([0x80_u8, 0x7f]), "ffffff80 0000007f");
    assert_eq!(Chars::<2>::from_xdr(&unhex("00000080 1234567f")), Ok(Chars([0x80, 0x7f])));
}

#[test]
fn character_arrays_hold_strings_with_an_end() {
    assert_eq!(Chars::<3>::new(b"abc"), Err(XdrError::TooMany { count: 3, most: 2 }));
    assert_eq!(Chars::<3>::new(b"a\0"), Err(XdrError::ZeroByte));
    assert_eq!(Chars::<3>::new(b"ab").unwrap().text(), b"ab");
    assert_eq!(Chars(*b"abc").text(), b"abc");
    assert_eq!(Chars(*b"a\0c").text(), b"a");
    assert_eq!(format!("{:?}", Chars(*b"a\0")), r#""a\x00""#);
}

#[test]
fn lists_are_bounded() {
    check_value(&list::<u32, 3>([1, 2, 3]), "00000003 00000001 00000002 00000003");
    let many = XdrError::TooMany { count: 4, most: 3 };
    assert_eq!(XdrList::<u32, 3>::new(vec![1, 2, 3, 4]), Err(many));
    assert_eq!(
        XdrList::<u32, 3>::from_xdr(&unhex(&("00000004".to_owned() + &words(1, 4)))),
        Err(many)
    );
    assert_eq!(XdrList::<u32, 3>::new(vec![1]).unwrap().as_slice(), [1]);
    assert_eq!(XdrList::<u32, 3>::new(vec![1]).unwrap().into_vec(), [1]);
    assert_eq!(XdrList::<u32, 3>::default().as_slice(), []);
}

#[test]
fn chains_have_a_word_before_each_element() {
    check_value(&XdrChain::<u32>(vec![]), "00000000");
    check_value(&XdrChain(vec![5_u32, 6]), "00000001 00000005 00000001 00000006 00000000");
}

#[test]
fn counts_are_believed_only_if_the_elements_can_be_there() {
    let bytes = unhex("00000003 00000001 00000002");
    let count = |most, least_bytes| XdrReader::new(&bytes).count(most, least_bytes);
    assert_eq!(count(3, 2), Ok(3));
    assert_eq!(count(3, 3), Err(XdrError::Truncated));
    assert_eq!(count(2, 0), Err(XdrError::TooMany { count: 3, most: 2 }));
    assert_eq!(count(3, usize::MAX), Err(XdrError::Truncated));
}

#[test]
fn values_with_bytes_behind_them_are_refused() {
    assert_eq!(u32::from_xdr(&unhex("00000001 0000")), Err(XdrError::Trailing(2)));
    assert_eq!(XdrReader::new(&[0; 4]).end(), Err(XdrError::Trailing(4)));
    assert_eq!(XdrReader::new(&[]).end(), Ok(()));
    assert_eq!(XdrReader::new(&[0; 4]).opaque(usize::MAX), Err(XdrError::Truncated));
}

#[test]
fn readers_stand_still_when_bytes_are_missing() {
    let mut from = XdrReader::new(&[1, 2, 3, 4, 5]);
    assert_eq!(from.u64(), Err(XdrError::Truncated));
    assert_eq!(from.u32(), Ok(0x0102_0304));
    assert_eq!(from.opaque(1), Err(XdrError::Truncated));
    assert_eq!(from.rest(), [5]);
}
