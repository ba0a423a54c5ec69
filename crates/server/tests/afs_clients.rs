//! AFS's own clients, over UDP, beside native ones (docs/spec/afs-front-end.md).

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::time::{Duration, Instant};

use afs3::RpcMessage;
use afs3::callbacks::{CAPABILITY_ERROR_TRANSLATION, CallbacksAnswer, CallbacksCall};
use afs3::files::{FilesAnswer, FilesCall};
use afs3::locations::{LocationsAnswer, LocationsCall};
use afs3::structs::{
    AfsFid, AfsName, AfsUuid, INTERFACE_ADDRESSES_MAX, InterfaceAddresses, StoreStatus,
};
use afs3::xdr::{XdrList, XdrReader};
use client::Session;
use guard::{Acl, Rights};
use parking_lot::Mutex;
use rx::rxkad::{RxkadKeys, RxkadLevel, print_token};
use rx::{
    CallLimits, ClientSecurity, EndpointConfig, RxConnectionId, RxError, ServerSecurity, ServiceId,
};
use rxport::{RxPort, ServedCall};
use server::{AfsConfig, Server, ServerConfig};
use types::{Answer, Call, DataUse, Fid, PrincipalId};

use crate::common::{Cell, Recorder, ask, connect, make, make_partition, name, root, wait_for};

const LIMITS: CallLimits =
    CallLimits { dead: Duration::from_secs(30), idle: Duration::MAX, hard: Duration::MAX };
/// rxkad's "the server does not have the key".
const UNKNOWN_KEY: i32 = rx::rxkad::code::UNKNOWN_KEY;

/// A server in an access-list volume of which everyone may do all.
struct Site {
    cell: Cell,
    address: Ipv4Addr,
    native: Session,
    root: Fid,
    keys: Arc<RxkadKeys>,
}

impl Site {
    fn new() -> Site {
        static LAST: AtomicU8 = AtomicU8::new(0);
        // Ports are AFS's, so each server has an address of its own.
        let [.., own] = std::process::id().to_be_bytes();
        let address = Ipv4Addr::new(127, 91, own, 1 + LAST.fetch_add(1, Ordering::Relaxed));
        let mut keys = RxkadKeys::new();
        keys.add_krb5(1, 18, &[7; 32]);
        let keys = Arc::new(keys);
        let config = AfsConfig {
            listen: address,
            keys: Arc::clone(&keys),
            realm: "X.ORG".into(),
            databases: Vec::new(),
        };
        let cell = Cell::with(|server| server.afs = Some(config));
        let native = connect(cell.unix());
        let root = root(&native);
        let mut list = Acl::new();
        assert!(list.set(PrincipalId::ANYBODY, Rights::ALL, false));
        let list = Some(list.encode().into());
        ask(&native, Call::SetAcl { fid: root, list, instead_of: None });
        Site { cell, address, native, root, keys }
    }

    fn afs_root(&self) -> AfsFid {
        afsfront::foreign_fid(self.root).unwrap()
    }
}

/// A client of AFS: it takes callbacks on the port from which it calls.
struct AfsClient {
    port: RxPort,
    files: RxConnectionId,
    taken: Arc<Mutex<Vec<CallbacksCall>>>,
    is_deaf: Arc<AtomicBool>,
}

impl AfsClient {
    fn of(site: &Site) -> AfsClient {
        AfsClient::with(site, ClientSecurity::Null, false)
    }

    /// One that says that it takes codes of UAE.
    fn translating(site: &Site) -> AfsClient {
        AfsClient::with(site, ClientSecurity::Null, true)
    }

    /// One whose host's session is a user's.
    fn proved(site: &Site) -> AfsClient {
        let token = print_token(&site.keys, &mut rand::rng()).unwrap();
        AfsClient::with(site, ClientSecurity::Rxkad { token, level: RxkadLevel::Crypt }, false)
    }

    fn with(site: &Site, security: ClientSecurity, takes_uae: bool) -> AfsClient {
        let (taken, is_deaf) = (Arc::default(), Arc::new(AtomicBool::new(false)));
        let (keep, deaf) = (Arc::clone(&taken), Arc::clone(&is_deaf));
        let here = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 0);
        let services = vec![(ServiceId(afs3::callbacks::SERVICE), vec![ServerSecurity::Null])];
        let port = RxPort::open(here, EndpointConfig::default(), services, move |call| {
            let (keep, deaf) = (Arc::clone(&keep), Arc::clone(&deaf));
            std::thread::spawn(move || take(call, &keep, &deaf, takes_uae));
        })
        .unwrap();
        let to = SocketAddr::new(site.address.into(), afs3::files::PORT);
        let files = port.connect(to, ServiceId(afs3::files::SERVICE), security, LIMITS).unwrap();
        AfsClient { port, files, taken, is_deaf }
    }

    fn try_ask(&self, call: &FilesCall) -> Result<FilesAnswer, RxError> {
        let answer = self.port.ask(self.files, &call.to_request())?;
        Ok(FilesAnswer::decode(call.procedure(), &mut XdrReader::new(&answer)).unwrap())
    }

    fn ask(&self, call: &FilesCall) -> FilesAnswer {
        self.try_ask(call).unwrap()
    }

    fn status(&self, fid: AfsFid) -> afs3::structs::FetchStatus {
        match self.ask(&FilesCall::FetchStatus { fid }) {
            FilesAnswer::FetchStatus { status, .. } => status,
            other => panic!("{other:?}"),
        }
    }

    fn make(&self, dir: AfsFid, called: &str) -> AfsFid {
        let name = AfsName::new(called.as_bytes().to_vec()).unwrap();
        let call = FilesCall::CreateFile { dir, name, status: StoreStatus::default() };
        match self.ask(&call) {
            FilesAnswer::CreateFile { fid, .. } => fid,
            other => panic!("{other:?}"),
        }
    }

    /// Callbacks of fids so far.
    fn broken(&self) -> Vec<AfsFid> {
        let taken = self.taken.lock();
        let fids = taken.iter().filter_map(|call| match call {
            CallbacksCall::CallBack { fids, .. } => Some(fids.as_slice().to_vec()),
            _ => None,
        });
        fids.flatten().collect()
    }

    /// How often it was told to trust nothing.
    fn greeted(&self) -> usize {
        let is_greeting =
            |call: &&CallbacksCall| matches!(call, CallbacksCall::InitCallBackState3 { .. });
        self.taken.lock().iter().filter(is_greeting).count()
    }
}

impl Drop for AfsClient {
    fn drop(&mut self) {
        self.port.close();
    }
}

/// The client's side of a callback.
fn take(
    mut served: ServedCall,
    taken: &Mutex<Vec<CallbacksCall>>,
    is_deaf: &AtomicBool,
    takes_uae: bool,
) {
    let mut request = Vec::new();
    while let Ok(Some(part)) = served.call.read(1 << 16) {
        request.extend_from_slice(&part);
    }
    let mut from = XdrReader::new(&request);
    let number = from.u32().unwrap();
    let call = CallbacksCall::decode(number, &mut from).unwrap();
    let answer = match &call {
        CallbacksCall::TellMeAboutYourself {} if !takes_uae => return served.call.abort(-455),
        CallbacksCall::TellMeAboutYourself {} => CallbacksAnswer::TellMeAboutYourself {
            addresses: Box::new(InterfaceAddresses {
                count: 0,
                uuid: AfsUuid::default(),
                addresses: [0; INTERFACE_ADDRESSES_MAX],
                masks: [0; INTERFACE_ADDRESSES_MAX],
                mtus: [0; INTERFACE_ADDRESSES_MAX],
            }),
            capabilities: XdrList::new(vec![CAPABILITY_ERROR_TRANSLATION]).unwrap(),
        },
        CallbacksCall::InitCallBackState3 { .. } => CallbacksAnswer::InitCallBackState3 {},
        CallbacksCall::CallBack { .. } => CallbacksAnswer::CallBack {},
        CallbacksCall::Probe {} => CallbacksAnswer::Probe {},
        other => panic!("{other:?}"),
    };
    taken.lock().push(call);
    while is_deaf.load(Ordering::SeqCst) {
        std::thread::sleep(Duration::from_millis(20));
    }
    let _ = served.call.write(&answer.to_bytes()).and_then(|()| served.call.end());
}

#[test]
fn a_client_is_greeted_and_served() {
    let site = Site::new();
    let client = AfsClient::of(&site);
    let root = client.status(site.afs_root());
    assert_eq!(client.greeted(), 1, "before its first call is served");
    assert_eq!(root.file_type, afs3::structs::file_type::DIRECTORY);
    let made = client.make(site.afs_root(), "made");
    let found = ask(&site.native, Call::Lookup { dir: site.root, name: name("made") });
    let Answer::Entry { status, .. } = found else { panic!("{found:?}") };
    assert_eq!(afsfront::foreign_fid(status.fid), Ok(made));
    assert_eq!(client.greeted(), 1);
    assert_eq!(client.broken(), [], "its own change breaks nothing for it");
}

#[test]
fn a_client_gets_the_codes_that_it_says_it_takes() {
    let site = Site::new();
    let name = AfsName::new(b"none".to_vec()).unwrap();
    let remove = FilesCall::RemoveFile { dir: site.afs_root(), name };
    let code = afs3::errors::uae_from_errno(2).unwrap();
    for (client, code) in [(AfsClient::of(&site), 2), (AfsClient::translating(&site), code)] {
        assert_eq!(client.try_ask(&remove).err(), Some(RxError::PeerAborted(code)));
    }
}

#[test]
fn af3_a_change_returns_after_the_callback() {
    let site = Site::new();
    let client = AfsClient::proved(&site);
    let before = client.status(site.afs_root());
    make(&site.native, site.root, "one");
    assert!(client.broken().contains(&site.afs_root()), "the change waited for the callback");
    assert!(client.status(site.afs_root()).data_version() > before.data_version());
    // And the other way round.
    let events = Recorder::of(&site.native);
    ask(&site.native, Call::GetStatus { fid: site.root });
    client.make(site.afs_root(), "two");
    assert!(events.broken(site.root), "the client's change waited for the break");
}

#[test]
fn a_callback_is_one_that_linux_takes() {
    let site = Site::new();
    let client = AfsClient::proved(&site);
    client.status(site.afs_root());
    make(&site.native, site.root, "one");
    let taken = client.taken.lock();
    let promises = taken.iter().find_map(|call| match call {
        CallbacksCall::CallBack { callbacks, .. } => Some(callbacks.as_slice().len()),
        _ => None,
    });
    assert_eq!(promises, Some(0), "its kafs takes no list of ended promises beside the fids");
}

#[test]
fn af3_a_stranger_is_called_back_and_holds_up_nobody() {
    let site = Site::new();
    let client = AfsClient::of(&site);
    client.status(site.afs_root());
    client.is_deaf.store(true, Ordering::SeqCst);
    let began = Instant::now();
    make(&site.native, site.root, "one");
    assert!(began.elapsed() < Duration::from_secs(4));
    wait_for("a callback", || client.broken().contains(&site.afs_root()));
    client.is_deaf.store(false, Ordering::SeqCst);
}

#[test]
fn af4_a_client_that_missed_a_callback_is_told_to_trust_nothing() {
    let site = Site::new();
    let client = AfsClient::proved(&site);
    client.status(site.afs_root());
    client.is_deaf.store(true, Ordering::SeqCst);
    let began = Instant::now();
    make(&site.native, site.root, "x");
    let waited = began.elapsed();
    assert!(waited > Duration::from_secs(4) && waited < types::limits::LEASE, "{waited:?}");
    client.is_deaf.store(false, Ordering::SeqCst);
    assert_eq!(client.greeted(), 1);
    client.status(site.afs_root());
    assert_eq!(client.greeted(), 2, "before it is served again");
}

#[test]
fn af5_a_stranger_makes_the_server_call_no_other() {
    let site = Site::new();
    // A request whose sender answers no probe, as one with a forged address.
    let forged = UdpSocket::bind("127.0.0.1:0").unwrap();
    let client = AfsClient::of(&site);
    let call = FilesCall::FetchStatus { fid: site.afs_root() };
    let to = SocketAddr::new(site.address.into(), afs3::files::PORT);
    let header = rx::wire::PacketHeader {
        epoch: 1,
        cid: 4,
        call: 1,
        seq: 1,
        serial: 1,
        kind: rx::wire::PacketType::Data as u8,
        flags: rx::wire::flags::CLIENT_INITIATED | rx::wire::flags::LAST_PACKET,
        service: afs3::files::SERVICE,
        ..rx::wire::PacketHeader::default()
    };
    let packet = [&header.to_bytes()[..], &call.to_request()].concat();
    forged.send_to(&packet, to).unwrap();
    // Others are served meanwhile.
    client.status(site.afs_root());
    forged.set_read_timeout(Some(Duration::from_secs(7))).unwrap();
    let (mut bytes, mut buffer) = (0, [0; 2048]);
    while let Ok((count, _)) = forged.recv_from(&mut buffer) {
        bytes += count;
    }
    assert!(bytes <= packet.len(), "{bytes} bytes for {}", packet.len());
}

#[test]
fn a_port_that_is_in_use_is_named() {
    let address = Ipv4Addr::new(127, 92, 0, 1);
    let taken = UdpSocket::bind((address, afs3::locations::PORT)).unwrap();
    let (keys, realm) = (Arc::default(), "X.ORG".to_owned());
    let dir = tempfile::tempdir().unwrap();
    let partition = dir.path().join("vicepa");
    make_partition(&partition);
    let mut config = ServerConfig::new(&partition);
    config.afs = Some(AfsConfig { listen: address, keys, realm, databases: Vec::new() });
    let refused = Server::start(&config).err().unwrap().to_string();
    assert!(refused.contains("127.92.0.1:7003 (UDP, for AFS's clients)"), "{refused}");
    // The other ports were closed again.
    drop(taken);
    Server::start(&config).unwrap().stop().unwrap();
}

#[test]
fn a_ticket_with_the_cells_key_is_a_servers() {
    let site = Site::new();
    let server = AfsClient::proved(&site);
    let status = server.status(site.afs_root());
    assert_eq!(status.caller_access, afs3::rights::AfsRights::ALL.0, "{status:?}");
    let mut other = RxkadKeys::new();
    other.add_krb5(1, 18, &[8; 32]);
    let token = print_token(&other, &mut rand::rng()).unwrap();
    let level = RxkadLevel::Crypt;
    let forged = AfsClient::with(&site, ClientSecurity::Rxkad { token, level }, false);
    let refused = forged.try_ask(&FilesCall::FetchStatus { fid: site.afs_root() });
    assert!(
        matches!(refused, Err(RxError::PeerAborted(code)) if code == UNKNOWN_KEY
            || code == rx::rxkad::code::BAD_TICKET),
        "{refused:?}"
    );
}

#[test]
fn databases_answer_without_greetings() {
    let site = Site::new();
    let client = AfsClient::of(&site);
    let to = SocketAddr::new(site.address.into(), afs3::locations::PORT);
    let service = ServiceId(afs3::locations::SERVICE);
    let at = client.port.connect(to, service, ClientSecurity::Null, LIMITS).unwrap();
    let call = LocationsCall::ProbeServer {};
    let answer = client.port.ask(at, &call.to_request()).unwrap();
    let answer = LocationsAnswer::decode(call.procedure(), &mut XdrReader::new(&answer));
    assert_eq!(answer, Ok(LocationsAnswer::ProbeServer {}));
    assert_eq!(client.greeted(), 0);
    // A procedure that does not exist, and arguments that are too short.
    assert_eq!(client.port.ask(at, &[0, 0, 255, 0]), Err(RxError::PeerAborted(-455)));
    assert_eq!(client.port.ask(at, &[0, 0]), Err(RxError::PeerAborted(-453)));
}

#[test]
fn the_server_stops_while_clients_call() {
    let mut site = Site::new();
    let client = AfsClient::of(&site);
    client.status(site.afs_root());
    // A store whose bytes do not come.
    let call = FilesCall::StoreData {
        fid: client.make(site.afs_root(), "file"),
        status: StoreStatus::default(),
        position: 0,
        length: 100,
        file_length: 100,
    };
    let mut store = client.port.begin(client.files).unwrap();
    store.write(&call.to_request()).unwrap();
    std::thread::sleep(Duration::from_millis(100));
    site.cell.server.take().unwrap().stop().unwrap();
    assert!(store.read(10).is_err());
}

#[test]
fn sh2_a_client_of_afs_is_kept_out_by_an_open() {
    let site = Site::new();
    let client = AfsClient::proved(&site);
    let fid = make(&site.native, site.root, "file");
    let file = afsfront::foreign_fid(fid).unwrap();
    let fetch = FilesCall::FetchData { fid: file, position: 0, length: 10 };
    client.port.ask(client.files, &fetch.to_request()).unwrap();
    let before = client.status(file);
    let (access, deny) = (DataUse::Both, DataUse::Both);
    let opened = ask(&site.native, Call::Open { fid, access, deny, key: None, claims: false });
    let Answer::Opened { open, .. } = opened else { panic!("{opened:?}") };
    assert!(client.broken().contains(&file), "SH-3: the open waited for the callback");
    let after = client.status(file);
    assert!(after.data_version() > before.data_version(), "what it has counts as old");
    let store = FilesCall::StoreData {
        fid: file,
        status: StoreStatus::default(),
        position: 0,
        length: 0,
        file_length: 5,
    };
    for call in [&fetch, &store] {
        let refused = client.port.ask(client.files, &call.to_request());
        assert_eq!(refused, Err(RxError::PeerAborted(13)), "EACCES: {call:?}");
    }
    ask(&site.native, Call::Close { fid, open });
    client.port.ask(client.files, &fetch.to_request()).unwrap();
    client.port.ask(client.files, &store.to_request()).unwrap();
}

/// A packet that begins a call on a connection of its own.
fn stranger(number: u32, security: u8, kind: u8) -> rx::wire::PacketHeader {
    rx::wire::PacketHeader {
        epoch: 0x8000_0001,
        cid: 4 * (number + 1),
        call: 1,
        seq: 1,
        serial: 1,
        kind,
        flags: rx::wire::flags::CLIENT_INITIATED | rx::wire::flags::LAST_PACKET,
        security,
        service: afs3::files::SERVICE,
        ..rx::wire::PacketHeader::default()
    }
}

#[test]
fn ten_thousand_silent_connections_hold_up_no_client() {
    const CONNECTIONS: u32 = 10_000;
    let site = Site::new();
    let client = AfsClient::proved(&site);
    let to = SocketAddr::new(site.address.into(), afs3::files::PORT);
    let sockets: Vec<_> = (0..4).map(|_| UdpSocket::bind("127.0.0.1:0").unwrap()).collect();
    let request = FilesCall::FetchStatus { fid: site.afs_root() }.to_request();
    let data = rx::wire::PacketType::Data as u8;
    for number in 0..CONNECTIONS {
        let packet = [&stranger(number, rx::rxkad::INDEX, data).to_bytes()[..], &request].concat();
        sockets[number as usize % 4].send_to(&packet, to).unwrap();
        if number % 500 == 0 {
            client.status(site.afs_root());
        }
    }
    // Packets of every kind, also of kinds that there are not, cut at every length.
    for kind in 0..=14 {
        for length in 0..100 {
            let header = stranger(kind.into(), 0, kind).to_bytes();
            let packet = [&header[..], &[0xa5; 72]].concat();
            sockets[0].send_to(&packet[..length], to).unwrap();
        }
        client.status(site.afs_root());
    }
    let made = client.make(site.afs_root(), "made");
    assert_eq!(client.status(made).link_count, 1);
    // One that was driven out by others begins anew.
    let another = AfsClient::proved(&site);
    another.status(made);
}
