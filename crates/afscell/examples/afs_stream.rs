//! `afs_stream ADDRESS VOLUME BYTES`: one file of so many bytes, written to a file server of AFS in
//! one call and read from it in another, by Rialto's Rx. Prints MB/s (10^6) of both, as
//! `store N fetch N`. Everyone must be allowed to write in the root of the volume. The file is
//! removed.

use std::error::Error;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use afs3::RpcMessage;
use afs3::callbacks::{self, CallbacksAnswer, CallbacksCall};
use afs3::files::{self, FilesAnswer, FilesCall};
use afs3::structs::{AfsFid, AfsName, StoreStatus};
use afs3::xdr::XdrReader;
use rx::{CallLimits, ClientSecurity, EndpointConfig, RxConnectionId, ServerSecurity, ServiceId};
use rxport::{RxPort, ServedCall};

type Failed = Box<dyn Error + Send + Sync>;

const LIMITS: CallLimits =
    CallLimits { dead: Duration::from_secs(60), idle: Duration::MAX, hard: Duration::MAX };
const PART_BYTES: usize = 1 << 16;
/// The length, which comes before the bytes.
const LENGTH_BYTES: usize = 8;
/// The code of an unknown procedure.
const UNKNOWN: i32 = -455;

/// A server calls its clients back before it serves them.
fn answer(mut served: ServedCall) {
    let mut request = Vec::new();
    while let Ok(Some(part)) = served.call.read(PART_BYTES) {
        request.extend_from_slice(&part);
    }
    let mut from = XdrReader::new(&request);
    let call = from.u32().ok().and_then(|number| CallbacksCall::decode(number, &mut from).ok());
    let answer = match call {
        Some(CallbacksCall::InitCallBackState3 { .. }) => CallbacksAnswer::InitCallBackState3 {},
        Some(CallbacksCall::InitCallBackState {}) => CallbacksAnswer::InitCallBackState {},
        Some(CallbacksCall::CallBack { .. }) => CallbacksAnswer::CallBack {},
        Some(CallbacksCall::Probe {}) => CallbacksAnswer::Probe {},
        Some(CallbacksCall::ProbeUuid { .. }) => CallbacksAnswer::ProbeUuid {},
        _ => return served.call.abort(UNKNOWN),
    };
    let _ = served.call.write(&answer.to_bytes()).and_then(|()| served.call.end());
}

struct FileServer {
    port: RxPort,
    connection: RxConnectionId,
}

impl FileServer {
    fn ask(&self, call: &FilesCall) -> Result<FilesAnswer, Failed> {
        let answer = self.port.ask(self.connection, &call.to_request())?;
        Ok(FilesAnswer::decode(call.procedure(), &mut XdrReader::new(&answer))?)
    }

    fn store(&self, fid: AfsFid, bytes: u64) -> Result<(), Failed> {
        let status = StoreStatus::default();
        let store =
            FilesCall::StoreData64 { fid, status, position: 0, length: bytes, file_length: bytes };
        let mut call = self.port.begin(self.connection)?;
        call.write(&store.to_request())?;
        let part = vec![7; PART_BYTES];
        let mut left = usize::try_from(bytes)?;
        while left > 0 {
            let now = left.min(part.len());
            call.write(&part[..now])?;
            left -= now;
        }
        call.end()?;
        while call.read(PART_BYTES)?.is_some() {}
        Ok(())
    }

    fn fetch(&self, fid: AfsFid, bytes: u64) -> Result<(), Failed> {
        let fetch = FilesCall::FetchData64 { fid, position: 0, length: i64::try_from(bytes)? };
        let mut call = self.port.begin(self.connection)?;
        call.write(&fetch.to_request())?;
        call.end()?;
        let mut came = 0;
        while let Some(part) = call.read(PART_BYTES)? {
            came += part.len();
        }
        if (came as u64) < bytes + LENGTH_BYTES as u64 {
            return Err(format!("{came} bytes came").into());
        }
        Ok(())
    }
}

fn main() -> Result<(), Failed> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [address, volume, bytes] = &words[..] else {
        return Err("usage: afs_stream ADDRESS VOLUME BYTES".into());
    };
    let (address, bytes): (Ipv4Addr, u64) = (address.parse()?, bytes.parse()?);
    let here = SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), 0);
    let services = vec![(ServiceId(callbacks::SERVICE), vec![ServerSecurity::Null])];
    let port = RxPort::open(here, EndpointConfig::default(), services, |served| {
        std::thread::spawn(move || answer(served));
    })?;
    let to = SocketAddr::new(address.into(), files::PORT);
    let connection = port.connect(to, ServiceId(files::SERVICE), ClientSecurity::Null, LIMITS)?;
    let server = FileServer { port, connection };
    let dir = AfsFid { volume: volume.parse()?, vnode: 1, unique: 1 };
    let name = AfsName::new(b"stream".to_vec())?;
    let status = StoreStatus::default();
    let create = FilesCall::CreateFile { dir, name: name.clone(), status };
    let FilesAnswer::CreateFile { fid, .. } = server.ask(&create)? else {
        return Err("CreateFile has another answer".into());
    };
    let timed = |act: &dyn Fn() -> Result<(), Failed>| -> Result<f64, Failed> {
        let began = Instant::now();
        act()?;
        Ok(bytes as f64 / 1e6 / began.elapsed().as_secs_f64())
    };
    let stored = timed(&|| server.store(fid, bytes));
    let fetched = timed(&|| server.fetch(fid, bytes));
    server.ask(&FilesCall::RemoveFile { dir, name })?;
    println!("store {:.3} fetch {:.3}", stored?, fetched?);
    server.port.close();
    Ok(())
}
