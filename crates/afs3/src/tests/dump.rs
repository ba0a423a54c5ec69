//! Volume dumps.

use proptest::collection::vec;
use proptest::prelude::*;

use super::fixtures::*;
use crate::dump::*;
use crate::rights::{AfsRights, StoredAcl};

/// All items of a dump that arrives in pieces of so many bytes. Pieces of contents are joined.
fn parse(bytes: &[u8], step: usize) -> Result<Vec<DumpItem<'static>>, DumpStreamError> {
    let mut parser = DumpParser::new();
    let mut items: Vec<DumpItem<'static>> = Vec::new();
    let mut contents = Vec::new();
    for mut input in bytes.chunks(step) {
        while let Some(item) = parser.next(&mut input)? {
            match item {
                DumpItem::Piece(piece) => contents.extend_from_slice(piece),
                item => {
                    settle(&mut items, &mut contents);
                    items.push(owned(item));
                }
            }
        }
        assert!(input.is_empty());
    }
    parser.finish()?;
    Ok(items)
}

/// Contents stand in the list as a section of their own, so that they can be compared.
fn settle(items: &mut Vec<DumpItem<'static>>, contents: &mut Vec<u8>) {
    if !contents.is_empty() {
        items.push(DumpItem::Piece(std::mem::take(contents).leak()));
    }
}

fn owned(item: DumpItem<'_>) -> DumpItem<'static> {
    match item {
        DumpItem::Header { version, tags } => DumpItem::Header { version, tags },
        DumpItem::VolumeHeader { tags } => DumpItem::VolumeHeader { tags },
        DumpItem::Vnode { vnode, unique, tags } => DumpItem::Vnode { vnode, unique, tags },
        DumpItem::Contents { bytes, wide } => DumpItem::Contents { bytes, wide },
        DumpItem::Piece(piece) => DumpItem::Piece(piece.to_vec().leak()),
        DumpItem::Further { tags } => DumpItem::Further { tags },
        DumpItem::End => DumpItem::End,
    }
}

fn written(items: &[DumpItem<'_>]) -> Vec<u8> {
    let mut bytes = Vec::new();
    items.iter().for_each(|item| item.encode(&mut bytes));
    bytes
}

fn tag(tag: u8, value: TagValue) -> DumpTag {
    DumpTag { tag, value }
}

fn int(letter: u8, value: u32) -> DumpTag {
    tag(letter, TagValue::Int(value))
}

/// A dump of a volume with a directory, a file without contents, a symlink with a large size, and a
/// file that did not change.
const GOLDEN: &str = "
    01 b3a11322 00000001
        76 20000007  6e 766f6c00  74 0002 00000000 65000001
    02  69 20000007  76 00000001  6e 766f6c00  73 01  62 01  75 00000009  74 00  70 20000007
        63 20000008  71 00001388  6d 00000001  64 00000004  66 00000003  61 00000002  6f 00000005
        43 65000002  41 65000003  55 65000004  45 65000005  42 65000006  4f 6f666600  4d 00
        57 0007 00000001 00000002 00000003 00000004 00000005 00000006 00000007
        44 65000007  5a 00000008
    03 00000001 00000001
        74 02  6c 0002  76 00000003  6d 65000008  61 00000004  6f 00000005  62 01ff
        70 00000000  73 65000009
        41 0000001c 00000001 00000001 00000001 00000000 ffffff34 0000007f ";

/// The rest, behind the zeros that fill the access list.
const GOLDEN_REST: &str = "
        66 00000003 646972
    03 00000002 00000006
        74 01  6c 0001  76 00000000  6d 6500000a  61 00000004  6f 00000005  67 00000007  62 01a4
        70 00000001  73 6500000b
    03 00000004 00000007
        74 03  6c 0001  76 00000001  6d 6500000c  61 00000004  6f 00000005  62 01ff
        70 00000001  73 6500000d  68 00000000 00000002 6162
    03 00000006 00000008
    04 3a214b6e";

fn golden() -> Vec<u8> {
    [unhex(GOLDEN), vec![0; 192 - 28], unhex(GOLDEN_REST)].concat()
}

fn golden_volume() -> VolumeAttributes {
    VolumeAttributes {
        volume: 0x2000_0007,
        stamp_version: 1,
        name: b"vol".into(),
        in_service: 1,
        blessed: 1,
        next_unique: 9,
        kind: 0,
        parent: 0x2000_0007,
        clone: 0x2000_0008,
        max_quota: 5000,
        min_quota: 1,
        disk_used: 4,
        files: 3,
        account: 2,
        owner: 5,
        created: 0x6500_0002,
        accessed: 0x6500_0003,
        updated: 0x6500_0004,
        expires: 0x6500_0005,
        backed_up: 0x6500_0006,
        offline_message: b"off".into(),
        motd: vec![],
        week_use: vec![1, 2, 3, 4, 5, 6, 7],
        day_use_date: 0x6500_0007,
        day_use: 8,
        update_counter: None,
    }
}

fn golden_items() -> Vec<DumpItem<'static>> {
    let acl = StoredAcl { positive: vec![(-204, AfsRights(127))], negative: vec![] };
    let dir = VnodeAttributes {
        kind: 2,
        link_count: 2,
        data_version: 3,
        client_mod_time: 0x6500_0008,
        author: 4,
        owner: 5,
        mode: 0o777,
        parent: 0,
        server_mod_time: 0x6500_0009,
        group: None,
        acl: Some(Box::new(acl.to_bytes().unwrap())),
    };
    let file = VnodeAttributes {
        kind: 1,
        link_count: 1,
        data_version: 0,
        client_mod_time: 0x6500_000a,
        author: 4,
        owner: 5,
        mode: 0o644,
        parent: 1,
        server_mod_time: 0x6500_000b,
        group: Some(7),
        acl: None,
    };
    let symlink = VnodeAttributes {
        kind: 3,
        data_version: 1,
        client_mod_time: 0x6500_000c,
        mode: 0o777,
        server_mod_time: 0x6500_000d,
        group: None,
        ..file.clone()
    };
    let header =
        DumpAttributes { volume: 0x2000_0007, name: b"vol".into(), times: vec![(0, 0x6500_0001)] };
    vec![
        DumpItem::Header { version: 1, tags: header.to_tags() },
        DumpItem::VolumeHeader { tags: golden_volume().to_tags() },
        DumpItem::Vnode { vnode: 1, unique: 1, tags: dir.to_tags() },
        DumpItem::Contents { bytes: 3, wide: false },
        DumpItem::Piece(b"dir"),
        DumpItem::Vnode { vnode: 2, unique: 6, tags: file.to_tags() },
        DumpItem::Vnode { vnode: 4, unique: 7, tags: symlink.to_tags() },
        DumpItem::Contents { bytes: 2, wide: true },
        DumpItem::Piece(b"ab"),
        DumpItem::Vnode { vnode: 6, unique: 8, tags: vec![] },
        DumpItem::End,
    ]
}

#[test]
fn a_dump_has_its_bytes_in_pieces_of_any_size() {
    assert_eq!(hex(&written(&golden_items())), hex(&golden()));
    for step in (1..40).chain([golden().len()]) {
        assert_eq!(parse(&golden(), step), Ok(golden_items()), "{step}");
    }
}

#[test]
fn attributes_have_their_meaning() {
    let items = parse(&golden(), 7).unwrap();
    let DumpItem::VolumeHeader { tags } = &items[1] else { panic!() };
    assert_eq!(VolumeAttributes::from_tags(tags), golden_volume());
    let DumpItem::Header { tags, .. } = &items[0] else { panic!() };
    assert_eq!(DumpAttributes::from_tags(tags).times, [(0, 0x6500_0001)]);
    assert_eq!(DumpAttributes::from_tags(tags).to_tags(), *tags);
    for item in &items {
        let DumpItem::Vnode { tags, .. } = item else { continue };
        if !tags.is_empty() {
            assert_eq!(VnodeAttributes::from_tags(tags).to_tags(), *tags);
        }
    }
    // Of two the last counts, one of another form does not, and a missing one is its default.
    let volume = VolumeAttributes::from_tags(&[int(b'q', 1), int(b'q', 2), int(b's', 1)]);
    assert_eq!((volume.max_quota, volume.in_service, volume.update_counter), (2, 0, None));
    let counted = VolumeAttributes { update_counter: Some(3), ..golden_volume() };
    assert_eq!(counted.to_tags().last(), Some(&int(b'V', 3)));
    assert_eq!(VolumeAttributes::from_tags(&counted.to_tags()), counted);
}

/// The fixed parts of a dump around other sections.
fn around(middle: &str) -> Vec<u8> {
    unhex(&format!("01 b3a11322 00000001 76 00000001 02 {middle} 04 3a214b6e"))
}

/// Those of AFS/OSD, and all that the rules for unknown ones allow.
#[test]
fn unknown_attributes_are_kept() {
    let middle = "79 00000005  50 03 010203  50 00  51 81 02 0a0b  52 82 0001 0c  7b 7f \
        03 00000002 00000003 64 00000001  7e 4f 02 aabb  78 00000001  4c 04 00000007";
    let bytes = around(middle);
    let standard = |letter, bytes: &str| tag(letter, TagValue::Standard(unhex(bytes)));
    let items = parse(&bytes, 3).unwrap();
    assert_eq!(
        items[1],
        DumpItem::VolumeHeader {
            tags: vec![
                int(b'y', 5),
                standard(0x50, "03 010203"),
                standard(0x50, "00"),
                standard(0x51, "81 02 0a0b"),
                standard(0x52, "82 0001 0c"),
                tag(0x7b, TagValue::Mark),
                tag(0x7f, TagValue::Mark),
            ]
        }
    );
    assert_eq!(
        items[2],
        DumpItem::Vnode {
            vnode: 2,
            unique: 3,
            tags: vec![
                int(b'd', 1),
                tag(0x7e, TagValue::Mark),
                standard(b'O', "02 aabb"),
                int(b'x', 1),
                standard(b'L', "04 00000007"),
            ]
        }
    );
    assert_eq!(written(&items), bytes);
}

/// The same tag has another form in another section, or none.
#[test]
fn the_section_decides_the_form() {
    let forms = "74 01  62 02  6c 00000005  41 00000003  68 00000004  66 00000005 \
        03 00000001 00000001  74 01  62 0203  6c 0005  6e 00000006  57 01 07";
    let bytes = around(forms);
    let items = parse(&bytes, 5).unwrap();
    let byte = |letter, value| tag(letter, TagValue::Byte(value));
    let short = |letter, value| tag(letter, TagValue::Short(value));
    assert_eq!(
        items[1],
        DumpItem::VolumeHeader {
            tags: vec![
                byte(b't', 1),
                byte(b'b', 2),
                int(b'l', 5),
                int(b'A', 3),
                int(b'h', 4),
                int(b'f', 5),
            ]
        }
    );
    assert_eq!(
        items[2],
        DumpItem::Vnode {
            vnode: 1,
            unique: 1,
            tags: vec![
                byte(b't', 1),
                short(b'b', 0x203),
                short(b'l', 5),
                int(b'n', 6),
                tag(b'W', TagValue::Standard(vec![1, 7])),
            ]
        }
    );
    assert_eq!(written(&items), bytes);
}

#[test]
fn attributes_behind_contents_are_kept() {
    let bytes =
        around("03 00000002 00000003 66 00000001 78 74 01 66 00000000 68 00000000 00000001 79");
    let items = parse(&bytes, 4).unwrap();
    let contents = |bytes, wide| DumpItem::Contents { bytes, wide };
    assert_eq!(
        items[2..],
        [
            DumpItem::Vnode { vnode: 2, unique: 3, tags: vec![] },
            contents(1, false),
            DumpItem::Piece(b"x"),
            DumpItem::Further { tags: vec![tag(b't', TagValue::Byte(1))] },
            contents(0, false),
            contents(1, true),
            DumpItem::Piece(b"y"),
            DumpItem::End,
        ]
    );
    assert_eq!(written(&items), bytes);
}

#[test]
fn contents_from_4_gib_on_have_a_large_size() {
    let item = DumpItem::Contents { bytes: 0x1_0000_0002, wide: false };
    assert_eq!(hex(&written(&[item])), hex(&unhex("68 00000001 00000002")));
    let item = DumpItem::Contents { bytes: 0xffff_ffff, wide: false };
    assert_eq!(hex(&written(&[item])), hex(&unhex("66 ffffffff")));
}

/// Merged dumps have several headers of the volume.
#[test]
fn a_dump_may_have_several_volume_headers() {
    let bytes = around("03 00000002 00000003 02 69 00000001 03 00000002 00000003 02");
    let items = parse(&bytes, 6).unwrap();
    let headers = items.iter().filter(|item| matches!(item, DumpItem::VolumeHeader { .. }));
    assert_eq!(headers.count(), 3);
    assert_eq!(written(&items), bytes);
}

#[test]
fn bytes_that_are_no_dump_are_refused() {
    use DumpStreamError::*;
    let refused = |text: &str| parse(&unhex(text), 1).unwrap_err();
    let header = "01 b3a11322 00000001";
    assert_eq!(refused("01 b3a11323 00000001"), BadMagic);
    assert_eq!(refused("02"), BadMagic);
    assert_eq!(refused("03 00000001 00000001"), BadMagic);
    assert_eq!(refused("41"), BadMagic);
    assert_eq!(refused(""), Truncated);
    assert_eq!(refused(&format!("{header} 04 3a214b6e")), BadSection(4));
    assert_eq!(refused(&format!("{header} 03 00000001 00000001")), BadSection(3));
    assert_eq!(refused(&format!("{header} {header}")), BadSection(1));
    assert_eq!(refused(&format!("{header} 02 {header}")), BadSection(1));
    assert_eq!(refused(&format!("{header} 02 04 3a214b6f")), BadMagic);
    assert_eq!(refused(&format!("{header} 02 04 3a214b6e 00")), Trailing);
    for section in [0, 5, 20] {
        assert_eq!(refused(&format!("{header} 02 {section:02x}")), BadSection(section));
    }
    for tag in [0x80, 0xff] {
        assert_eq!(refused(&format!("{header} 02 {tag:02x}")), BadTag(tag));
    }
}

/// A section that grows without end, in one attribute or in many, is refused before it is stored.
#[test]
fn sections_are_bounded() {
    let header = unhex("01 b3a11322 00000001 02");
    let endless = [&header[..], b"n", &vec![b'a'; SECTION_BYTES_MAX]].concat();
    assert_eq!(parse(&endless, 1000), Err(DumpStreamError::TooLong));
    let many = [&header[..], &b"q\0\0\0\0".repeat(SECTION_BYTES_MAX / 5 + 1)].concat();
    assert_eq!(parse(&many, 1000), Err(DumpStreamError::TooLong));
    let huge = [&header[..], &unhex("50 88 ffffffff ffffffff")].concat();
    assert_eq!(parse(&[&huge[..], b"x"].concat(), 1), Err(DumpStreamError::TooLong));
    // Just as much as is allowed, in two sections.
    let text = [&b"n"[..], &vec![b'a'; SECTION_BYTES_MAX - 2], b"\0"].concat();
    let end = unhex("04 3a214b6e");
    let most = [&header[..], &text, &[2], &text, &end].concat();
    assert!(parse(&most, 1000).is_ok());
}

#[test]
fn a_dump_that_ends_early_is_noticed() {
    let golden = golden();
    for length in 0..golden.len() {
        assert_eq!(parse(&golden[..length], 50), Err(DumpStreamError::Truncated), "{length}");
    }
}

fn any_tag(in_vnode: bool) -> impl Strategy<Value = DumpTag> {
    let letters = if in_vnode { (b't', b'l', b'B') } else { (b's', 0, b'n') };
    let text = vec(1_u8.., 0..9).prop_map(TagValue::Text);
    let array = vec(any::<u32>(), 0..5).prop_map(TagValue::Array);
    let standard = vec(any::<u8>(), 0..400).prop_map(|value| {
        let length = match value.len() {
            small @ ..0x80 => vec![small as u8],
            large @ ..0x100 => vec![0x81, large as u8],
            larger => vec![0x82, (larger >> 8) as u8, larger as u8],
        };
        TagValue::Standard([length, value].concat())
    });
    let standard = standard.prop_map(|value| tag(0x5b, value)).boxed();
    let acl = any::<[u8; 32]>().prop_map(|some| {
        let mut bytes = [0; 192];
        bytes[..32].copy_from_slice(&some);
        tag(b'A', TagValue::Acl(Box::new(bytes)))
    });
    prop_oneof![
        any::<u8>().prop_map(move |value| tag(letters.0, TagValue::Byte(value))),
        any::<u16>().prop_map(move |value| match in_vnode {
            true => tag(letters.1, TagValue::Short(value)),
            false => tag(b'C', TagValue::Int(value.into())),
        }),
        any::<u32>().prop_map(|value| int(b'x', value)),
        match in_vnode {
            true => acl.boxed(),
            false => text.prop_map(|value| tag(b'O', value)).boxed(),
        },
        match in_vnode {
            true => standard.clone(),
            false => array.prop_map(|value| tag(b'W', value)).boxed(),
        },
        standard,
        Just(tag(0x7e, TagValue::Mark)),
    ]
}

fn any_vnode() -> impl Strategy<Value = Vec<DumpItem<'static>>> {
    let front = (any::<(u32, u32)>(), vec(any_tag(true), 0..6));
    let contents = prop::option::of((vec(any::<u8>(), 0..50), any::<bool>()));
    (front, contents, vec(any_tag(true), 0..3)).prop_map(
        |(((vnode, unique), tags), contents, further)| {
            let mut items = vec![DumpItem::Vnode { vnode, unique, tags }];
            if let Some((data, wide)) = contents {
                items.push(DumpItem::Contents { bytes: data.len() as u64, wide });
                settle(&mut items, &mut data.clone());
                if !further.is_empty() {
                    items.push(DumpItem::Further { tags: further });
                }
            }
            items
        },
    )
}

fn any_dump() -> impl Strategy<Value = Vec<DumpItem<'static>>> {
    let vnodes = vec(any_vnode(), 0..6);
    (any::<u32>(), vec(any_tag(false), 0..8), vnodes).prop_map(|(version, tags, vnodes)| {
        let mut items = vec![
            DumpItem::Header { version, tags: DumpAttributes::default().to_tags() },
            DumpItem::VolumeHeader { tags },
        ];
        items.extend(vnodes.into_iter().flatten());
        items.push(DumpItem::End);
        items
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn dumps_come_back(items in any_dump(), step in 1_usize..70) {
        let bytes = written(&items);
        prop_assert_eq!(parse(&bytes, step), Ok(items));
    }

    /// All that is accepted comes out again byte for byte.
    #[test]
    fn damaged_dumps_are_harmless(
        damage in vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        step in 1_usize..70,
    ) {
        let mut bytes = golden();
        for (at, byte) in damage {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        if let Ok(items) = parse(&bytes, step) {
            prop_assert_eq!(written(&items), bytes);
        }
    }
}
