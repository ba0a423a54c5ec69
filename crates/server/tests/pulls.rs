//! Volumes go from server to server over real sockets: pulled, relayed, resumed after a restart,
//! and part by part.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::common::*;
use client::{Endpoint, Remote, Session};
use server::{Server, ServerConfig};
use types::{
    Answer, Call, Caller, Cookie, CreateHow, Fault, Fid, Finish, Name, NewKind, PartitionNo, Pull,
    StreamCursor, TaskInfo, TaskState, Timestamp, VolumeCall, VolumeId, VolumeInfo, VolumeKind,
    VolumeState, WhichVolume,
};

/// A server of its own, and a session with it.
struct Site {
    _dir: tempfile::TempDir,
    config: ServerConfig,
    server: Option<Server>,
    session: Session,
}

impl Site {
    fn new() -> Site {
        let dir = tempfile::tempdir().unwrap();
        make_partition(&dir.path().join("vicepa"));
        let mut config = ServerConfig::new(dir.path().join("vicepa"));
        config.unix_socket = Some(dir.path().join("socket"));
        config.tcp_listen = Some("127.0.0.1:0".into());
        config.trust_this_machine();
        let (server, session) = start(&config, dir.path());
        Site { _dir: dir, config, server: Some(server), session }
    }

    fn address(&self) -> SocketAddr {
        let endpoints = self.server.as_ref().unwrap().endpoints();
        let tcp = endpoints.iter().find_map(|endpoint| match endpoint {
            Endpoint::Tcp(address) => address.parse().ok(),
            Endpoint::Unix(_) => None,
        });
        tcp.unwrap()
    }

    /// Like a kill and a new start.
    fn restart(&mut self) {
        drop(self.server.take());
        let (server, session) = start(&self.config, self._dir.path());
        (self.server, self.session) = (Some(server), session);
    }

    fn try_ask(&self, call: VolumeCall) -> Result<Answer, Fault> {
        match self.session.call(&Caller::ROOT, Call::Volume(call), None) {
            Ok(reply) => Ok(reply.answer),
            Err(error) => Err(error.fault().unwrap_or_else(|| panic!("{error}"))),
        }
    }

    fn one(&self, call: VolumeCall) -> VolumeInfo {
        match self.try_ask(call) {
            Ok(Answer::Volumes { mut volumes, .. }) => volumes.remove(0),
            other => panic!("{other:?}"),
        }
    }

    fn create(&self, called: &str) -> VolumeInfo {
        let (partition, owner) = (None, (0, 0));
        self.one(VolumeCall::Create {
            id: None,
            partition,
            name: name(called),
            quota_bytes: 0,
            quota_files: 0,
            owner,
            encrypt: None,
        })
    }

    fn snapshot(&self, of: VolumeId, called: &str) -> VolumeInfo {
        self.one(VolumeCall::Clone {
            id: None,
            of,
            name: name(called),
            kind: VolumeKind::Snapshot,
            replace: true,
        })
    }

    fn examine(&self, id: VolumeId) -> VolumeInfo {
        self.one(VolumeCall::Examine { volume: WhichVolume::Id(id) })
    }

    fn root(&self, volume: &str) -> Fid {
        status(&ask(&self.session, Call::Root { volume: name(volume) })).fid
    }

    fn write(&self, dir: Fid, called: &str, bytes: &[u8]) -> Fid {
        let how = CreateHow::Unchecked;
        let call = Call::Make { dir, name: name(called), kind: NewKind::File, mode: 0o644, how };
        let fid = status(&ask(&self.session, call)).fid;
        for (at, data) in (0..).step_by(1 << 20).zip(bytes.chunks(1 << 20)) {
            let data = bytes::Bytes::copy_from_slice(data);
            ask(
                &self.session,
                Call::Write { fid, offset: Some(at), data, stable: false, kill_privileges: false },
            );
        }
        fid
    }

    /// Names and bytes below a volume's root.
    fn files(&self, volume: &str) -> BTreeMap<Name, Vec<u8>> {
        let dir = self.root(volume);
        let listing = ask(
            &self.session,
            Call::ReadDir { dir, cookie: Cookie::START, bytes_max: 1 << 18, plus: true },
        );
        let Answer::Entries { entries, end: true, .. } = listing else { panic!("{listing:?}") };
        let read = |fid: Fid, size: u64| {
            let mut bytes = Vec::new();
            while (bytes.len() as u64) < size {
                let part = ask(
                    &self.session,
                    Call::Read { fid, offset: bytes.len() as u64, length: 1 << 20 },
                );
                let Answer::Data { data, .. } = part else { panic!("{part:?}") };
                bytes.extend_from_slice(&data);
            }
            bytes
        };
        entries
            .into_iter()
            .map(|entry| (entry.name, read(entry.fid, entry.status.unwrap().size)))
            .collect()
    }

    fn pull(&self, pull: &Pull) -> TaskInfo {
        let Ok(Answer::Tasks(tasks)) = self.try_ask(VolumeCall::Pull(Box::new(pull.clone())))
        else {
            panic!("not begun")
        };
        self.wait(tasks[0].number, |task| task.state != TaskState::Runs)
    }

    fn wait(&self, number: u64, until: impl Fn(&TaskInfo) -> bool) -> TaskInfo {
        let end = Instant::now() + Duration::from_secs(120);
        loop {
            let Ok(Answer::Tasks(tasks)) = self.try_ask(VolumeCall::Tasks) else {
                panic!("no tasks")
            };
            let task = tasks.into_iter().find(|task| task.number == number).expect("it is listed");
            if until(&task) {
                return task;
            }
            assert!(Instant::now() < end, "{task:?} does not end");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

fn start(config: &ServerConfig, dir: &Path) -> (Server, Session) {
    let server = Server::start(config).unwrap();
    let session = connect(Endpoint::Unix(dir.join("socket")));
    (server, session)
}

fn view_of(from: &Site, source: &VolumeInfo, id: u64) -> Pull {
    let finish = Finish::View {
        id: Some(VolumeId(id)),
        name: source.name.clone(),
        kind: VolumeKind::Snapshot,
        replace: true,
    };
    Pull { from: vec![from.address()], id: source.id, partition: None, tree: source.tree, finish }
}

fn noise(bytes: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 56) as u8
    };
    (0..bytes).map(|_| next()).collect()
}

#[test]
fn a_volume_is_pulled_then_its_changes_then_by_a_third_server() {
    let [first, second, third] = [Site::new(), Site::new(), Site::new()];
    let data = first.create("data");
    let root = first.root("data");
    for number in 0..200 {
        first.write(root, &format!("small{number}"), format!("contents of {number}").as_bytes());
    }
    first.write(root, "large", &noise(5 << 20));
    let sealed = first.snapshot(data.id, "data.releasing");
    let task = second.pull(&view_of(&first, &sealed, 50));
    assert_eq!(
        (task.state, task.since, task.epoch),
        (TaskState::Done, 0, sealed.epoch),
        "{task:?}"
    );
    assert!(task.bytes > 5 << 20 && task.total_bytes == sealed.used_bytes, "{task:?}");
    assert_eq!(second.files("data.releasing"), first.files("data"));
    let copy = second.examine(VolumeId(50));
    assert_eq!(
        (copy.tree, copy.epoch, copy.used_bytes),
        (data.id, sealed.epoch, sealed.used_bytes)
    );

    // The source goes on showing the released state.
    let show = |site: &Site| {
        let of =
            site.one(VolumeCall::Examine { volume: WhichVolume::Name(name("data.releasing")) }).id;
        let (name, kind) = (name("data.readonly"), VolumeKind::ReadOnly);
        site.one(VolumeCall::Clone { id: Some(VolumeId(70)), of, name, kind, replace: true })
    };
    show(&first);

    // Two files of two hundred.
    first.write(root, "small7", b"changed");
    first.write(root, "new", b"made");
    let sealed = first.snapshot(data.id, "data.releasing");
    let task = second.pull(&view_of(&first, &sealed, 50));
    assert_eq!((task.state, task.since), (TaskState::Done, copy.epoch), "{task:?}");
    assert!(task.bytes < 3000, "{} bytes for two short files", task.bytes);
    assert_eq!(second.files("data.releasing"), first.files("data"));
    assert_eq!(second.examine(VolumeId(50)).epoch, sealed.epoch);

    // A second pull has nothing to fetch; a copy is a source like any other.
    let again = second.pull(&view_of(&first, &sealed, 50));
    assert_eq!((again.state, again.bytes), (TaskState::Done, 0), "{again:?}");
    let relayed = third.pull(&view_of(&second, &second.examine(VolumeId(50)), 60));
    assert_eq!(relayed.state, TaskState::Done, "{relayed:?}");
    assert_eq!(third.files("data.releasing"), first.files("data"));

    // The visible state changes in one step, under its number.
    for site in [&second, &third] {
        assert_eq!((show(site).id, show(site).epoch), (VolumeId(70), sealed.epoch));
        assert_eq!(site.files("data.readonly"), first.files("data"));
    }
}

/// Orders the pull of a snapshot of `data` with 144 MiB; returns it with its number.
fn begin_large_pull(first: &Site, second: &Site) -> (Pull, u64) {
    let data = first.create("data");
    let root = first.root("data");
    for number in 0..12 {
        first.write(root, &format!("large{number}"), &noise((12 << 20) + number));
    }
    let sealed = first.snapshot(data.id, "data.copy");
    let pull = view_of(first, &sealed, 50);
    let Ok(Answer::Tasks(tasks)) = second.try_ask(VolumeCall::Pull(Box::new(pull.clone()))) else {
        panic!()
    };
    (pull, tasks[0].number)
}

#[test]
fn a_pull_goes_on_where_a_dead_server_stopped() {
    let (first, mut second) = (Site::new(), Site::new());
    let (pull, number) = begin_large_pull(&first, &second);
    assert_eq!(
        second.try_ask(VolumeCall::Pull(Box::new(Pull { id: VolumeId(1234), ..pull.clone() }))),
        Err(Fault::Busy)
    );
    second.wait(number, |task| task.bytes > 80 << 20);
    second.restart();
    assert_eq!(
        second.try_ask(VolumeCall::Examine { volume: WhichVolume::Id(VolumeId(50)) }),
        Err(Fault::NoVolume)
    );
    let task = second.pull(&pull);
    assert_eq!(task.state, TaskState::Done, "{task:?}");
    assert!(task.bytes <= 90 << 20, "{} bytes come again", task.bytes);
    assert_eq!(second.files("data.copy"), first.files("data"));
}

#[test]
fn an_impossible_pull_reports_why_and_leaves_nothing() {
    let (first, second) = (Site::new(), Site::new());
    let data = first.create("data");
    let sealed = first.snapshot(data.id, "data.copy");
    let good = view_of(&first, &sealed, 50);
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    for (pull, why) in [
        (Pull { from: vec![nobody], ..good.clone() }, "cannot be reached"),
        // Without an address: from this server itself, which has no such volume.
        (Pull { from: vec![], ..good.clone() }, "no such volume"),
        (Pull { id: VolumeId(99), ..good.clone() }, "the other server"),
        (Pull { id: data.id, ..good.clone() }, "the other server"),
        (Pull { partition: Some(PartitionNo(3)), ..good.clone() }, "here"),
    ] {
        let task = second.pull(&pull);
        assert_eq!(task.state, TaskState::Failed);
        assert!(task.text.contains(why), "{}", task.text);
    }
    let empty = VolumeCall::List { partition: PartitionNo(0), after: VolumeId(0), max: 10 };
    let Ok(Answer::Volumes { volumes, .. }) = second.try_ask(empty) else { panic!() };
    assert_eq!(
        volumes
            .iter()
            .filter(|volume| volume.tree == data.id && volume.kind != VolumeKind::ReadWrite)
            .count(),
        0
    );
    // A first address that does not answer is skipped.
    let task = second.pull(&Pull { from: vec![nobody, first.address()], ..good });
    assert_eq!(task.state, TaskState::Done, "{task:?}");
}

#[test]
fn parts_can_be_carried_by_any_permitted_caller() {
    let (first, second) = (Site::new(), Site::new());
    let data = first.create("data");
    let root = first.root("data");
    first.write(root, "large", &noise(3 << 20));
    let sealed = first.snapshot(data.id, "data.dump");
    let (partition, tree) = (PartitionNo(0), VolumeId(4711));
    let changes = |cursor| VolumeCall::Changes {
        id: sealed.id,
        since: 0,
        cursor,
        bytes_max: 1 << 20,
        packed: false,
    };
    let user = Caller { uid: 1000, gid: 1000, ..Caller::ROOT };
    let refused = first.session.call(&user, Call::Volume(changes(StreamCursor::START)), None);
    assert_eq!(refused.map(|_| ()).map_err(|error| error.fault()), Err(Some(Fault::NotPermitted)));
    let finish = Finish::ReadWrite {
        name: name("restored"),
        quota_bytes: 1 << 30,
        quota_files: 0,
        created: Timestamp::new(7, 7),
        arriving: false,
        updated: None,
    };
    let finish = VolumeCall::Finish { partition, tree, finish };
    let mut cursor = StreamCursor::START;
    while cursor != StreamCursor::END {
        let Ok(Answer::Part(part)) = first.try_ask(changes(cursor)) else { panic!("no part") };
        let mut bad = part.to_vec();
        bad[100] ^= 1;
        let apply = |part| VolumeCall::Apply { partition, tree, part, over: false };
        assert_eq!(second.try_ask(apply(bad.into())), Err(Fault::Invalid));
        let Ok(Answer::Cursor(next)) = second.try_ask(apply(part)) else { panic!("not applied") };
        assert!(next > cursor);
        if next != StreamCursor::END {
            assert_eq!(second.try_ask(finish.clone()), Err(Fault::Invalid), "it is not whole");
        }
        cursor = next;
    }
    let restored = second.one(finish);
    assert_eq!(
        (restored.id, restored.kind, restored.state),
        (tree, VolumeKind::ReadWrite, VolumeState::Online)
    );
    assert_eq!(second.files("restored"), first.files("data"));
    second.write(second.root("restored"), "later", b"it goes on");
    // After it is given up, nothing of it stays.
    let Ok(Answer::Part(part)) = first.try_ask(changes(StreamCursor::START)) else {
        panic!("no part")
    };
    let tree = VolumeId(4712);
    assert!(second.try_ask(VolumeCall::Apply { partition, tree, part, over: false }).is_ok());
    let nothing = VolumeCall::Finish { partition, tree, finish: Finish::Nothing };
    assert_eq!(second.try_ask(nothing.clone()), Ok(Answer::Volumes { volumes: vec![], end: true }));
    assert_eq!(second.try_ask(nothing), Err(Fault::NoVolume));
}

/// Counted on the wire: parts of a volume with packed bodies are as small as those.
#[test]
fn a_packed_volume_is_pulled_packed() {
    let (mut first, second) = (Site::new(), Site::new());
    first.config.store.compress = true;
    first.restart();
    let data = first.create("data");
    let text: Vec<u8> = b"as source text, much of it is said again and again; "
        .iter()
        .copied()
        .cycle()
        .take(900_000)
        .collect();
    first.write(first.root("data"), "text", &text);
    let sealed = first.snapshot(data.id, "data.copy");
    first.try_ask(VolumeCall::Remove { id: data.id }).unwrap();
    let part = |packed| {
        let (id, cursor) = (sealed.id, StreamCursor::START);
        match first.try_ask(VolumeCall::Changes {
            id,
            since: 0,
            cursor,
            bytes_max: 1 << 20,
            packed,
        }) {
            Ok(Answer::Part(part)) => part.len(),
            other => panic!("{other:?}"),
        }
    };
    // The packer goes on in the background.
    let begun = Instant::now();
    while part(true) * 3 > text.len() {
        assert!(begun.elapsed() < Duration::from_secs(60), "it is not packed");
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(part(false) > text.len(), "a caller that does not ask for packed parts gets none");
    let task = second.pull(&view_of(&first, &sealed, 50));
    assert_eq!(task.state, TaskState::Done, "{task:?}");
    assert!(task.bytes * 3 < text.len() as u64, "{} bytes came", task.bytes);
    assert_eq!(second.files("data.copy"), first.files("data.copy"));
}

#[test]
fn a_pull_that_is_ended_fails_and_goes_on_when_it_is_repeated() {
    let (first, second) = (Site::new(), Site::new());
    let (pull, number) = begin_large_pull(&first, &second);
    assert_eq!(second.try_ask(VolumeCall::EndTask { number: number + 1 }), Err(Fault::NotFound));
    second.wait(number, |task| task.bytes > 16 << 20);
    let Ok(Answer::Tasks(ended)) = second.try_ask(VolumeCall::EndTask { number }) else { panic!() };
    assert_eq!(ended[0].number, number);
    let task = second.wait(number, |task| task.state != TaskState::Runs);
    assert_eq!(task.state, TaskState::Failed, "{task:?}");
    assert!(task.text.contains("vos endtrans"), "{}", task.text);
    // One that is over stays as it is, and what came is not sent again.
    assert!(second.try_ask(VolumeCall::EndTask { number }).is_ok());
    let task = second.pull(&pull);
    assert_eq!(task.state, TaskState::Done, "{task:?}");
    assert!(task.bytes < 12 * (12 << 20), "{} bytes come again", task.bytes);
    assert_eq!(second.files("data.copy"), first.files("data"));
}
