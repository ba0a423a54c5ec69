//! RXAFS: the files of a volume.

use afs3::RpcMessage as _;
use afs3::files::{FilesAnswer, FilesCall, PORT, SERVICE};
use afs3::structs::{
    AfsFid, AfsFids, AfsName, AfsOpaque, AfsPath, CallBack, FsCommandInputs, StoreStatus,
    StoreVolumeStatus, VolSync, lock_type, store_mask, volume_mask,
};
use afs3::xdr::{Chars, XdrList};

use crate::asking::{Asker, Caller, Place, long_text, raw};

const RXAFS: Place = Place { name: "RXAFS", port: PORT, service: SERVICE };
const UNKNOWN_VOLUME: u32 = 77;
/// Everyone reads, administrators do everything.
const ACL: &str = "2\n0\nsystem:administrators\t127\nsystem:anyuser\t9\n\0";

struct Of<'a> {
    asker: &'a mut Asker,
    root: AfsFid,
}

fn name(text: &str) -> AfsName {
    AfsName::new(text.as_bytes()).unwrap()
}

fn path(text: &str) -> AfsPath {
    AfsPath::new(text.as_bytes()).unwrap()
}

fn mode(mode: u32) -> StoreStatus {
    StoreStatus { mask: store_mask::MODE, mode, ..StoreStatus::default() }
}

impl Of<'_> {
    fn ask(&mut self, case: &str, call: &FilesCall) -> Option<FilesAnswer> {
        self.asker.ask(RXAFS, case, &call.to_request())
    }

    fn status(&mut self, case: &str, fid: AfsFid) {
        self.ask(case, &FilesCall::FetchStatus { fid });
    }

    fn file(&mut self, case: &str, dir: AfsFid, text: &str) -> AfsFid {
        let call = FilesCall::CreateFile { dir, name: name(text), status: mode(0o644) };
        match self.ask(case, &call) {
            Some(FilesAnswer::CreateFile { fid, .. }) => fid,
            _ => AfsFid { volume: dir.volume, vnode: 4444, unique: 1 },
        }
    }

    fn dir(&mut self, case: &str, dir: AfsFid, text: &str) -> AfsFid {
        let call = FilesCall::MakeDir { dir, name: name(text), status: mode(0o755) };
        match self.ask(case, &call) {
            Some(FilesAnswer::MakeDir { fid, .. }) => fid,
            _ => AfsFid { volume: dir.volume, vnode: 4445, unique: 1 },
        }
    }

    fn store(
        &mut self,
        case: &str,
        fid: AfsFid,
        (position, length, end): (u32, u32, u32),
        body: &[u8],
    ) {
        let status = StoreStatus::default();
        let mut request =
            FilesCall::StoreData { fid, status, position, length, file_length: end }.to_request();
        request.extend_from_slice(body);
        self.asker.ask::<FilesAnswer>(RXAFS, case, &request);
    }

    fn store64(
        &mut self,
        case: &str,
        fid: AfsFid,
        (position, length, end): (u64, u64, u64),
        body: &[u8],
    ) {
        let status = StoreStatus::default();
        let mut request =
            FilesCall::StoreData64 { fid, status, position, length, file_length: end }.to_request();
        request.extend_from_slice(body);
        self.asker.ask::<FilesAnswer>(RXAFS, case, &request);
    }
}

pub fn ask(asker: &mut Asker, volume: u32) {
    let root = AfsFid { volume, vnode: 1, unique: 1 };
    let mut of = Of { asker, root };
    server(&mut of);
    lists(&mut of);
    let (file, dir) = names(&mut of);
    wrong_fids(&mut of, file);
    data(&mut of, file);
    attributes(&mut of, file, dir);
    bulk(&mut of, file);
    locks(&mut of, file);
    links_and_renames(&mut of, file, dir);
    removal(&mut of, file, dir);
    volumes(&mut of);
    for number in [129, 165, 65543, 65551] {
        of.asker.ask::<FilesAnswer>(RXAFS, "unknown procedure", &raw(number, |_| {}));
    }
    of.asker.ask::<FilesAnswer>(RXAFS, "no arguments", &raw(132, |_| {}));
}

fn server(of: &mut Of<'_>) {
    for call in [
        FilesCall::GetTime {},
        FilesCall::GetCapabilities {},
        FilesCall::GetStatistics {},
        FilesCall::XStatsVersion {},
        FilesCall::GetRootVolume {},
        FilesCall::GiveUpAllCallBacks {},
        FilesCall::GetStatistics64 { version: 16 },
        FilesCall::GetStatistics64 { version: 0 },
        FilesCall::GetStatistics64 { version: 99 },
        FilesCall::CallBackRxConnAddr { address: 0 },
        FilesCall::CheckToken { id: 0, token: AfsOpaque::default() },
    ] {
        of.ask("it", &call);
    }
    for (client_version, collection) in [(2, 0), (2, 1), (2, 2), (2, 3), (2, 9), (2, -1), (1, 0)] {
        let case = format!("version {client_version}, collection {collection}");
        of.ask(&case, &FilesCall::GetXStats { client_version, collection });
    }
    for (case, count) in [("none", 0), ("one", 1)] {
        let all = || XdrList::new(vec![5001; count]).unwrap();
        of.ask(case, &FilesCall::FlushCPS { ids: all(), addresses: all(), spare: 0 });
    }
    for text in ["", "cmp.vol", "nothere", "77"] {
        of.ask(&format!("'{text}'"), &FilesCall::GetVolumeInfo { name: name(text) });
        of.ask(&format!("'{text}'"), &FilesCall::NGetVolumeInfo { name: name(text) });
    }
}

fn lists(of: &mut Of<'_>) {
    let fid = of.root;
    of.ask("of a new volume", &FilesCall::FetchACL { fid });
    of.status("of a new volume", fid);
    for (case, text) in [
        ("everyone reads", ACL),
        ("nothing", ""),
        ("no text", "\0"),
        ("no entries", "0\n0\n\0"),
        ("an unknown name", "1\n0\nnothere\t127\n\0"),
        ("more entries than lines", "5\n0\nsystem:anyuser\t9\n\0"),
        ("a count that is negative", "-1\n0\nsystem:anyuser\t9\n\0"),
        ("no count", "system:anyuser\t9\n\0"),
        ("without its end", "1\n0\nsystem:anyuser\t9\n"),
        ("rights that are not there", "1\n0\nsystem:administrators\t128\n\0"),
        ("the user's rights", "1\n0\nsystem:administrators\t-16777089\n\0"),
        ("a name twice", "2\n0\nsystem:anyuser\t1\nsystem:anyuser\t8\n\0"),
        ("denied", "1\n1\nsystem:administrators\t127\nsystem:anyuser\t1\n\0"),
        ("a number", "1\n0\n-204\t127\n\0"),
    ] {
        let acl = AfsOpaque::new(text.as_bytes()).unwrap();
        of.ask(case, &FilesCall::StoreACL { fid, acl: acl.clone() });
        of.ask(case, &FilesCall::OldStoreACL { fid, acl });
        of.ask(case, &FilesCall::FetchACL { fid });
    }
    for count in [20, 21] {
        let lines: String = (0..count).map(|no| format!("{}\t1\n", 5100 + no)).collect();
        let acl = AfsOpaque::new(format!("{count}\n0\n{lines}\0").as_bytes()).unwrap();
        of.ask(&format!("{count} entries of unknown users"), &FilesCall::OldStoreACL { fid, acl });
    }
    let acl = AfsOpaque::new(ACL.as_bytes()).unwrap();
    of.ask("everyone reads", &FilesCall::StoreACL { fid, acl: acl.clone() });
    of.ask("everyone reads", &FilesCall::OldStoreACL { fid, acl });
    of.ask("everyone reads", &FilesCall::FetchACL { fid });
}

fn names(of: &mut Of<'_>) -> (AfsFid, AfsFid) {
    let root = of.root;
    let file = of.file("a file", root, "file");
    of.file("again", root, "file");
    let dir = of.dir("a directory", root, "dir");
    of.dir("again", root, "dir");
    for (case, text) in [
        ("no name", ""),
        ("a dot", "."),
        ("two dots", ".."),
        ("a slash", "a/b"),
        ("the system's name", "x@sys"),
        ("1 byte", "x"),
        ("255 bytes", &"n".repeat(255)),
        ("256 bytes", &"n".repeat(256)),
    ] {
        of.file(case, dir, text);
        of.dir(case, dir, text);
        let target = path("target");
        let symlink = FilesCall::Symlink { dir, name: name(text), target, status: mode(0o777) };
        of.ask(case, &symlink);
        of.ask(case, &FilesCall::RemoveFile { dir, name: name(text) });
        of.ask(case, &FilesCall::RemoveDir { dir, name: name(text) });
        of.ask(case, &FilesCall::RemoveFile { dir, name: name(text) });
    }
    let request = raw(136, |to| {
        [root.volume, root.vnode, root.unique].into_iter().for_each(|word| to.u32(word));
        long_text(to, 257);
    });
    of.asker.ask::<FilesAnswer>(RXAFS, "257 bytes", &request);
    of.file("in a file", file, "x");
    of.dir("in a file", file, "x");
    for (case, target, bits) in [
        ("a symlink", "dir/file", 0o777),
        ("no target", "", 0o777),
        ("a mount point", "#cmp.vol.", 0o644),
        ("a target of 1023 bytes", &"t".repeat(1023), 0o777),
        ("a target of 1024 bytes", &"t".repeat(1024), 0o777),
    ] {
        let status = mode(bits);
        let call =
            FilesCall::Symlink { dir: root, name: name("link"), target: path(target), status };
        let fid = match of.ask(case, &call) {
            Some(FilesAnswer::Symlink { fid, .. }) => fid,
            _ => AfsFid { volume: root.volume, vnode: 4446, unique: 1 },
        };
        of.status(case, fid);
        of.ask(case, &FilesCall::FetchData { fid, position: 0, length: 100 });
        of.ask(case, &FilesCall::RemoveFile { dir: root, name: name("link") });
    }
    let status = mode(0o777);
    let (dir_name, target) = (name("dfs"), path("x"));
    let dfs = FilesCall::DFSSymlink { dir: root, name: dir_name, target, status };
    of.ask("it", &dfs);
    of.ask("a file", &FilesCall::Lookup { dir: root, name: name("file") });
    let inputs = FsCommandInputs {
        command: 0,
        fid: root,
        longs: [0; 3],
        words: [0; 200],
        text: Chars::new(b"").unwrap(),
    };
    of.ask("it", &FilesCall::FsCmd { fid: root, inputs: Box::new(inputs) });
    (file, dir)
}

fn wrong_fids(of: &mut Of<'_>, file: AfsFid) {
    let root = of.root;
    for (case, fid) in [
        ("the root", root),
        ("a file", file),
        ("volume 0", AfsFid { volume: 0, ..file }),
        ("unknown volume", AfsFid { volume: UNKNOWN_VOLUME, ..file }),
        ("vnode 0", AfsFid { vnode: 0, ..file }),
        ("unknown vnode", AfsFid { vnode: 7776, ..file }),
        ("unknown directory", AfsFid { vnode: 7777, ..file }),
        ("the greatest vnode", AfsFid { vnode: u32::MAX, ..file }),
        ("another uniquifier", AfsFid { unique: file.unique ^ 1, ..file }),
        ("uniquifier 0", AfsFid { unique: 0, ..file }),
        ("the root's uniquifier", AfsFid { unique: 2, ..root }),
    ] {
        of.status(case, fid);
        of.ask(case, &FilesCall::FetchACL { fid });
        of.ask(case, &FilesCall::FetchData { fid, position: 0, length: 0 });
        of.ask(case, &FilesCall::SetLock { fid, kind: lock_type::READ });
        of.ask(case, &FilesCall::ReleaseLock { fid });
        of.ask(case, &FilesCall::ExtendLock { fid });
    }
    for (case, fid) in [
        ("unknown volume", AfsFid { volume: UNKNOWN_VOLUME, ..file }),
        ("unknown vnode", AfsFid { vnode: 7776, ..file }),
        ("another uniquifier", AfsFid { unique: file.unique ^ 1, ..file }),
    ] {
        of.store(case, fid, (0, 1, 1), b"x");
        of.ask(case, &FilesCall::StoreStatus { fid, status: mode(0o600) });
        of.ask(case, &FilesCall::OldStoreACL { fid, acl: AfsOpaque::default() });
        of.ask(case, &FilesCall::Link { dir: root, name: name("l"), existing: fid });
        let dir = AfsFid { vnode: fid.vnode | 1, ..fid };
        of.file(case, dir, "x");
        of.dir(case, dir, "x");
        of.ask(case, &FilesCall::RemoveFile { dir, name: name("x") });
        of.ask(case, &FilesCall::RemoveDir { dir, name: name("x") });
    }
}

fn data(of: &mut Of<'_>, fid: AfsFid) {
    of.store("5 bytes", fid, (0, 5, 5), b"hello");
    of.store("behind the end", fid, (10, 2, 12), b"xx");
    of.store("a length to cut", fid, (4, 0, 4), b"");
    of.store("a length to extend", fid, (8, 0, 8), b"");
    of.store("nothing", fid, (0, 0, 8), b"");
    of.store("a length below what is written", fid, (0, 4, 2), b"abcd");
    of.store("a directory", of.root, (0, 1, 1), b"x");
    for (case, position, length) in [
        ("all", 0, 100),
        ("a part", 1, 2),
        ("nothing", 0, 0),
        ("at the end", 8, 10),
        ("beyond the end", 100, 10),
        ("the greatest position", i32::MAX, 1),
        ("a negative position", -1, 1),
        ("a negative length", 0, -1),
    ] {
        of.ask(case, &FilesCall::FetchData { fid, position, length });
        let (position, length) = (position.into(), length.into());
        of.ask(case, &FilesCall::FetchData64 { fid, position, length });
    }
    for (case, position, length) in [
        ("beyond 2^31", 1 << 31, 1),
        ("beyond 2^32", 1 << 32, 1),
        ("the greatest position", i64::MAX, 1),
        ("the greatest length", 0, i64::MAX),
        ("a length of 2^32", 0, 1 << 32),
    ] {
        of.ask(case, &FilesCall::FetchData64 { fid, position, length });
    }
    of.store64("5 bytes", fid, (0, 5, 5), b"hello");
    of.store64("beyond 2^31", fid, (1 << 31, 1, (1 << 31) + 1), b"x");
    of.status("beyond 2^31", fid);
    of.ask("of a long file", &FilesCall::FetchData { fid, position: 0, length: 3 });
    of.store64("beyond the greatest position", fid, (1 << 63, 1, (1 << 63) + 1), b"x");
    of.store64("a length to cut", fid, (0, 0, 3), b"");
    of.status("cut", fid);
}

fn attributes(of: &mut Of<'_>, file: AfsFid, dir: AfsFid) {
    let status = StoreStatus::default();
    for (case, fid, status) in [
        ("nothing", file, status),
        ("a mode", file, mode(0o600)),
        ("a mode of a directory", dir, mode(0o700)),
        ("a mode of all bits", file, mode(0o7777)),
        ("a mode beyond", file, mode(0xffff_ffff)),
        ("a time", file, StoreStatus { mask: store_mask::MOD_TIME, client_mod_time: 1, ..status }),
        ("an owner", file, StoreStatus { mask: store_mask::OWNER, owner: 5001, ..status }),
        ("a group", file, StoreStatus { mask: store_mask::GROUP, group: 7, ..status }),
        ("a sync", file, StoreStatus { mask: store_mask::FSYNC, ..status }),
        ("other bits", file, StoreStatus { mask: 0x8000_0000, ..status }),
        ("the mode as before", file, mode(0o644)),
    ] {
        of.ask(case, &FilesCall::StoreStatus { fid, status });
        of.status(case, fid);
    }
}

fn bulk(of: &mut Of<'_>, file: AfsFid) {
    let stale = AfsFid { unique: file.unique ^ 1, ..file };
    let nowhere = AfsFid { volume: UNKNOWN_VOLUME, ..file };
    for (case, all) in [
        ("none", vec![]),
        ("one", vec![file]),
        ("two", vec![of.root, file]),
        ("a stale one", vec![file, stale]),
        ("one of an unknown volume", vec![nowhere, file]),
        ("50", vec![file; 50]),
    ] {
        let fids = AfsFids::new(all).unwrap();
        of.ask(case, &FilesCall::BulkStatus { fids: fids.clone() });
        of.ask(case, &FilesCall::InlineBulkStatus { fids });
    }
    for number in [155, 65536] {
        let request = raw(number, |to| {
            to.u32(51);
            for _ in 0..51 {
                [file.volume, file.vnode, file.unique].into_iter().for_each(|word| to.u32(word));
            }
        });
        of.asker.ask::<FilesAnswer>(RXAFS, "51", &request);
    }
    for (case, fids, callbacks) in
        [("none", 0, 0), ("one", 1, 1), ("more callbacks", 0, 1), ("fewer callbacks", 2, 1)]
    {
        let fids = AfsFids::new(vec![file; fids]).unwrap();
        let callbacks = XdrList::new(vec![CallBack::default(); callbacks]).unwrap();
        of.ask(case, &FilesCall::GiveUpCallBacks { fids, callbacks });
    }
}

fn locks(of: &mut Of<'_>, fid: AfsFid) {
    let sync = VolSync::default();
    of.ask("not locked", &FilesCall::ReleaseLock { fid });
    of.ask("not locked", &FilesCall::ExtendLock { fid });
    for kind in [lock_type::READ, lock_type::WRITE, 2, 3, -1] {
        let case = format!("kind {kind}");
        of.ask(&case, &FilesCall::SetLock { fid, kind });
        of.ask(&case, &FilesCall::ExtendLock { fid });
        of.status(&case, fid);
        of.ask(&case, &FilesCall::ReleaseLock { fid });
        of.ask(&case, &FilesCall::ReleaseLock { fid });
        of.ask(&case, &FilesCall::ReleaseLock { fid });
    }
    of.ask("to read", &FilesCall::SetLock { fid, kind: lock_type::READ });
    of.ask("to write what is read", &FilesCall::SetLock { fid, kind: lock_type::WRITE });
    of.ask("all", &FilesCall::ReleaseLock { fid });
    of.ask("to write", &FilesCall::SetLock { fid, kind: lock_type::WRITE });
    of.ask("to write again", &FilesCall::SetLock { fid, kind: lock_type::WRITE });
    of.ask("to read what is written", &FilesCall::SetLock { fid, kind: lock_type::READ });
    of.ask("all", &FilesCall::ReleaseLock { fid });
    of.ask("to read", &FilesCall::OldSetLock { fid, kind: lock_type::READ, sync });
    of.ask("to read", &FilesCall::OldExtendLock { fid, sync });
    of.ask("to read", &FilesCall::OldReleaseLock { fid, sync });
    of.ask("to read", &FilesCall::OldReleaseLock { fid, sync });
    for call in [
        FilesCall::SetLock { fid, kind: lock_type::READ },
        FilesCall::ReleaseLock { fid },
        FilesCall::OldSetLock { fid, kind: lock_type::WRITE, sync },
        FilesCall::OldReleaseLock { fid, sync },
    ] {
        let request = call.to_request();
        of.asker.ask_as::<FilesAnswer>(RXAFS, Caller::Superuser, "without strangers", &request);
    }
    of.ask("a directory", &FilesCall::SetLock { fid: of.root, kind: lock_type::READ });
    of.ask("a directory", &FilesCall::ReleaseLock { fid: of.root });
}

fn links_and_renames(of: &mut Of<'_>, file: AfsFid, dir: AfsFid) {
    let root = of.root;
    for (case, at, text, existing) in [
        ("a second name", root, "second", file),
        ("again", root, "second", file),
        ("in another directory", dir, "second", file),
        ("of a directory", root, "third", dir),
        ("of another volume", root, "third", AfsFid { volume: UNKNOWN_VOLUME, ..file }),
        ("no name", root, "", file),
        ("a dot", root, ".", file),
    ] {
        of.ask(case, &FilesCall::Link { dir: at, name: name(text), existing });
    }
    let rename = |old_dir, old: &str, new_dir, new: &str| FilesCall::Rename {
        old_dir,
        old_name: name(old),
        new_dir,
        new_name: name(new),
    };
    let sub = of.dir("in a directory", dir, "sub");
    of.file("in a directory", dir, "other");
    for (case, call) in [
        ("a name", rename(root, "second", root, "third")),
        ("the same name", rename(root, "third", root, "third")),
        ("unknown", rename(root, "nothere", root, "x")),
        ("a dot", rename(root, ".", root, "x")),
        ("to a dot", rename(root, "file", root, "..")),
        ("a linked file to another directory", rename(root, "third", dir, "third")),
        ("a name of the same file", rename(root, "third", root, "file")),
        ("over a directory", rename(dir, "other", dir, "sub")),
        ("a directory over a file", rename(dir, "sub", dir, "other")),
        ("a directory into itself", rename(root, "dir", sub, "x")),
        ("to another directory", rename(dir, "other", root, "other")),
        ("a directory to another", rename(dir, "sub", root, "sub")),
        ("over a full directory", rename(root, "sub", root, "dir")),
        ("to no name", rename(root, "other", root, "")),
        ("to a name with a slash", rename(root, "other", root, "a/b")),
        ("to the system's name", rename(root, "other", root, "x@sys")),
        (
            "to another volume",
            rename(root, "other", AfsFid { volume: UNKNOWN_VOLUME, ..root }, "x"),
        ),
    ] {
        of.ask(case, &call);
    }
    of.status("the directory after all", root);
    of.status("the file after all", file);
}

fn removal(of: &mut Of<'_>, file: AfsFid, dir: AfsFid) {
    let root = of.root;
    for (case, text) in [
        ("unknown", "nothere"),
        ("a directory", "dir"),
        ("a file with two names", "third"),
        ("a file", "other"),
    ] {
        of.ask(case, &FilesCall::RemoveFile { dir: root, name: name(text) });
    }
    for (case, text) in [("unknown", "nothere"), ("a file", "file"), ("a directory", "sub")] {
        of.ask(case, &FilesCall::RemoveDir { dir: root, name: name(text) });
    }
    of.file("in a directory", dir, "last");
    of.ask("with a file", &FilesCall::RemoveDir { dir: root, name: name("dir") });
    of.ask("the last name", &FilesCall::RemoveFile { dir: root, name: name("file") });
    of.status("gone", file);
    of.ask("gone", &FilesCall::FetchData { fid: file, position: 0, length: 1 });
    of.store("gone", file, (0, 1, 1), b"x");
}

fn volumes(of: &mut Of<'_>) {
    let volume = of.root.volume as i32;
    for (case, volume) in [("it", volume), ("unknown", 77), ("number 0", 0), ("-1", -1)] {
        of.ask(case, &FilesCall::GetVolumeStatus { volume });
        for (mask, quota) in [
            (volume_mask::MAX_QUOTA, 50_000),
            (volume_mask::MIN_QUOTA, 5),
            (volume_mask::MAX_QUOTA, -1),
            (0, 0),
            (4, 7),
        ] {
            let status = StoreVolumeStatus { mask, min_quota: quota, max_quota: quota };
            let set = FilesCall::SetVolumeStatus {
                volume,
                status,
                name: name(""),
                offline_message: path("out"),
                motd: path("of today"),
            };
            of.ask(&format!("{case}, mask {mask}, {quota} KiB"), &set);
        }
        of.ask(&format!("{case}, after all"), &FilesCall::GetVolumeStatus { volume });
    }
}
