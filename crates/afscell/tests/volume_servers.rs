//! Volume servers that refuse, lie, hang and break off.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use afs3::RpcMessage;
use afs3::errors::VOLSERVOLBUSY;
use afs3::volumes::{PORT, RestoreCookie, SERVICE, VolumesAnswer, VolumesCall};
use afs3::xdr::{Chars, XdrReader, XdrWriter};
use afscell::{VolumeServerError, VolumeServers};
use parking_lot::Mutex;
use rx::rxkad::{RxkadKeys, RxkadLevel};
use rx::{EndpointConfig, RxCaller, ServerSecurity, ServiceId};
use rxport::{PortCall, RxPort, ServedCall};

/// Ports are AFS's, so each server has an address of its own.
fn address() -> Ipv4Addr {
    static LAST: AtomicU8 = AtomicU8::new(0);
    let [.., own] = std::process::id().to_be_bytes();
    Ipv4Addr::new(127, 93, own, 1 + LAST.fetch_add(1, Ordering::Relaxed))
}

fn keys(byte: u8) -> Arc<RxkadKeys> {
    let mut keys = RxkadKeys::new();
    keys.add_krb5(1, 18, &[byte; 32]);
    Arc::new(keys)
}

struct Server {
    address: Ipv4Addr,
    port: RxPort,
}

/// Answers a call of which the request is read to its arguments.
type Answer = dyn Fn(PortCall, VolumesCall, &RxCaller) + Send + Sync;

impl Server {
    fn new(answer: impl Fn(PortCall, VolumesCall, &RxCaller) + Send + Sync + 'static) -> Server {
        let answer: Arc<Answer> = Arc::new(answer);
        let rxkad = ServerSecurity::Rxkad {
            keys: keys(7),
            level_min: RxkadLevel::Clear,
            index: rx::rxkad::INDEX,
        };
        let services = vec![(ServiceId(SERVICE), vec![ServerSecurity::Null, rxkad])];
        let address = address();
        let at = SocketAddr::new(address.into(), PORT);
        let port = RxPort::open(at, EndpointConfig::default(), services, move |served| {
            let answer = Arc::clone(&answer);
            std::thread::spawn(move || {
                let ServedCall { mut call, caller, .. } = served;
                let front = call.read(1 << 16).ok().flatten().unwrap_or_default();
                let mut from = XdrReader::new(&front);
                let Ok(number) = from.u32() else { return };
                answer(call, VolumesCall::decode(number, &mut from).unwrap(), &caller);
            });
        });
        Server { address, port: port.unwrap() }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.port.close();
    }
}

fn tell(mut call: PortCall, answer: &VolumesAnswer) {
    let mut bytes = Vec::new();
    answer.encode(&mut XdrWriter::new(&mut bytes));
    // The client may have given up.
    let _ = call.write(&bytes).and_then(|()| call.end());
}

const DUMP: VolumesCall = VolumesCall::Dump { transaction: 1, from_date: 0 };
const BEGIN: VolumesCall = VolumesCall::TransCreate { volume: 7, partition: 0, flags: 2 };
const LIST: VolumesCall = VolumesCall::XListPartitions {};

#[test]
fn the_holder_of_the_key_is_a_superuser_and_others_ask() {
    let server = Server::new(|call, asked, caller| match (asked, caller) {
        (VolumesCall::XListPartitions {}, _) => {
            let partitions = afs3::xdr::XdrList::new(vec![0, 25]).unwrap();
            tell(call, &VolumesAnswer::XListPartitions { partitions });
        }
        (_, RxCaller::Anybody) => call.abort(1),
        _ => tell(call, &VolumesAnswer::TransCreate { transaction: 3 }),
    });
    let (with, without) =
        (VolumeServers::open(Some(keys(7))).unwrap(), VolumeServers::open(None).unwrap());
    let begun = with.ask(server.address, &BEGIN).unwrap();
    assert_eq!(begun, VolumesAnswer::TransCreate { transaction: 3 });
    assert!(without.ask(server.address, &LIST).is_ok());
    assert_eq!(without.ask(server.address, &BEGIN), Err(VolumeServerError::NoKey));
    let other = VolumeServers::open(Some(keys(8))).unwrap();
    let refused = other.ask(server.address, &BEGIN).unwrap_err();
    assert!(matches!(refused, VolumeServerError::Refused { .. }), "{refused:?}");
    let none = VolumeServers::open(Some(Arc::default())).unwrap();
    assert_eq!(none.ask(server.address, &BEGIN), Err(VolumeServerError::NoKey));
}

#[test]
fn a_refusal_has_the_names_of_call_and_code() {
    let server = Server::new(|call, _, _| call.abort(VOLSERVOLBUSY));
    let servers = VolumeServers::open(Some(keys(7))).unwrap();
    let refused = servers.ask(server.address, &BEGIN).unwrap_err();
    let named = format!("TransCreate: VOLSERVOLBUSY ({VOLSERVOLBUSY})");
    assert_eq!(refused.to_string(), named);
}

#[test]
fn an_answer_of_something_else_or_without_end_is_none() {
    let server = Server::new(|mut call, asked, _| match asked {
        VolumesCall::TransCreate { .. } => drop(call.write(&[1]).and_then(|()| call.end())),
        _ => while call.write(&[0; 1 << 16]).is_ok() {},
    });
    let servers = VolumeServers::open(Some(keys(7))).unwrap();
    let odd = servers.ask(server.address, &BEGIN);
    assert_eq!(odd, Err(VolumeServerError::Odd { call: "TransCreate" }));
    let endless = servers.ask(server.address, &LIST);
    assert_eq!(endless, Err(VolumeServerError::Odd { call: "XListPartitions" }));
}

#[test]
fn a_dump_that_breaks_off_says_so() {
    let server = Server::new(|mut call, _, _| {
        let _ = call.write(&[5; 100_000]);
        call.abort(28);
    });
    let servers = VolumeServers::open(Some(keys(7))).unwrap();
    let broken = servers.dump(server.address, &DUMP, &mut |_| Ok(()));
    assert_eq!(broken, Err(VolumeServerError::Refused { call: "Dump", code: 28 }));
    let full = servers.dump(server.address, &DUMP, &mut |_| Err("the disk is full".into()));
    let why = full.unwrap_err().to_string();
    assert!(why == "the disk is full" || why.starts_with("Dump"), "{why}");
}

fn restore() -> VolumesCall {
    let cookie = RestoreCookie { name: Chars::new(b"v").unwrap(), kind: 0, clone: 0, parent: 7 };
    VolumesCall::Restore { transaction: 1, flags: 0, cookie }
}

#[test]
fn a_restore_arrives_and_a_broken_one_ends() {
    let came: Arc<Mutex<usize>> = Arc::default();
    let count = Arc::clone(&came);
    let server = Server::new(move |mut call, _, _| {
        while let Ok(Some(part)) = call.read(1 << 16) {
            *count.lock() += part.len();
            if *count.lock() > 3_000_000 {
                return call.abort(28);
            }
        }
        let _ = call.end();
    });
    let servers = VolumeServers::open(Some(keys(7))).unwrap();
    let mut pieces = vec![vec![1; 100_000]; 10].into_iter();
    let sent = servers.restore(server.address, &restore(), &mut || Ok(pieces.next()));
    assert_eq!(sent, Ok(()));
    assert!((900_000..=1_000_000).contains(&*came.lock()), "but what came with the arguments");
    let broken = servers.restore(server.address, &restore(), &mut || Ok(Some(vec![2; 100_000])));
    assert_eq!(broken, Err(VolumeServerError::Refused { call: "Restore", code: 28 }));
    let here = servers.restore(server.address, &restore(), &mut || Err("it is damaged".into()));
    assert_eq!(here, Err(VolumeServerError::Here("it is damaged".into())));
}

#[test]
fn a_server_that_hangs_is_given_up() {
    // A socket that takes packets and answers none.
    let address = address();
    let _silent = UdpSocket::bind((address, PORT)).unwrap();
    let servers = VolumeServers::open(None).unwrap();
    let hangs = servers.ask(address, &LIST).unwrap_err();
    assert!(matches!(hangs, VolumeServerError::Silent { .. }), "{hangs:?}");
}
