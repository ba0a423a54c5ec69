//! Dumps that OpenAFS 1.8.9 made.
//!
//! `new-volume.dump` is of a volume that was just created. For `salvaged.dump` a volume was
//! restored from a dump that this crate wrote. The salvager found no fault with its directories,
//! and was then told to make them anew (`-salvagedirs`), so all of their pages are by OpenAFS. It
//! takes the entries of the old directory by their chains.

use super::fixtures::hex;
use crate::directory::{DirectoryReader, DirectoryWriter};
use crate::dump::*;
use crate::rights::{AfsRights, StoredAcl};

const NEW_VOLUME: &[u8] = include_bytes!("../../tests/dumps/new-volume.dump");
const SALVAGED: &[u8] = include_bytes!("../../tests/dumps/salvaged.dump");

/// A vnode of a dump with its contents.
struct Dumped {
    vnode: u32,
    unique: u32,
    attributes: VnodeAttributes,
    contents: Vec<u8>,
}

/// The volume and the vnodes of a dump. Checks that its items are the same bytes again.
fn read(bytes: &[u8]) -> (VolumeAttributes, Vec<Dumped>) {
    let mut parser = DumpParser::new();
    let (mut volume, mut vnodes, mut again) = (None, Vec::<Dumped>::new(), Vec::new());
    for mut input in bytes.chunks(100) {
        while let Some(item) = parser.next(&mut input).unwrap() {
            item.encode(&mut again);
            match item {
                DumpItem::Header { version, tags } => {
                    assert_eq!(version, DUMP_VERSION);
                    assert_eq!(DumpAttributes::from_tags(&tags).to_tags(), tags);
                }
                DumpItem::VolumeHeader { tags } => {
                    let attributes = VolumeAttributes::from_tags(&tags);
                    assert_eq!(attributes.to_tags(), tags);
                    volume = Some(attributes);
                }
                DumpItem::Vnode { vnode, unique, tags } => {
                    let attributes = VnodeAttributes::from_tags(&tags);
                    assert_eq!(attributes.to_tags(), tags);
                    vnodes.push(Dumped { vnode, unique, attributes, contents: vec![] });
                }
                DumpItem::Contents { wide, .. } => assert!(!wide),
                DumpItem::Piece(piece) => vnodes.last_mut().unwrap().contents.extend(piece),
                DumpItem::Further { .. } => panic!("attributes behind contents"),
                DumpItem::End => {}
            }
        }
    }
    parser.finish().unwrap();
    assert_eq!(hex(&again), hex(bytes));
    (volume.unwrap(), vnodes)
}

/// The names, vnodes and uniquifiers of a directory by its chains, without "." and "..".
fn by_chains(pages: &[u8]) -> Vec<(Vec<u8>, u32, u32)> {
    let all: Vec<_> = DirectoryReader::new(pages).unwrap().entries().map(Result::unwrap).collect();
    let word = |at: usize| usize::from(pages[at]) << 8 | usize::from(pages[at + 1]);
    let mut found = Vec::new();
    for chain in 0..128 {
        let mut slot = word(160 + 2 * chain);
        while slot != 0 {
            let entry = all.iter().find(|entry| entry.slot == slot).unwrap();
            found.push((entry.name.to_vec(), entry.vnode, entry.unique));
            slot = word(32 * slot + 2);
        }
    }
    found.retain(|(name, ..)| name != b"." && name != b"..");
    found
}

/// The names of the restored volume, in the order in which they were added.
fn names() -> Vec<(Vec<u8>, u32, u32)> {
    let mut names: Vec<Vec<u8>> = (0..70).map(|no| format!("file-{no:03}").into_bytes()).collect();
    for (no, length) in [16, 47, 48, 79, 80, 200, 255, 15].into_iter().enumerate() {
        names[5 + no * 3].resize(length, b'x');
    }
    names[3] = b"\xc3\xa9t\xc3\xa9 \xff".to_vec();
    let file = |(no, name): (usize, Vec<u8>)| (name, 2 * no as u32 + 2, no as u32 + 10);
    let mut all = vec![(b"sub".to_vec(), 3, 2)];
    all.extend(names.into_iter().enumerate().map(file));
    all.push((b"link".to_vec(), 200, 500));
    all
}

fn made(own: (u32, u32), entries: &[(Vec<u8>, u32, u32)]) -> Vec<u8> {
    let mut writer = DirectoryWriter::new(own, (1, 1));
    entries.iter().for_each(|(name, vnode, unique)| writer.add(name, *vnode, *unique).unwrap());
    writer.finish()
}

#[test]
fn a_new_volume_of_openafs_has_an_empty_root() {
    let (volume, vnodes) = read(NEW_VOLUME);
    assert_eq!((&volume.name[..], volume.kind, volume.in_service), (&b"test"[..], 0, 1));
    let [root] = &vnodes[..] else { panic!("{} vnodes", vnodes.len()) };
    assert_eq!((root.vnode, root.unique, root.attributes.kind), (1, 1, 2));
    assert_eq!((root.attributes.mode, root.attributes.link_count), (0o777, 2));
    assert_eq!(hex(&root.contents), hex(&made((1, 1), &[])));
    let acl = StoredAcl { positive: vec![(-204, AfsRights::ALL)], negative: vec![] };
    let stored = root.attributes.acl.as_ref().unwrap();
    assert_eq!(StoredAcl::from_bytes(stored), Ok(acl));
}

#[test]
fn directories_of_openafs_are_as_ours_byte_for_byte() {
    let (_, vnodes) = read(SALVAGED);
    assert_eq!(vnodes.len(), 73);
    let directory = |vnode| &vnodes.iter().find(|one| one.vnode == vnode).unwrap().contents;
    let restored = made((1, 1), &names());
    let anew = made((1, 1), &by_chains(&restored));
    assert_ne!(restored, anew);
    assert_eq!(hex(directory(1)), hex(&anew));
    assert_eq!(hex(directory(3)), hex(&made((3, 2), &[])));
    let mut expected = by_chains(&restored);
    let mut found = by_chains(directory(1));
    expected.sort();
    found.sort();
    assert_eq!(found, expected);
}

/// The salvager finds nothing to mend in them.
#[test]
fn access_lists_of_ours_are_kept_by_openafs() {
    let (_, vnodes) = read(SALVAGED);
    let list = StoredAcl {
        positive: vec![(-204, AfsRights(127)), (-101, AfsRights(9)), (7, AfsRights(0x0100_0009))],
        negative: vec![(-102, AfsRights(2)), (8, AfsRights(2))],
    };
    for one in vnodes.iter().filter(|one| one.attributes.kind == 2) {
        let stored = one.attributes.acl.as_ref().unwrap();
        assert_eq!(hex(&stored[..]), hex(&list.to_bytes().unwrap()), "vnode {}", one.vnode);
    }
}
