//! Volumes below mount points: each a file system of its own.

use std::fs;
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use rustix::io::Errno;
use types::{Call, Caller, CreateHow, Fid, Name, NewKind, VolumeCall, VolumeKind};

use crate::cell::{Cell, Client, Counted, eventually};

fn name(text: &str) -> Name {
    Name::new(text.as_bytes()).unwrap()
}

fn root(cell: &Cell, volume: &str) -> Fid {
    cell.root(volume)
}

fn make(cell: &Cell, dir: Fid, at: &str, kind: NewKind) -> Fid {
    let call = Call::Make { dir, name: name(at), kind, mode: 0o755, how: CreateHow::Guarded };
    match cell.session().call(&Caller::ROOT, call, None).unwrap().answer {
        types::Answer::Made { status, .. } => status.fid,
        other => panic!("{other:?}"),
    }
}

fn fid(cell: &Cell, dir: Fid, at: &str) -> Fid {
    match cell
        .session()
        .call(&Caller::ROOT, Call::Lookup { dir, name: name(at) }, None)
        .unwrap()
        .answer
    {
        types::Answer::Entry { status, .. } => status.fid,
        other => panic!("{other:?}"),
    }
}

fn point(cell: &Cell, volume: &str, at: &str, target: &str) {
    cell.point(volume, at, target);
}

/// `root` with `work` below it at `vol`, and `deep` below that at `deep`.
fn tree() -> Option<(Cell, Client)> {
    let cell = Cell::start()?;
    cell.add_volume("work");
    cell.add_volume("deep");
    point(&cell, "root", "vol", "#work");
    point(&cell, "work", "deep", "%deep");
    let client = cell.mount();
    Some((cell, client))
}

fn device(path: &Path) -> u64 {
    fs::symlink_metadata(path).unwrap().dev()
}

fn errno(error: &std::io::Error) -> Option<Errno> {
    Errno::from_io_error(error)
}

/// Seals the volume's state, or removes a sealed one.
fn administer(cell: &Cell, call: VolumeCall) {
    cell.session().call(&Caller::ROOT, Call::Volume(call), None).unwrap();
}

#[test]
fn snapshots_are_below_a_name_that_no_listing_has() {
    let Some((cell, client)) = tree() else { return };
    let names = |at: &str| {
        let mut names: Vec<String> = fs::read_dir(client.at(at))
            .unwrap()
            .map(|one| one.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    };
    fs::write(client.at("vol/file"), "then").unwrap();
    assert!(names("vol/.snapshots").is_empty());
    let of = root(&cell, "work").volume;
    for label in ["monday", "tuesday"] {
        let name = name(&format!("work.snapshot.{label}"));
        administer(
            &cell,
            VolumeCall::Clone { id: None, of, name, kind: VolumeKind::Snapshot, replace: false },
        );
        fs::write(client.at("vol/file"), label).unwrap();
    }
    assert_eq!(names("vol/.snapshots"), ["monday", "tuesday"]);
    assert_eq!(names("vol"), ["deep", "file"]);
    for (label, held) in [("monday", "then"), ("tuesday", "monday")] {
        let at = client.at(&format!("vol/.snapshots/{label}/file"));
        assert_eq!(fs::read_to_string(&at).unwrap(), held);
        assert_eq!(errno(&fs::write(&at, "x").unwrap_err()), Some(Errno::ROFS));
    }
    assert_eq!(fs::read_to_string(client.at("vol/file")).unwrap(), "tuesday");
    assert!(fs::symlink_metadata(client.at("vol/.snapshots/wednesday")).is_err());
    assert!(
        fs::symlink_metadata(client.at("vol/.snapshots/monday/.snapshots")).is_err(),
        "a snapshot has none"
    );
    for refused in [
        fs::create_dir(client.at("vol/.snapshots/new")),
        fs::write(client.at("vol/.snapshots/new"), "x"),
    ] {
        assert_eq!(errno(&refused.unwrap_err()), Some(Errno::ROFS));
    }
    administer(&cell, VolumeCall::Remove { id: root(&cell, "work.snapshot.monday").volume });
    assert_eq!(names("vol/.snapshots"), ["tuesday"]);
    assert_eq!(
        fs::create_dir(client.at(".snapshots")).unwrap_err().kind(),
        ErrorKind::AlreadyExists
    );
    // An entry of this name at the server takes precedence.
    make(&cell, root(&cell, "root"), ".snapshots", NewKind::File);
    assert!(fs::metadata(client.at(".snapshots")).unwrap().is_file());
}

#[test]
fn a_volume_is_a_file_system_of_its_own() {
    let Some((_cell, client)) = tree() else { return };
    assert_eq!(fs::read_dir(client.at("vol")).unwrap().count(), 1);
    assert_eq!(fs::read_dir(client.at("vol/deep")).unwrap().count(), 0);
    let (top, vol, deep) =
        (device(&client.at("")), device(&client.at("vol")), device(&client.at("vol/deep")));
    if crate::is_flat() {
        assert!(top == vol && vol == deep, "{top} {vol} {deep}");
        let number = |at: &str| fs::metadata(client.at(at)).unwrap().ino();
        assert!(
            number("") != number("vol") && number("vol") != number("vol/deep"),
            "roots have numbers of their own"
        );
    } else {
        assert!(top != vol && vol != deep && top != deep, "{top} {vol} {deep}");
    }
    fs::write(client.at("vol/deep/file"), "text").unwrap();
    assert_eq!(fs::read_to_string(client.at("vol/deep/file")).unwrap(), "text");
    assert_eq!(
        fs::canonicalize(client.at("vol/deep/../deep/file")).unwrap(),
        client.at("vol/deep/file")
    );
    fs::write(client.at("other"), "").unwrap();
    let across = fs::rename(client.at("other"), client.at("vol/other")).unwrap_err();
    assert_eq!(errno(&across), Some(Errno::XDEV));
    let across = fs::hard_link(client.at("other"), client.at("vol/other")).unwrap_err();
    assert_eq!(errno(&across), Some(Errno::XDEV));
}

#[test]
fn tools_respect_its_edge() {
    let Some((cell, filled)) = tree() else { return };
    fs::create_dir(filled.at("tree")).unwrap();
    fs::write(filled.at("tree/here"), "1").unwrap();
    make(
        &cell,
        fid(&cell, root(&cell, "root"), "tree"),
        "edge",
        NewKind::MountPoint("#deep".into()),
    );
    fs::write(filled.at("tree/edge/kept"), "3").unwrap();
    fs::write(filled.at("vol/inside"), "2").unwrap();
    // Nothing is mounted below this one yet.
    let client = cell.mount();
    let sh = |script: &str| {
        let output =
            Command::new("sh").args(["-c", script]).current_dir(client.at("")).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    if crate::is_flat() {
        // There is none.
        assert_eq!(sh("find tree -xdev | sort"), "tree\ntree/edge\ntree/edge/kept\ntree/here\n");
        return;
    }
    assert_eq!(sh("find . -xdev | sort"), ".\n./tree\n./tree/edge\n./tree/here\n./vol\n");
    assert_eq!(
        sh("tar --one-file-system -cf - . 2>/dev/null | tar -tf - | sort"),
        "./\n./tree/\n./tree/edge/\n./tree/here\n./vol/\n"
    );
    assert_eq!(sh("du -xa . | cut -f2 | sort"), ".\n./tree\n./tree/here\n");
    let rm = Command::new("rm")
        .args(["-rf", "--one-file-system"])
        .arg(client.at("tree"))
        .output()
        .unwrap();
    assert!(!rm.status.success());
    assert_eq!(
        fs::read_to_string(client.at("tree/edge/kept")).unwrap(),
        "3",
        "the volume keeps what it has"
    );
    assert!(!client.at("tree/here").exists());
}

#[test]
fn nothing_takes_a_mount_point_away_by_accident() {
    let Some((cell, client)) = tree() else { return };
    for mounted in [false, true] {
        if mounted {
            fs::write(client.at("vol/file"), "").unwrap();
        }
        for refused in [
            fs::remove_dir(client.at("vol")),
            fs::rename(client.at("vol"), client.at("elsewhere")),
            fs::create_dir(client.at("empty"))
                .and_then(|()| fs::rename(client.at("empty"), client.at("vol"))),
        ] {
            let error = refused.unwrap_err();
            assert_eq!(errno(&error), Some(Errno::BUSY), "{error}");
        }
        assert_eq!(errno(&fs::remove_file(client.at("vol")).unwrap_err()), Some(Errno::ISDIR));
        fs::remove_dir(client.at("empty")).unwrap();
    }
    assert!(cell.scrub().is_empty());
}

#[test]
fn what_leads_nowhere_is_listed_and_says_so() {
    let Some((cell, client)) = tree() else { return };
    point(&cell, "root", "nothing", "#nothing");
    point(&cell, "root", "foreign", "#elsewhere.org:work");
    point(&cell, "work", "loop", "#root");
    let mut names: Vec<_> =
        fs::read_dir(client.at("")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["foreign", "nothing", "vol"]);
    for at in ["nothing", "foreign"] {
        assert!(fs::metadata(client.at(at)).unwrap().is_dir(), "{at}");
        assert_eq!(errno(&fs::read_dir(client.at(at)).unwrap_err()), Some(Errno::NODEV), "{at}");
    }
    assert_eq!(errno(&fs::read_dir(client.at("vol/loop")).unwrap_err()), Some(Errno::LOOP));
    cell.add_volume("nothing");
    assert_eq!(fs::read_dir(client.at("nothing")).unwrap().count(), 0, "it is there now");
}

#[test]
fn a_mount_point_that_is_removed_elsewhere_is_gone_here() {
    let Some((cell, client)) = tree() else { return };
    fs::write(client.at("vol/file"), "").unwrap();
    let dir = root(&cell, "root");
    let what = types::RemoveWhat::MountPoint;
    cell.session()
        .call(&Caller::ROOT, Call::Remove { dir, name: name("vol"), what, hold: false }, None)
        .unwrap();
    assert_eq!(fs::metadata(client.at("vol")).unwrap_err().kind(), ErrorKind::NotFound);
    point(&cell, "root", "vol", "#deep");
    assert_eq!(fs::read_dir(client.at("vol")).unwrap().count(), 0, "another volume");
}

#[test]
fn cb7_a_working_directory_survives_changes_above_its_volume() {
    let Some((cell, client)) = tree() else { return };
    fs::write(client.at("vol/deep/file"), "").unwrap();
    let other = cell.mount();
    let mut shell = Command::new("sh");
    // If all names end at once, the directory has none while it is looked up again.
    let tries = if crate::is_flat() { "1 2 3 4 5" } else { "1" };
    let script = format!(
        r#"here() {{
            for _ in {tries}; do /bin/pwd && return; done
            ls -l /proc/$$/cwd >&2
            exit 7
        }}
        cd "$0/vol/deep" && while test ! -e ../../end; do
            here >/dev/null
            test -e file || exit 8
        done
        here"#
    );
    let child = shell
        .args(["-c", &script])
        .arg(client.at(""))
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let inside = device(&client.at("vol/deep"));
    for at in 0..2000 {
        fs::create_dir(other.at(&format!("dir-{at}"))).unwrap();
        if at % 10 == 0 {
            assert_eq!(
                fs::metadata(client.at(&format!("dir-{at}"))).unwrap().dev(),
                device(&client.at(""))
            );
            assert!(!client.at(&format!("dir-{}", at + 1)).exists());
        }
        if at % 3 == 0 {
            fs::remove_dir(other.at(&format!("dir-{at}"))).unwrap();
            assert!(at % 10 != 0 || !client.at(&format!("dir-{at}")).exists());
        }
    }
    assert_eq!(device(&client.at("vol/deep")), inside, "it was not mounted anew");
    fs::write(other.at("end"), "").unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(
        String::from_utf8_lossy(&output.stdout).trim(),
        client.at("vol/deep").to_str().unwrap()
    );
}

#[test]
fn changes_are_seen_across_clients_in_every_volume() {
    let Some((cell, client)) = tree() else { return };
    let other = cell.mount();
    for at in ["here", "vol/there", "vol/deep/far"] {
        assert!(!client.at(at).exists());
        fs::write(other.at(at), at).unwrap();
        assert_eq!(fs::read_to_string(client.at(at)).unwrap(), at);
        fs::write(client.at(at), "changed").unwrap();
        assert_eq!(fs::read_to_string(other.at(at)).unwrap(), "changed");
        fs::remove_file(other.at(at)).unwrap();
        assert!(!client.at(at).exists());
    }
}

#[test]
fn the_kernel_reads_large_files_of_each_volume_itself() {
    let Some((cell, client)) = tree() else { return };
    let (work, deep) = (root(&cell, "work"), root(&cell, "deep"));
    // Their first files have the same numbers in all volumes.
    let files = [("large", 1_u8), ("vol/large", 2), ("vol/deep/large", 3)];
    let bytes = |seed: u8| vec![seed; 2 << 20];
    files.iter().for_each(|(at, seed)| fs::write(client.at(at), bytes(*seed)).unwrap());
    let mut open = Vec::new();
    eventually("each volume's is passed", || {
        // A file that is open through the mount stays open for other users of it.
        open.clear();
        open =
            files.iter().map(|(at, _)| fs::File::open(client.at(at)).unwrap()).collect::<Vec<_>>();
        (client.passed(), client.passed_in(work), client.passed_in(deep)) == (1, 1, 1)
    });
    for ((at, seed), file) in files.iter().zip(&open) {
        let mut here = Vec::new();
        std::io::Read::read_to_end(&mut &*file, &mut here).unwrap();
        assert!(here == bytes(*seed), "{at}");
    }
    let other = cell.mount();
    fs::write(other.at("vol/large"), bytes(7)).unwrap();
    assert!(fs::read(client.at("vol/large")).unwrap() == bytes(7));
    assert!(fs::read(client.at("vol/deep/large")).unwrap() == bytes(3));
}

#[test]
fn the_last_writes_survive_the_unmount_of_an_idle_volume() {
    let Some(cell) = Cell::start() else { return };
    cell.add_volume("work");
    point(&cell, "root", "vol", "#work");
    let client = cell.mount_idle(std::time::Duration::from_millis(50));
    for round in 0..5 {
        let name = format!("vol/file-{round}");
        fs::write(client.at(&name), &name).unwrap();
        eventually("it is unmounted", || client.volumes_below() == 0);
        assert_eq!(fs::read_to_string(client.at(&name)).unwrap(), name);
        let count = fs::read_dir(client.at("vol")).unwrap().count();
        assert_eq!(count, round + 1);
    }
}

#[test]
fn idle_volumes_are_unmounted_and_come_again() {
    let Some(cell) = Cell::start() else { return };
    cell.add_volume("work");
    point(&cell, "root", "vol", "#work");
    let client = cell.mount_idle(std::time::Duration::from_millis(200));
    fs::write(client.at("vol/file"), "text").unwrap();
    assert_eq!(client.volumes_below(), 1);
    eventually("it is unmounted", || client.volumes_below() == 0);
    assert_eq!(fs::read_to_string(client.at("vol/file")).unwrap(), "text");
    let open = fs::File::open(client.at("vol/file")).unwrap();
    std::thread::sleep(std::time::Duration::from_millis(900));
    assert_eq!(client.volumes_below(), 1, "it is in use");
    drop(open);
    eventually("it is unmounted again", || client.volumes_below() == 0);
}

#[test]
fn an_unmount_takes_all_of_them_along() {
    let Some((_cell, client)) = tree() else { return };
    fs::write(client.at("vol/deep/file"), "").unwrap();
    let at = client.at("");
    drop(client);
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
    assert!(!table.contains(at.to_str().unwrap().trim_end_matches('/')), "{table}");
}

#[test]
fn a_volume_has_its_own_room() {
    let Some((cell, client)) = tree() else { return };
    let session = cell.session();
    session
        .call(
            &Caller::ROOT,
            Call::SetQuota { fid: root(&cell, "work"), bytes: 64 << 20, files: 0 },
            None,
        )
        .unwrap();
    let room = |at: &str| rustix::fs::statvfs(client.at(at)).unwrap();
    assert_eq!(room("vol").f_blocks * room("vol").f_frsize, 64 << 20);
    assert!(room("").f_blocks > room("vol").f_blocks);
}

#[test]
fn mount_points_are_made_read_and_removed_through_attributes() {
    let Some((_cell, client)) = tree() else { return };
    let flags = rustix::fs::XattrFlags::empty();
    let dir = client.at("");
    assert!(!client.at("new").exists());
    rustix::fs::setxattr(&dir, "rialto.mount:new", b"%deep", flags).unwrap();
    eventually("it is seen", || client.at("new").exists());
    fs::write(client.at("new/file"), "").unwrap();
    let mut value = [0; 100];
    let length = rustix::fs::getxattr(&dir, "rialto.mount:new", &mut value).unwrap();
    assert_eq!(&value[..length], b"%deep");
    assert_eq!(rustix::fs::setxattr(&dir, "rialto.mount:new", b"%deep", flags), Err(Errno::EXIST));
    assert_eq!(rustix::fs::setxattr(&dir, "rialto.mount:bad", b"deep", flags), Err(Errno::INVAL));
    assert_eq!(rustix::fs::getxattr(&dir, "rialto.mount:absent", &mut value), Err(Errno::NODATA));
    assert_eq!(rustix::fs::getxattr(&dir, "rialto.nonsense", &mut value), Err(Errno::NODATA));
    rustix::fs::removexattr(&dir, "rialto.mount:new").unwrap();
    eventually("it is gone", || !client.at("new").exists());
    rustix::fs::setxattr(&dir, "rialto.mount:again", b"%deep", flags).unwrap();
    eventually("the volume kept what it had", || client.at("again/file").exists());
}

/// Reads an attribute of a path.
fn attribute(path: &Path, name: &str) -> Result<String, Errno> {
    let mut value = vec![0; 4096];
    let length = rustix::fs::getxattr(path, name, &mut value)?;
    Ok(String::from_utf8_lossy(&value[..length]).into_owned())
}

#[test]
fn a_mount_point_moves_as_itself_and_only_within_its_volume() {
    let Some((_cell, client)) = tree() else { return };
    fs::write(client.at("vol/file"), "text").unwrap();
    fs::create_dir(client.at("dir")).unwrap();
    fs::write(client.at("plain"), "").unwrap();
    let flags = rustix::fs::XattrFlags::empty();
    let moves = |name: &str, to: &str| {
        rustix::fs::setxattr(client.at(""), format!("rialto.move:{name}"), to.as_bytes(), flags)
            .err()
    };
    let to = |dir: &str, name: &str| {
        format!("{}/{name}", attribute(&client.at(dir), "rialto.fid").unwrap())
    };
    assert_eq!(moves("vol", &to("vol", "x")), Some(Errno::XDEV));
    assert_eq!(moves("vol", &to("", "dir")), Some(Errno::EXIST));
    assert_eq!(moves("plain", &to("dir", "plain")), Some(Errno::INVAL));
    assert_eq!(moves("absent", &to("dir", "x")), Some(Errno::NOENT));
    let volume = attribute(&client.at(""), "rialto.volume").unwrap();
    assert_eq!(
        moves("vol", &format!("{volume}.999.3/x")),
        Some(Errno::STALE),
        "nobody came by there"
    );
    for bad in ["", "x", "1.1/x", "/x"] {
        assert_eq!(moves("vol", bad), Some(Errno::INVAL), "{bad}");
    }
    assert_eq!(moves("vol", &to("dir", "vol")), None);
    eventually("it is gone", || !client.at("vol").exists());
    eventually("it is there", || client.at("dir/vol/file").exists());
    assert_eq!(attribute(&client.at("dir"), "rialto.mount:vol").unwrap(), "#work");
    assert_eq!(fs::read_to_string(client.at("dir/vol/file")).unwrap(), "text");
    fs::write(client.at("dir/vol/deep/file"), "deep").unwrap();
    for _ in 0..3 {
        for (from, to_dir) in [("dir", ""), ("", "dir")] {
            let order = to(to_dir, "vol");
            rustix::fs::setxattr(client.at(from), "rialto.move:vol", order.as_bytes(), flags)
                .unwrap();
            let there = client.at(to_dir).join("vol/deep");
            eventually("it is there", || there.exists());
            assert_eq!(fs::read_to_string(there.join("file")).unwrap(), "deep");
            assert_eq!(device(&there) == device(there.parent().unwrap()), crate::is_flat());
        }
    }
}

#[test]
fn a_volume_displaced_in_the_mount_table_is_attached_again() {
    let Some((cell, client)) = tree() else { return };
    fs::write(client.at("vol/deep/file"), "deep").unwrap();
    let flags = rustix::fs::XattrFlags::empty();
    // Both are detached with it, and the numbers of their mounts are free.
    let order = format!("{}/moved", attribute(&client.at(""), "rialto.fid").unwrap());
    rustix::fs::setxattr(client.at(""), "rialto.move:vol", order.as_bytes(), flags).unwrap();
    eventually("it is there", || client.at("moved").exists());
    for volume in ["a", "b", "c"] {
        cell.add_volume(volume);
        point(&cell, "root", volume, &format!("#{volume}"));
        fs::write(client.at(volume).join("file"), volume).unwrap();
    }
    assert_eq!(fs::read_to_string(client.at("moved/deep/file")).unwrap(), "deep");
}

#[test]
fn volumes_tell_of_themselves() {
    let Some((cell, client)) = tree() else { return };
    fs::write(client.at("vol/file"), vec![1; 100_000]).unwrap();
    let about = |at: &str| -> serde_json::Value {
        serde_json::from_str(&attribute(&client.at(at), "rialto.about").unwrap()).unwrap()
    };
    let vol = about("vol/file");
    assert_eq!(vol["name"], "work");
    assert_eq!(vol["id"].to_string(), attribute(&client.at("vol"), "rialto.volume").unwrap());
    assert!(vol["used_bytes"].as_u64().unwrap() >= 100_000, "what is not sent yet counts: {vol}");
    assert_eq!(vol["sites"].as_array().unwrap().len(), 1);
    assert_eq!(about("")["name"], "root");
    let flags = rustix::fs::XattrFlags::empty();
    rustix::fs::setxattr(client.at("vol"), "rialto.quota", b"67108864 20", flags).unwrap();
    assert_eq!(attribute(&client.at("vol/file"), "rialto.quota").unwrap(), "67108864 20");
    let status = cell
        .session()
        .call(&Caller::ROOT, Call::VolumeStatus { fid: root(&cell, "work") }, None)
        .unwrap();
    assert!(
        matches!(status.answer, types::Answer::Volume(volume) if volume.quota_files == 20),
        "{status:?}"
    );
    assert_eq!(
        rustix::fs::setxattr(client.at("vol"), "rialto.quota", b"much", flags),
        Err(Errno::INVAL)
    );
    let found = attribute(&client.at(""), "rialto.find:%deep").unwrap();
    assert!(found.contains("\"deep\""), "{found}");
    assert_eq!(attribute(&client.at(""), "rialto.find:#absent"), Err(Errno::NODEV));
    assert!(attribute(&client.at(""), "rialto.cache").unwrap().contains("used_bytes"));
}

#[test]
fn what_is_forgotten_is_asked_for_again_and_nothing_is_lost() {
    let Some((_cell, client)) = tree() else { return };
    fs::create_dir(client.at("vol/dir")).unwrap();
    fs::write(client.at("vol/dir/file"), "text").unwrap();
    let open = fs::OpenOptions::new().append(true).open(client.at("vol/dir/file")).unwrap();
    for (at, order) in [
        ("vol/dir/file", "flush"),
        ("vol/dir", "flush"),
        ("vol", "flushvolume"),
        ("", "flushvolume"),
        ("vol", "flushall"),
        ("vol", "checkvolumes"),
        ("", "checkvolumes"),
    ] {
        std::io::Write::write_all(&mut &open, order.as_bytes()).unwrap();
        let before = fs::read_to_string(client.at("vol/dir/file")).unwrap();
        assert_eq!(
            attribute(&client.at(at), &format!("rialto.do:{order}")),
            Ok(String::new()),
            "{order}"
        );
        assert_eq!(fs::read_to_string(client.at("vol/dir/file")).unwrap(), before, "{order}");
        assert!(before.ends_with(order), "{before}");
    }
    let flush = || attribute(&client.at(""), "rialto.do:flushmount:vol");
    let inside = fs::File::open(client.at("vol/dir/file")).unwrap();
    assert_eq!(
        flush(),
        if crate::is_flat() { Ok(String::new()) } else { Err(Errno::BUSY) },
        "somebody is in it"
    );
    drop(inside);
    eventually("nobody is in it", || flush().is_ok());
    // The mount stays for its user.
    assert_eq!(client.volumes_below(), if crate::is_flat() { 1 } else { 0 });
    std::io::Write::write_all(&mut &open, b"end").unwrap();
    assert!(
        fs::read_to_string(client.at("vol/dir/file")).unwrap().ends_with("end"),
        "who was in it long ago still is"
    );
    assert_eq!(client.volumes_below(), 1);
    drop(open);
    let check = || attribute(&client.at(""), "rialto.do:checkvolumes").unwrap();
    eventually("nobody is in it", || {
        check().is_empty() && (crate::is_flat() || client.volumes_below() == 0)
    });
    assert_eq!(attribute(&client.at("vol"), "rialto.do:flushmount:dir"), Err(Errno::NODATA));
    assert_eq!(attribute(&client.at("vol"), "rialto.do:nonsense"), Err(Errno::NODATA));
}

/// Looks at the entries of the directory as shells and people do; returns their number.
fn look(dir: &Path) -> usize {
    let sh = |script: &str| {
        let said = Command::new("sh").args(["-c", script]).current_dir(dir).output().unwrap();
        assert!(said.status.success(), "{script}: {}", String::from_utf8_lossy(&said.stderr));
        String::from_utf8_lossy(&said.stdout).lines().count()
    };
    sh("ls -lA > /dev/null && stat * > /dev/null && test -d $(ls | head -n 1)");
    sh("python3 -c 'import os; [print(e.stat().st_ino) for e in os.scandir()]'")
}

#[test]
fn who_looks_at_mount_points_mounts_nothing() {
    const COUNT: usize = 300;
    let Some(cell) = Cell::start() else { return };
    for number in 0..COUNT {
        // Most lead nowhere: nothing may depend on what is behind.
        point(&cell, "root", &format!("user-{number:03}"), &format!("#user.{number}"));
    }
    for number in 0..3 {
        cell.add_volume(&format!("user.{number}"));
    }
    let counted = Counted::new(cell.session());
    let client = cell.mount_through(Arc::clone(&counted) as _);
    let before = counted.calls.load(Ordering::SeqCst);
    assert_eq!(look(&client.at("")), COUNT);
    assert_eq!(client.volumes_below(), 0, "nobody went through one");
    let calls = counted.calls.load(Ordering::SeqCst) - before;
    assert!(calls <= 20, "{calls} calls to look at {COUNT} mount points");
    for number in 0..3 {
        fs::write(client.at(&format!("user-{number:03}/file")), "text").unwrap();
        assert_eq!(client.volumes_below(), number + 1);
    }
    assert_eq!(look(&client.at("")), COUNT);
    assert_eq!(client.volumes_below(), 3);
}

#[test]
fn each_way_into_a_volume_that_was_only_looked_at() {
    let Some((cell, first)) = tree() else { return };
    fs::write(first.at("vol/file"), "text").unwrap();
    fs::write(first.at("vol/deep/file"), "deep").unwrap();
    type Way = fn(&Path) -> String;
    let ways: [(&str, Way); 5] = [
        ("read", |vol| fs::read_to_string(vol.join("file")).unwrap()),
        ("list", |vol| {
            fs::read_dir(vol).unwrap().for_each(|one| drop(one.unwrap()));
            "text".to_owned()
        }),
        ("walk", |vol| {
            assert_eq!(fs::metadata(vol.join("deep/file")).unwrap().len(), 4);
            "text".to_owned()
        }),
        ("go", |vol| {
            let said = Command::new("cat").arg("file").current_dir(vol).output().unwrap();
            String::from_utf8(said.stdout).unwrap()
        }),
        ("hold", |vol| {
            let flags = rustix::fs::OFlags::PATH | rustix::fs::OFlags::DIRECTORY;
            let held = rustix::fs::open(vol, flags, rustix::fs::Mode::empty()).unwrap();
            let flags = rustix::fs::OFlags::RDONLY;
            let file = rustix::fs::openat(&held, "file", flags, rustix::fs::Mode::empty()).unwrap();
            std::io::read_to_string(fs::File::from(file)).unwrap()
        }),
    ];
    for (what, way) in ways {
        let client = cell.mount();
        for looked in [false, true] {
            if looked {
                fs::symlink_metadata(client.at("vol")).unwrap();
            }
            assert_eq!(way(&client.at("vol")), "text", "{what}, looked at before: {looked}");
        }
        drop(client);
        let client = cell.mount();
        fs::symlink_metadata(client.at("vol")).unwrap();
        assert_eq!(client.volumes_below(), 0);
        assert_eq!(way(&client.at("vol")), "text", "{what}, after a look");
        drop(client);
    }
}

#[test]
fn a_volume_has_any_number_of_places_and_is_one_in_all() {
    const PLACES: usize = 20;
    let Some((cell, first)) = tree() else { return };
    if crate::is_flat() {
        return; // A directory has one place in a file system, and all volumes are one there.
    }
    for number in 0..PLACES {
        point(
            &cell,
            "root",
            &format!("place-{number}"),
            if number % 2 == 0 { "#work" } else { "%work" },
        );
    }
    let client = cell.mount();
    let at = |number: usize, path: &str| client.at(&format!("place-{number}/{path}"));
    for number in 0..PLACES {
        fs::write(at(number, &format!("file-{number}")), number.to_string()).unwrap();
        fs::create_dir(at(number, &format!("dir-{number}"))).unwrap();
        // A mount in it appears in all its places, those that come later too.
        fs::write(at(number, "deep/shared"), number.to_string()).unwrap();
        for other in 0..=number {
            assert_eq!(fs::read_to_string(at(other, "deep/shared")).unwrap(), number.to_string());
        }
    }
    for number in 0..PLACES {
        assert_eq!(fs::read_dir(at(number, "")).unwrap().count(), 2 * PLACES + 1);
        for other in 0..PLACES {
            let text = fs::read_to_string(at(number, &format!("file-{other}"))).unwrap();
            assert_eq!(text, other.to_string());
        }
    }
    assert_eq!(device(&at(0, "dir-1")), device(&at(1, "dir-1")), "it is one file system");
    fs::rename(at(3, "file-3"), at(3, "dir-7/moved")).unwrap();
    assert_eq!(fs::read_to_string(at(4, "dir-7/moved")).unwrap(), "3");
    // Another client's change is seen at each place.
    fs::write(first.at("vol/file-5"), "changed").unwrap();
    for number in 0..PLACES {
        assert_eq!(fs::read_to_string(at(number, "file-5")).unwrap(), "changed");
    }
    drop((first, client));
    assert!(cell.scrub().is_empty());
}

#[test]
fn no_volume_is_below_itself_on_any_path() {
    let Some(cell) = Cell::start() else { return };
    for volume in ["one", "two"] {
        cell.add_volume(volume);
        point(&cell, "root", volume, &format!("#{volume}"));
    }
    point(&cell, "one", "two", "#two");
    point(&cell, "two", "one", "#one");
    let client = cell.mount();
    fs::write(client.at("one/two/file"), "text").unwrap();
    assert_eq!(errno(&fs::read_dir(client.at("one/two/one")).unwrap_err()), Some(Errno::LOOP));
    if !crate::is_flat() {
        assert_eq!(fs::read_to_string(client.at("two/file")).unwrap(), "text");
        assert_eq!(errno(&fs::read_dir(client.at("two/one")).unwrap_err()), Some(Errno::LOOP));
    }
}

#[test]
fn a_removed_volume_gives_way() {
    let Some((cell, client)) = tree() else { return };
    fs::write(client.at("vol/file"), "old").unwrap();
    fs::write(client.at("vol/deep/file"), "deep").unwrap();
    fs::create_dir(client.at("vol/dir")).unwrap();
    let mut open = fs::File::options().read(true).write(true).open(client.at("vol/file")).unwrap();
    let dir = fs::File::open(client.at("vol/dir")).unwrap();
    let inside = fs::File::open(client.at("vol/deep/file")).unwrap();
    administer(&cell, VolumeCall::Remove { id: root(&cell, "work").volume });
    for _ in 0..2 {
        // There is none of that name now, which is what a walk says. None waits for ever.
        assert_eq!(errno(&fs::read_dir(client.at("vol")).unwrap_err()), Some(Errno::NODEV));
    }
    cell.add_volume("work");
    point(&cell, "work", "deep", "%deep");
    assert_eq!(errno(&fs::read(client.at("vol/file")).unwrap_err()), Some(Errno::NOENT));
    fs::write(client.at("vol/file"), "new").unwrap();
    assert_eq!(fs::read_to_string(client.at("vol/file")).unwrap(), "new");
    assert_eq!(fs::read_to_string(client.at("vol/deep/file")).unwrap(), "deep");
    let of_old = |error: std::io::Error| {
        let errno = errno(&error);
        assert!(matches!(errno, Some(Errno::STALE | Errno::IO)), "{error}");
    };
    of_old(open.metadata().unwrap_err());
    of_old(open.write_all(b"late").and_then(|()| open.sync_all()).unwrap_err());
    of_old(dir.metadata().unwrap_err());
    // The volume below it is another one, and there.
    if !crate::is_flat() {
        assert_eq!(std::io::read_to_string(&inside).unwrap(), "deep");
    }
    drop((open, dir, inside));
    // And again, while nothing of it is open, from another mount of the cell.
    let other = cell.mount();
    assert_eq!(fs::read_to_string(other.at("vol/file")).unwrap(), "new");
    administer(&cell, VolumeCall::Remove { id: root(&cell, "work").volume });
    cell.add_volume("work");
    for client in [&client, &other] {
        fs::write(client.at("vol/again"), "again").unwrap();
        assert_eq!(fs::read_dir(client.at("vol")).unwrap().count(), 1);
    }
    assert!(cell.scrub().is_empty());
}
