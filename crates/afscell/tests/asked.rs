//! Database servers that answer, refuse, or send to another one.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use afs3::RpcMessage;
use afs3::errors::code_name;
use afs3::locations::LocationsCall;
use afs3::protection::{PrEntry, ProtectionAnswer, ProtectionCall};
use afs3::structs::AfsUuid;
use afs3::xdr::{Chars, XdrList, XdrReader, XdrWriter};
use afscell::{AfsCell, AfsCellError, principals};
use parking_lot::Mutex;
use rx::rxkad::{RxkadKeys, RxkadLevel};
use rx::{EndpointConfig, RxCaller, ServerSecurity, ServiceId};
use rxport::{RxPort, ServedCall};

/// The server has no quorum: another one may have it.
const NO_QUORUM: i32 = 5376;
/// PRPERM.
const NOT_PERMITTED: i32 = 267_269;

/// Ports are AFS's, so each server has an address of its own.
fn address() -> Ipv4Addr {
    static LAST: AtomicU8 = AtomicU8::new(0);
    let [.., own] = std::process::id().to_be_bytes();
    Ipv4Addr::new(127, 92, own, 1 + LAST.fetch_add(1, Ordering::Relaxed))
}

fn keys() -> Arc<RxkadKeys> {
    let mut keys = RxkadKeys::new();
    keys.add_krb5(1, 18, &[7; 32]);
    Arc::new(keys)
}

type Answer = dyn Fn(&RxCaller, &[u8]) -> Result<Vec<u8>, i32> + Send + Sync;

/// A server of one service.
struct Server {
    address: Ipv4Addr,
    port: RxPort,
}

impl Server {
    fn new(port: u16, service: u16, answer: Box<Answer>) -> Server {
        let address = address();
        let rxkad = ServerSecurity::Rxkad {
            keys: keys(),
            level_min: RxkadLevel::Clear,
            index: rx::rxkad::INDEX,
        };
        let services = vec![(ServiceId(service), vec![ServerSecurity::Null, rxkad])];
        let answer = Arc::new(answer);
        let at = SocketAddr::new(address.into(), port);
        let port = RxPort::open(at, EndpointConfig::default(), services, move |served| {
            let answer = Arc::clone(&answer);
            std::thread::spawn(move || Server::serve(served, &**answer));
        });
        Server { address, port: port.unwrap() }
    }

    fn serve(served: ServedCall, answer: &Answer) {
        let ServedCall { mut call, caller, .. } = served;
        let mut request = Vec::new();
        while let Ok(Some(part)) = call.read(1 << 16) {
            request.extend_from_slice(&part);
        }
        match answer(&caller, &request) {
            Ok(bytes) => {
                call.write(&bytes).unwrap();
                call.end().unwrap();
            }
            Err(code) => call.abort(code),
        }
    }

    fn of_protection(
        answer: impl Fn(&RxCaller, ProtectionCall) -> Result<ProtectionAnswer, i32>
        + Send
        + Sync
        + 'static,
    ) -> Server {
        let answer = move |caller: &RxCaller, request: &[u8]| {
            let mut from = XdrReader::new(request);
            let number = from.u32().unwrap();
            let made = answer(caller, ProtectionCall::decode(number, &mut from).unwrap())?;
            let mut bytes = Vec::new();
            made.encode(&mut XdrWriter::new(&mut bytes));
            Ok(bytes)
        };
        Server::new(afs3::protection::PORT, afs3::protection::SERVICE, Box::new(answer))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.port.close();
    }
}

fn entry(id: i32, called: &str) -> PrEntry {
    PrEntry {
        flags: 0x80,
        id,
        owner: -204,
        creator: 0,
        group_quota: 20,
        user_quota: 0,
        count: 0,
        reserved: [0; 5],
        name: Chars::new(called.as_bytes()).unwrap(),
    }
}

/// Two pages of entries, and the members of one group; for the holder of the key.
fn answer(caller: &RxCaller, call: ProtectionCall) -> Result<ProtectionAnswer, i32> {
    if matches!(caller, RxCaller::Anybody) {
        return Err(NOT_PERMITTED);
    }
    let page = |entries: &[PrEntry], next| ProtectionAnswer::ListEntries {
        entries: XdrList::new(entries.to_vec()).unwrap(),
        next,
    };
    match call {
        ProtectionCall::ListEntries { start: 0, .. } => {
            Ok(page(&[entry(7, "joe"), entry(-7, "joe:friends")], 3))
        }
        ProtectionCall::ListEntries { start: 3, .. } => Ok(page(&[entry(8, "ann")], -1)),
        ProtectionCall::ListElements { id: -7 } => {
            Ok(ProtectionAnswer::ListElements { ids: XdrList::new(vec![7, 8]).unwrap(), over: 0 })
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn users_and_groups_come_from_the_server_that_can_tell() {
    let away = Server::of_protection(|_, _| Err(NO_QUORUM));
    let there = Server::of_protection(answer);
    let cell = AfsCell::open(vec![away.address, there.address], Some(keys())).unwrap();
    let found = principals(&cell).unwrap();
    let names: Vec<_> = found.iter().map(|one| (one.id, &*one.name)).collect();
    assert_eq!(names, [(-7, "joe:friends"), (7, "joe"), (8, "ann")]);
    assert_eq!(found[0].members, [7, 8]);
    assert_eq!(cell.server(), Some(there.address), "it is asked first from now on");
    assert_eq!(cell.need_superuser(), Ok(()));
}

#[test]
fn who_refuses_and_why_is_told() {
    let there = Server::of_protection(answer);
    let cell = AfsCell::open(vec![there.address], None).unwrap();
    let refused = principals(&cell).unwrap_err();
    let server = there.address;
    let call = "ListEntries";
    assert_eq!(refused, AfsCellError::Refused { server, call, code: NOT_PERMITTED });
    assert_eq!(cell.need_superuser(), Err(refused.clone()));
    assert_eq!(
        refused.to_string(),
        format!("{server} refuses ListEntries: {} (267269)", code_name(NOT_PERMITTED).unwrap())
    );
    let away = Server::of_protection(|_, _| Err(NO_QUORUM));
    let cell = AfsCell::open(vec![away.address], Some(keys())).unwrap();
    let silent = principals(&cell).unwrap_err().to_string();
    assert!(silent.ends_with("UNOQUORUM (5376)"), "{silent}");
    let none = AfsCell::open(Vec::new(), None).unwrap();
    assert_eq!(principals(&none), Err(AfsCellError::NoServer));
    let no_key = AfsCell::open(vec![server], Some(Arc::default())).unwrap();
    assert_eq!(principals(&no_key), Err(AfsCellError::NoKey));
}

#[test]
fn a_file_server_is_entered_with_its_addresses() {
    let entered: Arc<Mutex<Vec<LocationsCall>>> = Arc::default();
    let keep = Arc::clone(&entered);
    let answer = move |_: &RxCaller, request: &[u8]| {
        let mut from = XdrReader::new(request);
        let number = from.u32().unwrap();
        keep.lock().push(LocationsCall::decode(number, &mut from).unwrap());
        Ok(Vec::new())
    };
    let database = Server::new(afs3::locations::PORT, afs3::locations::SERVICE, Box::new(answer));
    let cell = AfsCell::open(vec![database.address], Some(keys())).unwrap();
    let uuid = AfsUuid::default();
    cell.register(uuid, &[Ipv4Addr::new(192, 0, 2, 1)]).unwrap();
    let addresses = XdrList::new(vec![0xc000_0201]).unwrap();
    assert_eq!(*entered.lock(), [LocationsCall::RegisterAddrs { uuid, spare: 0, addresses }]);
}
