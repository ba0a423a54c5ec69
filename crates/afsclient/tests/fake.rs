//! A cell whose servers do what a test says.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use afs3::RpcMessage;
use afs3::callbacks::CallbacksCall;
use afs3::errors::{RXGEN_OPCODE, VL_NOENT};
use afs3::files::{FilesAnswer, FilesCall};
use afs3::locations::{LocationsAnswer, LocationsCall, VldbEntry, entry_flag, site_flag};
use afs3::structs::{CallBack, FetchStatus, VolSync, file_type};
use afs3::xdr::{Chars, XdrReader};
use afsclient::AfsRemote;
use client::{BreakAck, CallError, Events, Remote, TokenWallet};
use parking_lot::Mutex;
use rx::{CallLimits, ClientSecurity, EndpointConfig, ServerSecurity, ServiceId};
use rxport::{RxPort, ServedCall};
use types::{Answer, BreakItem, Call, Caller, Fid, Time};

/// The number of the cell's volume, called root.cell.
pub const VOLUME: u32 = 7;
/// A promise for an hour.
pub const PROMISE: CallBack = CallBack { version: 1, expiration: 3600, kind: 2 };

/// The file server's way with a call.
pub enum Act {
    Answer(FilesAnswer),
    /// So many bytes are announced, and these sent.
    Data(u64, Vec<u8>, FilesAnswer),
    /// Exactly these bytes.
    Raw(Vec<u8>),
    Abort(i32),
}

/// A call of the client, and the way back to it.
pub struct Asked<'a> {
    pub call: FilesCall,
    /// The stream behind the arguments.
    pub data: Vec<u8>,
    pub client: SocketAddr,
    pub port: &'a RxPort,
}

impl Asked<'_> {
    /// Calls the client back, as its file server.
    pub fn call_back(&self, call: &CallbacksCall) {
        call_back(self.port, self.client, call);
    }
}

fn call_back(port: &RxPort, client: SocketAddr, call: &CallbacksCall) {
    let service = ServiceId(afs3::callbacks::SERVICE);
    let limits = CallLimits::default();
    let line = port.connect(client, service, ClientSecurity::Null, limits).unwrap();
    port.ask(line, &call.to_request()).unwrap();
}

type Perform = dyn Fn(&Asked<'_>) -> Act + Send + Sync;

/// See the head of the file.
pub struct FakeCell {
    pub address: Ipv4Addr,
    database: RxPort,
    files: Option<RxPort>,
    /// The same, for the calls under way.
    files_in_calls: Arc<Mutex<Option<RxPort>>>,
    pub client: Arc<Mutex<Option<SocketAddr>>>,
    /// How often the location database was asked.
    pub located: Arc<AtomicUsize>,
}

/// Ports are AFS's, so each cell has an address of its own.
fn address() -> Ipv4Addr {
    static LAST: AtomicU8 = AtomicU8::new(0);
    let [.., own] = std::process::id().to_be_bytes();
    Ipv4Addr::new(127, 93, own, 1 + LAST.fetch_add(1, Ordering::Relaxed))
}

fn request_of(served: &mut ServedCall) -> Vec<u8> {
    let mut request = Vec::new();
    while let Ok(Some(part)) = served.call.read(1 << 16) {
        request.extend_from_slice(&part);
    }
    request
}

/// The entry of the volume, at this address.
fn entry(address: Ipv4Addr) -> VldbEntry {
    let mut entry = VldbEntry {
        name: Chars::new(b"root.cell").unwrap(),
        site_count: 1,
        servers: [0; 13],
        partitions: [0; 13],
        site_flags: [0; 13],
        volumes: [VOLUME, 0, 0],
        clone: 0,
        flags: entry_flag::RW_EXISTS,
        match_index: 0,
        spares: [0; 8],
    };
    entry.servers[0] = address.into();
    entry.site_flags[0] = site_flag::RW;
    entry
}

fn locate(request: &[u8], address: Ipv4Addr) -> Result<LocationsAnswer, i32> {
    let mut from = XdrReader::new(request);
    let number = from.u32().unwrap();
    match LocationsCall::decode(number, &mut from).unwrap() {
        LocationsCall::GetEntryByNameN { name }
            if [&b"root.cell"[..], b"7"].contains(&name.as_bytes()) =>
        {
            Ok(LocationsAnswer::GetEntryByNameN { entry: Box::new(entry(address)) })
        }
        LocationsCall::GetEntryByNameN { .. } => Err(VL_NOENT),
        _ => Err(RXGEN_OPCODE),
    }
}

impl FakeCell {
    /// A cell whose file server does this.
    pub fn new(perform: impl Fn(&Asked<'_>) -> Act + Send + Sync + 'static) -> FakeCell {
        FakeCell::at(address(), perform)
    }

    /// As [`FakeCell::new`], at an address that is free.
    pub fn at(
        address: Ipv4Addr,
        perform: impl Fn(&Asked<'_>) -> Act + Send + Sync + 'static,
    ) -> FakeCell {
        let mut cell = FakeCell::with_database(address);
        let perform: Arc<Perform> = Arc::new(perform);
        let (client, port) = (Arc::clone(&cell.client), Arc::new(Mutex::new(None::<RxPort>)));
        let own = Arc::clone(&port);
        let at = SocketAddr::new(cell.address.into(), afs3::files::PORT);
        let services = vec![(ServiceId(afs3::files::SERVICE), vec![ServerSecurity::Null])];
        let files = RxPort::open(at, EndpointConfig::default(), services, move |served| {
            let perform = Arc::clone(&perform);
            *client.lock() = Some(served.peer);
            let port = own.lock().clone().unwrap();
            std::thread::spawn(move || serve(served, &port, &*perform));
        });
        let files = files.unwrap();
        *port.lock() = Some(files.clone());
        (cell.files, cell.files_in_calls) = (Some(files), port);
        cell
    }

    pub fn without_file_server() -> FakeCell {
        FakeCell::with_database(address())
    }

    fn with_database(address: Ipv4Addr) -> FakeCell {
        let at = SocketAddr::new(address.into(), afs3::locations::PORT);
        let services = vec![(ServiceId(afs3::locations::SERVICE), vec![ServerSecurity::Null])];
        let located = Arc::<AtomicUsize>::default();
        let counted = Arc::clone(&located);
        let database = RxPort::open(at, EndpointConfig::default(), services, move |mut served| {
            let counted = Arc::clone(&counted);
            std::thread::spawn(move || {
                counted.fetch_add(1, Ordering::SeqCst);
                match locate(&request_of(&mut served), address) {
                    Ok(answer) => {
                        served.call.write(&answer.to_bytes()).unwrap();
                        served.call.end().unwrap();
                    }
                    Err(code) => served.call.abort(code),
                }
            });
        });
        let (files, files_in_calls, client) = Default::default();
        let database = database.unwrap();
        FakeCell { address, database, files, files_in_calls, client, located }
    }

    /// A session with the cell, and what its cache manager is told.
    pub fn open(&self) -> (Arc<AfsRemote>, Arc<Told>) {
        let wallet = Arc::new(TokenWallet::of_afs());
        let remote = AfsRemote::open("fake.org", &[self.address], wallet).unwrap();
        let told = Arc::<Told>::default();
        remote.set_events(Arc::clone(&told) as _);
        (remote, told)
    }

    /// Calls the client back, which has called before.
    pub fn call_back(&self, call: &CallbacksCall) {
        let client = self.client.lock().unwrap();
        call_back(self.files.as_ref().unwrap(), client, call);
    }
}

impl Drop for FakeCell {
    fn drop(&mut self) {
        self.database.close();
        self.files.iter().for_each(RxPort::close);
        // The port has the closure that has this.
        self.files_in_calls.lock().take();
    }
}

fn serve(mut served: ServedCall, port: &RxPort, perform: &Perform) {
    let request = request_of(&mut served);
    let mut from = XdrReader::new(&request);
    let number = from.u32().unwrap();
    let call = FilesCall::decode(number, &mut from).unwrap();
    let asked = Asked { call, data: from.rest().to_vec(), client: served.peer, port };
    let bytes = match perform(&asked) {
        Act::Answer(answer) => answer.to_bytes(),
        Act::Data(announced, data, answer) => {
            [&announced.to_be_bytes()[..], &data, &answer.to_bytes()].concat()
        }
        Act::Raw(bytes) => bytes,
        Act::Abort(code) => return served.call.abort(code),
    };
    // A client that has enough ends the call.
    let _ = served.call.write(&bytes).and_then(|()| served.call.end());
}

/// The status of a file or directory of so many bytes.
pub fn status(kind: u32, bytes: u64) -> FetchStatus {
    let mode = if kind == file_type::SYMLINK { 0o777 } else { 0o755 };
    let mut status = FetchStatus {
        interface_version: 1,
        file_type: kind,
        link_count: 1,
        mode,
        caller_access: 127,
        parent_vnode: 1,
        parent_unique: 1,
        ..FetchStatus::default()
    };
    status.set_length(bytes);
    status.set_data_version(5);
    status
}

/// The answer to `FetchStatus`.
pub fn fetched(status: FetchStatus, callback: CallBack) -> FilesAnswer {
    FilesAnswer::FetchStatus { status, callback, sync: VolSync::default() }
}

/// The answer to `FetchData64`.
pub fn data(status: FetchStatus, callback: CallBack) -> FilesAnswer {
    FilesAnswer::FetchData64 { status, callback, sync: VolSync::default() }
}

/// A file of the volume.
pub fn file(vnode: u64) -> Fid {
    Fid::new(VOLUME.into(), vnode, 1)
}

/// Calls as a user without a token.
pub fn ask(remote: &AfsRemote, call: Call) -> Result<Answer, CallError> {
    let caller = Caller { uid: 1000, gid: 1000, ..Caller::ROOT };
    remote.call(&caller, call, None).map(|reply| reply.answer)
}

/// The breaks that the cache manager was told of.
#[derive(Default)]
pub struct Told {
    pub items: Mutex<Vec<BreakItem>>,
    /// How often it was told that the server is silent.
    pub parted: AtomicUsize,
}

impl Told {
    /// Whether a break of the file came; waits for it for some time.
    pub fn has(&self, fid: Fid) -> bool {
        let until = Instant::now() + Duration::from_secs(5);
        while Instant::now() < until {
            if self.has_now(fid) {
                return true;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        false
    }

    pub fn has_now(&self, fid: Fid) -> bool {
        self.items.lock().iter().any(|item| item.fid == fid)
    }
}

impl Events for Told {
    fn on_break(&self, items: &[BreakItem], ack: BreakAck) {
        self.items.lock().extend_from_slice(items);
        ack.acknowledge();
    }

    fn on_renewed(&self, _: Time) {}

    fn on_parted(&self) {
        self.parted.fetch_add(1, Ordering::SeqCst);
    }

    fn on_lease_lost(&self) {}

    fn on_server_restarted(&self, _: &dyn Remote) {}
}
