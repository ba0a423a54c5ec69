//! Rights and access lists.

use proptest::collection::vec;
use proptest::prelude::*;

use super::fixtures::*;
use crate::rights::*;

fn line(name: &str, rights: u32) -> AclLine {
    AclLine { name: name.into(), rights: AfsRights(rights) }
}

#[test]
fn rights_have_their_letters_and_bits() {
    let letters = [
        ("r", AfsRights::READ, 1),
        ("w", AfsRights::WRITE, 2),
        ("i", AfsRights::INSERT, 4),
        ("l", AfsRights::LOOKUP, 8),
        ("d", AfsRights::DELETE, 16),
        ("k", AfsRights::LOCK, 32),
        ("a", AfsRights::ADMINISTER, 64),
        ("rlidwka", AfsRights::ALL, 127),
        ("A", AfsRights(0x0100_0000), 0x0100_0000),
        ("B", AfsRights(0x0200_0000), 0x0200_0000),
        ("C", AfsRights(0x0400_0000), 0x0400_0000),
        ("D", AfsRights(0x0800_0000), 0x0800_0000),
        ("E", AfsRights(0x1000_0000), 0x1000_0000),
        ("F", AfsRights(0x2000_0000), 0x2000_0000),
        ("G", AfsRights(0x4000_0000), 0x4000_0000),
        ("H", AfsRights(0x8000_0000), 0x8000_0000),
        ("ABCDEFGH", AfsRights::USER, 0xff00_0000),
        ("", AfsRights(0), 0),
    ];
    for (text, rights, bits) in letters {
        assert_eq!(rights, AfsRights(bits));
        assert_eq!(rights.to_string(), text);
        assert_eq!(AfsRights::from_letters(text), Some(rights));
    }
    assert_eq!(AfsRights::from_letters("rl?"), None);
    assert_eq!(AfsRights::from_letters("lr"), Some(AfsRights(9)));
    assert!(AfsRights(9).contains(AfsRights::READ) && !AfsRights(9).contains(AfsRights::WRITE));
    assert!(!AfsRights::READ.contains(AfsRights(9)));
    assert_eq!(format!("{:?}", AfsRights(9)), "0x9 (rl)");
}

#[test]
fn access_lists_have_their_text() {
    let list = AclText {
        positive: vec![line("system:administrators", 127), line("joe", 9)],
        negative: vec![line("-206", 2)],
    };
    let text = b"2\n1\nsystem:administrators\t127\njoe\t9\n-206\t2\n\0";
    assert_eq!(list.print().unwrap(), text);
    assert_eq!(AclText::parse(text), Ok(list.clone()));
    // The zero byte may be missing, and bytes behind it do not count.
    assert_eq!(AclText::parse(&text[..text.len() - 1]), Ok(list.clone()));
    assert_eq!(AclText::parse(&[&text[..], b"x"].concat()), Ok(list));
    let empty = AclText::default();
    assert_eq!(empty.print().unwrap(), b"0\n0\n\0");
    assert_eq!(AclText::parse(b"0\n0\n"), Ok(empty));
}

#[test]
fn access_lists_may_have_other_blanks_and_signs() {
    let list = AclText { positive: vec![line("joe", 0x8000_0001)], negative: vec![] };
    assert_eq!(AclText::parse(b"1 \n0\njoe 2147483649\n"), Ok(list.clone()));
    assert_eq!(AclText::parse(b"1\n0\njoe\t-2147483647\n"), Ok(list));
}

#[test]
fn access_lists_with_faults_are_refused() {
    use AclFormError::*;
    let parse = |text: &str| AclText::parse(text.as_bytes()).unwrap_err();
    assert_eq!(parse(""), BadLine(1));
    assert_eq!(parse("x\n0\n"), BadLine(1));
    assert_eq!(parse("0\n"), BadLine(2));
    assert_eq!(parse("-1\n1\njoe\t1\n"), BadLine(1));
    assert_eq!(parse("1\n0\n"), BadLine(3));
    assert_eq!(parse("1\n0"), BadLine(0));
    assert_eq!(parse("1\n0\njoe\n"), BadLine(3));
    assert_eq!(parse("1\n0\njoe\tx\n"), BadLine(3));
    assert_eq!(parse("1\n0\njoe\t4294967296\n"), BadLine(3));
    assert_eq!(parse("1\n0\njoe\t-2147483649\n"), BadLine(3));
    assert_eq!(parse("1\n1\njoe\t1\n\t1\n"), BadName(4));
    assert_eq!(parse(&format!("1\n0\n{}\t1\n", "j".repeat(64))), BadName(3));
    assert!(AclText::parse(format!("1\n0\n{}\t1\n", "j".repeat(63)).as_bytes()).is_ok());
    assert_eq!(parse("20\n1\n"), TooMany(21));
    assert_eq!(parse(&format!("{}\n1\n", usize::MAX)), TooMany(usize::MAX));
    let bad = |name: &str| AclText { positive: vec![line("a", 1)], negative: vec![line(name, 1)] };
    for name in ["", "a b", "a\tb", "a\nb", "a\0b", "a\x0bb"] {
        assert_eq!(bad(name).print(), Err(BadName(4)), "{name:?}");
    }
    let many = |count| AclText { positive: vec![line("a", 1); count], negative: vec![] };
    assert_eq!(many(21).print(), Err(TooMany(21)));
    assert!(many(20).print().is_ok());
}

/// Those that grant from the front, those that deny from the back, each by ascending numbers.
#[test]
fn stored_access_lists_have_their_bytes() {
    let list = StoredAcl {
        positive: vec![(7, AfsRights(9)), (-204, AfsRights(127))],
        negative: vec![(5, AfsRights(2)), (-101, AfsRights(1))],
    };
    let mut golden = unhex(
        "00000034 00000001 00000004 00000002 00000002 ffffff34 0000007f 00000007 00000009 \
         00000005 00000002 ffffff9b 00000001",
    );
    golden.resize(192, 0);
    let bytes = list.to_bytes().unwrap();
    assert_eq!(hex(&bytes), hex(&golden));
    let sorted = StoredAcl {
        positive: vec![(-204, AfsRights(127)), (7, AfsRights(9))],
        negative: vec![(-101, AfsRights(1)), (5, AfsRights(2))],
    };
    assert_eq!(StoredAcl::from_bytes(&bytes), Ok(sorted));
}

#[test]
fn stored_access_lists_with_faults_are_refused() {
    let good = StoredAcl { positive: vec![(1, AfsRights(1))], negative: vec![] };
    let good = good.to_bytes().unwrap();
    let with = |at: usize, byte: u8| {
        let mut bytes = good;
        bytes[at] = byte;
        StoredAcl::from_bytes(&bytes)
    };
    assert!(with(0, 0).is_ok());
    for at in [7, 11, 12, 15, 16, 19] {
        assert_eq!(with(at, 99), Err(AclFormError::Damaged), "{at}");
    }
    let mut many = good;
    (many[11], many[15]) = (21, 21);
    assert_eq!(StoredAcl::from_bytes(&many), Err(AclFormError::TooMany(21)));
    let all =
        StoredAcl { positive: vec![(1, AfsRights(1)); 12], negative: vec![(1, AfsRights(1)); 9] };
    assert_eq!(all.to_bytes(), Err(AclFormError::TooMany(21)));
}

proptest! {
    #[test]
    fn access_lists_come_back(
        positive in vec(("[a-z:@.-]{1,63}", any::<u32>()), 0..11),
        negative in vec(("[a-z:@.-]{1,63}", any::<u32>()), 0..10),
    ) {
        let lines = |all: Vec<(String, u32)>| {
            all.iter().map(|(name, rights)| line(name, *rights)).collect::<Vec<_>>()
        };
        let list = AclText { positive: lines(positive), negative: lines(negative) };
        prop_assert_eq!(AclText::parse(&list.print().unwrap()), Ok(list));
    }

    #[test]
    fn stored_access_lists_come_back(
        mut positive in vec((any::<i32>(), any::<u32>()), 0..11),
        mut negative in vec((any::<i32>(), any::<u32>()), 0..10),
    ) {
        positive.sort_by_key(|(id, _)| *id);
        negative.sort_by_key(|(id, _)| *id);
        positive.dedup_by_key(|(id, _)| *id);
        negative.dedup_by_key(|(id, _)| *id);
        let entries = |all: Vec<(i32, u32)>| {
            all.into_iter().map(|(id, bits)| (id, AfsRights(bits))).collect::<Vec<_>>()
        };
        let list = StoredAcl { positive: entries(positive), negative: entries(negative) };
        prop_assert_eq!(StoredAcl::from_bytes(&list.to_bytes().unwrap()), Ok(list));
    }

    #[test]
    fn random_access_lists_are_harmless(
        text in vec(prop_oneof![Just(b'\n'), Just(b'\t'), b'0'..=b'3', any::<u8>()], 0..60),
        words in vec(0_u8..25, 48),
    ) {
        if let Ok(list) = AclText::parse(&text) {
            prop_assert_eq!(AclText::parse(&list.print().unwrap()), Ok(list));
        }
        let mut bytes = [0; STORED_ACL_BYTES];
        bytes.iter_mut().skip(3).step_by(4).zip(&words).for_each(|(to, word)| *to = *word);
        bytes[7] = 1;
        if let Ok(list) = StoredAcl::from_bytes(&bytes) {
            prop_assert!(list.positive.len() + list.negative.len() <= 20);
        }
    }
}
