//! Servers of AFS in a cell of Rialto: volumes are where the cell says, and what is the cell's is
//! shown to no server of AFS.

use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use afs3::errors::{VBUSY, VIO, VMOVED, VNOVOL, VOFFLINE};
use afs3::files::{FilesAnswer, FilesCall};
use afs3::structs::{AfsName, AfsOpaque, AfsPath, FetchVolumeStatus, VolSync, file_type};
use afsclient::{AfsLogin, AfsRemote};
use client::{CallError, Cancel, Cell, Events, Remote, RemoteVolume, Reply, TokenWallet};
use guard::{Acl, Signer, Token};
use parking_lot::Mutex;
use types::{
    Answer, AuthCall, AuthLevel, Call, Caller, CellCall, Fault, Fid, Name, PrincipalId, PtsCall,
    Revised, Revision, Secret, ServerId, ServerInfo, ServerKind, Site, SiteKind, VolumeCall,
    VolumeGroup, VolumeId, VolumeKind, VolumeState, WhichVolume,
};

use crate::fake::{Act, Asked, FakeCell, PROMISE, Told, VOLUME, fetched, file, status};

const HOME: ServerId = ServerId(1);
const FIRST: ServerId = ServerId(2);
const SECOND: ServerId = ServerId(3);
const READ_ONLY: VolumeId = VolumeId(8);

/// The refusal of those who may not read (EACCES).
const DENIED: i32 = 13;

/// A server of Rialto with the cell's database, and the calls that it got.
struct Home {
    servers: Vec<ServerInfo>,
    group: Mutex<VolumeGroup>,
    calls: Mutex<Vec<(Caller, Call)>>,
}

impl Home {
    fn answer(&self, call: &Call) -> Result<Answer, Fault> {
        let revised = |record| Revised { record, revision: Revision(1) };
        let me = ServerInfo {
            id: HOME,
            name: "home".to_owned(),
            addresses: vec![([127, 0, 0, 1], 7620).into()],
            keys: Vec::new(),
        };
        Ok(match call {
            Call::Cell(CellCall::Me) => Answer::Servers(vec![revised(me)]),
            Call::Cell(CellCall::Servers) => {
                let all = std::iter::once(me).chain(self.servers.iter().cloned());
                Answer::Servers(all.map(revised).collect())
            }
            Call::Cell(CellCall::Group { volume }) => {
                let group = self.group.lock();
                let is_it = match volume {
                    WhichVolume::Id(id) => group.numbers().any(|number| number == *id),
                    WhichVolume::Name(name) => group.name == *name,
                };
                let record = Some(group.clone()).filter(|_| is_it).ok_or(Fault::NoVolume)?;
                let groups = vec![Revised { record, revision: Revision(1) }];
                Answer::Groups { groups, end: true }
            }
            Call::Pts { call, .. } => match &**call {
                PtsCall::Numbers { names } => {
                    let number = |name: &String| match name.as_str() {
                        "joe" => PrincipalId(4242),
                        _ => PrincipalId::NONE,
                    };
                    let names = names.iter().map(|name| (number(name), name.clone())).collect();
                    Answer::Names { names, end: true }
                }
                _ => return Err(Fault::Unsupported),
            },
            Call::Auth { .. } => Answer::Token(b"a token".to_vec().into()),
            Call::ServerReport => Answer::Report("{\"server\":{\"cell\":\"a.org\"}}".to_owned()),
            _ => return Err(Fault::NoVolume),
        })
    }
}

impl Remote for Home {
    fn call(&self, caller: &Caller, call: Call, _: Option<&Cancel>) -> Result<Reply, CallError> {
        self.calls.lock().push((caller.clone(), call.clone()));
        Ok(self.answer(&call)?.into())
    }

    fn chain(&self, caller: &Caller, calls: Vec<Call>) -> Vec<Result<Reply, CallError>> {
        calls.into_iter().map(|call| self.call(caller, call, None)).collect()
    }

    fn set_events(&self, _: Arc<dyn Events>) {}

    fn passes_descriptors(&self) -> bool {
        false
    }
}

fn name(text: &str) -> Name {
    Name::new(text.as_bytes()).unwrap()
}

fn site(server: ServerId, kind: SiteKind, epoch: u64) -> Site {
    Site { server, partition: "a".to_owned(), kind, epoch }
}

/// A cell of Rialto with the volume `docs` and servers of AFS, of which the first has it.
struct MixedCell {
    cell: Arc<Cell>,
    home: Arc<Home>,
    wallet: Arc<TokenWallet>,
}

impl MixedCell {
    fn new(servers: &[(ServerId, Ipv4Addr)]) -> MixedCell {
        let record = |(id, address): &(ServerId, Ipv4Addr)| {
            ServerInfo::of_afs(*id, format!("afs{}", id.0), &[*address])
        };
        let site = site(servers[0].0, SiteKind::ReadWrite, 0);
        let group = VolumeGroup::new(name("docs"), VolumeId(VOLUME.into()), site);
        let home = Arc::new(Home {
            servers: servers.iter().map(record).collect(),
            group: Mutex::new(group),
            calls: Mutex::default(),
        });
        let wallet = Arc::<TokenWallet>::default();
        let tokens = Arc::clone(&wallet);
        let dial = Box::new(move |cell: &Weak<Cell>, server: &ServerInfo| {
            assert_eq!(server.kind(), ServerKind::Afs, "the home is not dialled");
            AfsRemote::of_server(server, cell, Arc::clone(&tokens)).map(|one| one as _)
        });
        let cell = Cell::of_servers(Arc::clone(&home) as _, dial);
        MixedCell { cell, home, wallet }
    }

    fn of(server: &FakeCell) -> MixedCell {
        MixedCell::new(&[(FIRST, server.address)])
    }

    /// A session with its first server, beside those of the client.
    fn session(&self) -> Arc<AfsRemote> {
        let cell = Arc::downgrade(&self.cell);
        AfsRemote::of_server(&self.home.servers[0], &cell, Arc::clone(&self.wallet)).unwrap()
    }

    fn find(&self, text: &str) -> Arc<RemoteVolume> {
        self.cell.find(&name(text), None).unwrap()
    }

    fn has_asked(&self, is_it: impl Fn(&Caller, &Call) -> bool) -> bool {
        self.home.calls.lock().iter().any(|(caller, call)| is_it(caller, call))
    }
}

fn volume_status(is_online: bool) -> Act {
    let status = FetchVolumeStatus {
        volume: VOLUME.cast_signed(),
        online: is_online.into(),
        in_service: is_online.into(),
        ..FetchVolumeStatus::default()
    };
    Act::Answer(FilesAnswer::GetVolumeStatus {
        status,
        name: AfsName::default(),
        offline_message: AfsPath::default(),
        motd: AfsPath::default(),
    })
}

/// The way of a server that has the volume, and a file in it of so many bytes.
fn having(asked: &Asked<'_>, bytes: u64) -> Act {
    match asked.call {
        FilesCall::FetchStatus { .. } => {
            Act::Answer(fetched(status(file_type::FILE, bytes), PROMISE))
        }
        FilesCall::GetVolumeStatus { .. } => volume_status(true),
        FilesCall::GetTime {} => Act::Answer(FilesAnswer::GetTime { seconds: 0, microseconds: 0 }),
        _ => Act::Abort(1),
    }
}

fn call(remote: &dyn Remote, call: Call) -> Result<Answer, CallError> {
    let caller = Caller { uid: 1000, gid: 1000, ..Caller::ROOT };
    remote.call(&caller, call, None).map(|reply| reply.answer)
}

fn size(remote: &dyn Remote, fid: Fid) -> Result<u64, CallError> {
    match call(remote, Call::GetStatus { fid })? {
        Answer::Status(status) => Ok(status.size),
        other => panic!("{other:?}"),
    }
}

fn examined(remote: &dyn Remote, volume: WhichVolume) -> Result<VolumeState, CallError> {
    match call(remote, Call::Volume(VolumeCall::Examine { volume }))? {
        Answer::Volumes { volumes, .. } => Ok(volumes[0].state),
        other => panic!("{other:?}"),
    }
}

#[test]
fn mx4_volumes_are_found_by_the_cells_database() {
    let server = FakeCell::new(|asked| having(asked, 77));
    let cell = MixedCell::of(&server);
    let docs = cell.find("docs");
    assert_eq!((docs.id(), docs.server()), (VolumeId(VOLUME.into()), Some(FIRST)));
    assert_eq!(size(&*docs, file(2)), Ok(77));
    assert_eq!(server.located.load(Ordering::SeqCst), 0, "its own databases are not asked");
    assert_eq!(cell.cell.find(&name("other"), None).err(), Some(Fault::NoVolume.into()));
    let up = cell.cell.check_servers(None);
    assert!(up.iter().all(|server| server.up == Some(true)), "{up:?}");
}

#[test]
fn a_volume_that_left_is_followed_to_another_server() {
    let (gone, offline) = (Fault::NoVolume, Fault::Offline);
    let state = Ok(VolumeState::Offline);
    for (code, fault, found) in [
        (VMOVED, gone, Err(gone.into())),
        (VNOVOL, gone, Err(gone.into())),
        // Its files are gone, and the server has it in memory still.
        (VIO, offline, state),
    ] {
        let left = Arc::new(AtomicBool::new(false));
        let is_left = Arc::clone(&left);
        let first = FakeCell::new(move |asked| match asked.call {
            FilesCall::GetTime {} => having(asked, 1),
            _ if is_left.load(Ordering::SeqCst) => Act::Abort(code),
            _ => having(asked, 1),
        });
        let second = FakeCell::new(|asked| having(asked, 2));
        let cell = MixedCell::new(&[(FIRST, first.address), (SECOND, second.address)]);
        let docs = cell.find("docs");
        assert_eq!(size(&*docs, file(2)), Ok(1));
        let session = cell.session();
        left.store(true, Ordering::SeqCst);
        let began = Instant::now();
        assert_eq!(size(&*session, file(2)), Err(fault.into()), "as Rialto's say it");
        assert_eq!(examined(&*session, WhichVolume::Id(docs.id())), found);
        assert!(began.elapsed() < Duration::from_secs(3), "it is not looked for again there");
        cell.home.group.lock().sites[0].server = SECOND;
        assert_eq!(size(&*docs, file(2)), Ok(2), "{code}");
        assert_eq!(docs.server(), Some(SECOND));
    }
}

#[test]
fn a_busy_volume_in_the_own_cell_is_waited_for() {
    let left = AtomicUsize::new(2);
    let server = FakeCell::new(move |asked| match asked.call {
        FilesCall::FetchStatus { .. }
            if left
                .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1))
                .is_ok() =>
        {
            Act::Abort(VBUSY)
        }
        _ => having(asked, 3),
    });
    let cell = MixedCell::of(&server);
    assert_eq!(size(&*cell.find("docs"), file(2)), Ok(3));
}

#[test]
fn a_private_volume_is_there_and_an_offline_one_is_not_served() {
    let code = Arc::new(AtomicI32::new(DENIED));
    let now = Arc::clone(&code);
    let server = FakeCell::new(move |asked| match asked.call {
        FilesCall::GetVolumeStatus { .. } => match now.load(Ordering::SeqCst) {
            0 => volume_status(false),
            code => Act::Abort(code),
        },
        _ => having(asked, 1),
    });
    let cell = MixedCell::of(&server);
    assert_eq!(cell.find("docs").server(), Some(FIRST), "the stranger may read nothing there");
    let session = cell.session();
    for code_now in [0, VOFFLINE] {
        code.store(code_now, Ordering::SeqCst);
        let state = examined(&*session, WhichVolume::Name(name("docs")));
        assert_eq!(state, Ok(VolumeState::Offline), "{code_now}");
    }
    assert_eq!(
        examined(&*session, WhichVolume::Name(name("docs.readonly"))),
        Err(Fault::NoVolume.into()),
        "the group has none"
    );
}

#[test]
fn vo5_the_database_says_which_release_a_replica_has() {
    let server = FakeCell::new(|asked| having(asked, 1));
    let cell = MixedCell::of(&server);
    {
        let mut group = cell.home.group.lock();
        group.read_only = Some(READ_ONLY);
        group.released_epoch = 5;
        group.sites.push(site(FIRST, SiteKind::ReadOnly, 5));
    }
    let copy = cell.find("docs.readonly");
    assert_eq!((copy.id(), copy.server(), copy.is_read_only()), (READ_ONLY, Some(FIRST), true));
    assert_eq!(size(&*copy, Fid { volume: READ_ONLY, ..file(2) }), Ok(1));
    let session = cell.session();
    let epoch = |text: &str| {
        let volume = WhichVolume::Name(name(text));
        match call(&*session, Call::Volume(VolumeCall::Examine { volume })).unwrap() {
            Answer::Volumes { volumes, .. } => (volumes[0].epoch, volumes[0].kind),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(epoch("docs.readonly"), (5, VolumeKind::ReadOnly));
    assert_eq!(epoch("docs"), (1, VolumeKind::ReadWrite), "of no later generation");
    cell.home.group.lock().sites[1].epoch = 4;
    assert_eq!(epoch("docs.readonly").0, 4, "it missed a release");
    cell.home.group.lock().sites.pop();
    assert_eq!(epoch("docs.readonly").0, 0, "it is no site");
}

#[test]
fn names_in_access_lists_are_the_cells() {
    let server = FakeCell::new(|asked| match asked.call {
        FilesCall::FetchStatus { .. } => {
            Act::Answer(fetched(status(file_type::DIRECTORY, 2048), PROMISE))
        }
        FilesCall::FetchACL { .. } => Act::Answer(FilesAnswer::FetchACL {
            acl: AfsOpaque::new(b"1\n0\njoe 127\n".to_vec()).unwrap(),
            status: status(file_type::DIRECTORY, 2048),
            sync: VolSync::default(),
        }),
        _ => having(asked, 1),
    });
    let cell = MixedCell::of(&server);
    let Ok(Answer::Acl { list, .. }) = call(&*cell.session(), Call::GetAcl { fid: file(1) }) else {
        panic!()
    };
    assert_eq!(Acl::decode(&list).unwrap().positive()[0].who, PrincipalId(4242));
    assert!(
        cell.has_asked(|caller, call| caller.uid == 1000 && matches!(call, Call::Pts { .. })),
        "the caller asks, not the mount"
    );
}

#[test]
fn mx4_logins_are_the_cells_and_no_server_of_afs_sees_them() {
    let seen = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&seen);
    let server = FakeCell::new(move |asked| {
        if !matches!(asked.call, FilesCall::GetTime {}) {
            counted.fetch_add(1, Ordering::SeqCst);
        }
        having(asked, 1)
    });
    let cell = MixedCell::of(&server);
    let session = cell.session();
    let login = AuthCall::Password {
        name: "joe".to_owned(),
        password: Secret::new(b"opensesame".to_vec()),
        client: [1; 32],
    };
    let answer = call(&*session, Call::Auth { behalf: None, call: Box::new(login.clone()) });
    assert!(matches!(answer, Ok(Answer::Token(_))), "{answer:?}");
    let is_it =
        |_: &Caller, asked: &Call| matches!(asked, Call::Auth { call, .. } if **call == login);
    assert!(cell.has_asked(is_it));
    let Ok(Answer::Report(report)) = call(&*session, Call::ServerReport) else { panic!() };
    assert!(report.contains("a.org"), "{report}");
    assert_eq!(seen.load(Ordering::SeqCst), 0);
}

#[test]
fn mx4_a_token_of_rialto_makes_no_one_known_to_a_server_of_afs() {
    let server = FakeCell::new(|asked| having(asked, 1));
    let cell = MixedCell::of(&server);
    let signer = Arc::new(Signer::new(&[1; 32]));
    let token = Token {
        cell: "a.org".to_owned(),
        key: 1,
        number: 1,
        principal: PrincipalId(4242),
        name: "joe".to_owned(),
        level: AuthLevel::Password,
        issued: 0,
        expires: i64::MAX,
        renewable: i64::MAX,
        client: signer.public(),
    };
    assert!(cell.wallet.put(1000, &token.sign(&signer).into(), Arc::clone(&signer)));
    let session = cell.session();
    assert_eq!(size(&*session, file(2)), Ok(1), "as nobody: the server knows no tickets");
    let mut login = AfsLogin {
        user: "joe@A.ORG".to_owned(),
        session_key: zeroize::Zeroizing::new([1; 8]),
        ticket: b"a ticket".to_vec().into(),
        valid: (0, u32::MAX),
    };
    assert!(cell.wallet.accompany(1000, login.to_request()));
    assert_ne!(size(&*session, file(4)), Ok(1), "with the ticket, which the server refuses");
    login.valid.1 = 1;
    assert!(cell.wallet.accompany(1000, login.to_request()));
    assert_eq!(size(&*session, file(6)), Err(Fault::TokenExpired.into()));
    assert!(cell.wallet.accompany(1000, Secret::new(b"nonsense".to_vec())));
    assert_eq!(size(&*session, file(8)), Ok(1), "that is no login");
    assert!(cell.wallet.remove(1000));
    assert_eq!(size(&*session, file(8)), Ok(1));
    let asked = cell.home.calls.lock();
    let shown = format!("{asked:?}");
    assert!(!shown.contains("a ticket"), "{shown}");
}

#[test]
fn a_dead_server_is_not_connected() {
    let absent = FakeCell::without_file_server();
    let cell = MixedCell::of(&absent);
    let remote = AfsRemote::of_server(
        &cell.home.servers[0],
        &Arc::downgrade(&cell.cell),
        Arc::clone(&cell.wallet),
    );
    assert_eq!(remote.err(), Some(CallError::TimedOut));
    assert_eq!(cell.cell.find(&name("docs"), None).err(), Some(CallError::TimedOut));
    let up = cell.cell.check_servers(None);
    let up: Vec<_> = up.iter().map(|server| (server.info.id, server.up)).collect();
    assert!(up.contains(&(HOME, Some(true))) && up.contains(&(FIRST, Some(false))), "{up:?}");
}

#[test]
fn a_server_that_falls_silent_is_told_and_comes_back() {
    let server = FakeCell::new(|asked| having(asked, 1));
    let address = server.address;
    let cell = MixedCell::of(&server);
    let session = cell.session();
    let told = Arc::<Told>::default();
    session.set_events(Arc::clone(&told) as _);
    assert_eq!(size(&*session, file(2)), Ok(1));
    assert!(session.stands());
    drop(server);
    assert_eq!(size(&*session, file(4)), Err(CallError::TimedOut));
    assert!(!session.stands());
    assert!(told.has(file(2)), "it may have missed to call back");
    assert!(told.parted.load(Ordering::SeqCst) > 0);
    assert_eq!(call(&*session, Call::Cell(CellCall::Me)).err(), Some(CallError::TimedOut));
    let again = FakeCell::at(address, |asked| having(asked, 2));
    let until = Instant::now() + Duration::from_secs(60);
    while !session.stands() {
        assert!(Instant::now() < until, "it is not asked whether it is back");
        std::thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(size(&*session, file(4)), Ok(2));
    drop(again);
}

#[test]
fn a_lie_about_a_volume_is_no_answer() {
    let bytes = Arc::new(AtomicUsize::new(0));
    let now = Arc::clone(&bytes);
    let server = FakeCell::new(move |asked| match asked.call {
        FilesCall::GetVolumeStatus { .. } => Act::Raw(vec![0xff; now.load(Ordering::SeqCst)]),
        _ => having(asked, 1),
    });
    let cell = MixedCell::of(&server);
    for count in [0, 3, 100, 1 << 20] {
        bytes.store(count, Ordering::SeqCst);
        let found = cell.cell.find(&name("docs"), None).map(drop);
        assert_eq!(found.err(), Some(CallError::TimedOut), "{count}");
    }
}
