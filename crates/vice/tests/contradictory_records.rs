//! Records that contradict each other, as only damage leaves them: a change that meets them is
//! refused, and changes nothing.

use crate::common::{Ground, Rig, name, remove};
use store::Update;
use types::{Call, Caller, Fault, Fid, NewKind, RemoveWhat, RenameMode};

/// Sets the vnode's number of links.
fn set_links(rig: &Rig, fid: Fid, links: u32) {
    let volume = rig.vice().partition().volumes().volume(fid.volume).unwrap().unwrap();
    let mut vnode = volume.vnode(fid.vnode).unwrap().unwrap();
    vnode.status.links = links;
    let mut update = Update::new();
    update.put_vnode(&vnode);
    volume.commit(update).unwrap();
}

/// The call is refused, and the name is unchanged.
fn refused(rig: &mut Rig, dir: Fid, at: &str, call: Call) {
    let before = rig.look(0, dir, at).unwrap();
    assert_eq!(rig.call(0, &Caller::ROOT, call), Err(Fault::Damaged));
    assert_eq!(rig.look(0, dir, at), Ok(before));
}

fn rename(from_dir: Fid, from: &str, to_dir: Fid, to: &str, mode: RenameMode) -> Call {
    Call::Rename { from_dir, from: name(from), to_dir, to: name(to), mode, hold: false }
}

#[test]
fn a_named_file_without_links_is_not_removed() {
    let mut rig = Rig::new(Ground::memory(), 1);
    let root = rig.root();
    for (at, kind, what) in [
        ("file", NewKind::File, RemoveWhat::File),
        ("point", NewKind::MountPoint("#home".into()), RemoveWhat::MountPoint),
    ] {
        let fid = rig.make(0, &Caller::ROOT, root, at, kind, 0o644);
        set_links(&rig, fid, 0);
        refused(&mut rig, root, at, Call::Remove { dir: root, name: name(at), what, hold: false });
    }
    rig.file(root, "other");
    refused(&mut rig, root, "file", rename(root, "other", root, "file", RenameMode::Replace));
    assert!(rig.call(0, &Caller::ROOT, remove(root, "other")).is_ok(), "what is sound goes on");
}

#[test]
fn a_directory_that_counts_less_than_it_names_loses_none_of_it() {
    let mut rig = Rig::new(Ground::memory(), 1);
    let root = rig.root();
    let (outer, other) = (rig.directory(root, "outer"), rig.directory(root, "other"));
    for at in ["inner", "second"] {
        rig.directory(outer, at);
    }
    rig.file(other, "file");
    set_links(&rig, outer, 0);
    let what = RemoveWhat::Directory;
    refused(
        &mut rig,
        outer,
        "inner",
        Call::Remove { dir: outer, name: name("inner"), what, hold: false },
    );
    refused(&mut rig, outer, "inner", rename(outer, "inner", other, "inner", RenameMode::Replace));
    refused(&mut rig, outer, "inner", rename(outer, "inner", outer, "second", RenameMode::Replace));
    refused(&mut rig, outer, "inner", rename(other, "file", outer, "inner", RenameMode::Exchange));
}
