//! Two ports on the loopback interface.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use rx::rxkad::{RxkadKeys, RxkadLevel, print_token};
use rx::{
    CallLimits, ClientSecurity, EndpointConfig, RxCaller, RxConnectionId, RxError, ServerSecurity,
    ServiceId,
};
use rxport::{RxPort, ServedCall};

const SERVICE: ServiceId = ServiceId(7);
const LIMITS: CallLimits =
    CallLimits { dead: Duration::from_secs(5), idle: Duration::MAX, hard: Duration::MAX };

fn here() -> SocketAddr {
    "127.0.0.1:0".parse().unwrap()
}

/// A port whose calls each have a thread that serves them so.
fn server(
    security: Vec<ServerSecurity>,
    serve: impl Fn(ServedCall) + Send + Sync + 'static,
) -> RxPort {
    let serve = Arc::new(serve);
    let services = vec![(SERVICE, security)];
    RxPort::open(here(), EndpointConfig::default(), services, move |call| {
        let serve = Arc::clone(&serve);
        std::thread::spawn(move || serve(call));
    })
    .unwrap()
}

fn client() -> RxPort {
    RxPort::open(here(), EndpointConfig::default(), Vec::new(), |_| panic!("nothing is served"))
        .unwrap()
}

fn connect(from: &RxPort, to: &RxPort) -> RxConnectionId {
    from.connect(to.address().unwrap(), SERVICE, ClientSecurity::Null, LIMITS).unwrap()
}

/// Answers with the request.
fn echo(mut served: ServedCall) {
    let call = &mut served.call;
    let mut all = Vec::new();
    while let Some(part) = call.read(1 << 16).unwrap() {
        all.extend_from_slice(&part);
    }
    call.write(&all).unwrap();
    call.end().unwrap();
}

#[test]
fn calls_of_many_threads_are_answered() {
    let (server, client) = (server(vec![ServerSecurity::Null], echo), client());
    std::thread::scope(|scope| {
        for thread in 0..6u8 {
            let connection = connect(&client, &server);
            let client = &client;
            scope.spawn(move || {
                for turn in 0..40u8 {
                    let request = vec![thread ^ turn; usize::from(turn) * 997];
                    assert_eq!(client.ask(connection, &request).unwrap(), request);
                }
            });
        }
    });
    client.close();
    server.close();
}

#[test]
fn long_streams_go_both_ways() {
    // The answer begins when the request is over: it is what was read, part by part.
    let keep = |mut served: ServedCall| {
        let mut parts = Vec::new();
        while let Some(part) = served.call.read(5000).unwrap() {
            parts.push(part);
        }
        for part in parts {
            served.call.write(&part).unwrap();
        }
        served.call.end().unwrap();
    };
    let (server, client) = (server(vec![ServerSecurity::Null], keep), client());
    let connection = connect(&client, &server);
    let content: Vec<u8> = (0..6_000_000u32).map(|at| (at % 251) as u8).collect();
    let mut call = client.begin(connection).unwrap();
    for part in content.chunks(100_000) {
        call.write(part).unwrap();
    }
    call.end().unwrap();
    let mut received = Vec::new();
    while let Some(part) = call.read(1 << 20).unwrap() {
        received.extend_from_slice(&part);
    }
    assert!(received == content);
    client.close();
    server.close();
}

#[test]
fn codes_and_silence_end_calls() {
    let refuse = |served: ServedCall| served.call.abort(102);
    let (server, client) = (server(vec![ServerSecurity::Null], refuse), client());
    let connection = connect(&client, &server);
    assert_eq!(client.ask(connection, b"request"), Err(RxError::PeerAborted(102)));
    // No such service.
    let to = server.address().unwrap();
    let other = client.connect(to, ServiceId(8), ClientSecurity::Null, LIMITS).unwrap();
    assert_eq!(client.ask(other, b"request"), Err(RxError::PeerAborted(-2)));
    server.close();
    let limits = CallLimits { dead: Duration::from_millis(600), ..LIMITS };
    let silent = client.connect(to, SERVICE, ClientSecurity::Null, limits).unwrap();
    assert_eq!(client.ask(silent, b"request"), Err(RxError::Dead));
    client.close();
}

#[test]
fn a_call_that_is_dropped_ends_at_its_peer() {
    let (tell, told) = channel();
    let read = move |mut served: ServedCall| {
        let read = loop {
            match served.call.read(100) {
                Ok(Some(_)) => {}
                other => break other,
            }
        };
        tell.send(read).unwrap();
    };
    let (server, client) = (server(vec![ServerSecurity::Null], read), client());
    let connection = connect(&client, &server);
    let mut call = client.begin(connection).unwrap();
    call.write(&[1; 5000]).unwrap();
    drop(call);
    let ended = told.recv_timeout(Duration::from_secs(20)).unwrap();
    assert_eq!(ended, Err(RxError::PeerAborted(rx::code::USER_ABORT)));
    // The port goes on.
    let mut call = client.begin(connection).unwrap();
    call.end().unwrap();
    assert_eq!(told.recv_timeout(Duration::from_secs(20)).unwrap(), Ok(None));
    client.close();
    server.close();
}

#[test]
fn rxkad_says_who_calls() {
    let mut keys = RxkadKeys::new();
    keys.add_krb5(3, 18, &[7; 32]);
    let token = print_token(&keys, &mut rand::rng()).unwrap();
    let (tell, told): (_, Receiver<RxCaller>) = channel();
    let serve = move |served: ServedCall| {
        tell.send(served.caller.clone()).unwrap();
        echo(served);
    };
    let keys = Arc::new(keys);
    let security = ServerSecurity::Rxkad { keys, level_min: RxkadLevel::Clear, index: 2 };
    let (server, client) = (server(vec![security], serve), client());
    let to = server.address().unwrap();
    for level in [RxkadLevel::Clear, RxkadLevel::Auth, RxkadLevel::Crypt] {
        let security = ClientSecurity::Rxkad { token: token.clone(), level };
        let connection = client.connect(to, SERVICE, security, LIMITS).unwrap();
        let request = vec![level as u8; 100_000];
        assert_eq!(client.ask(connection, &request).unwrap(), request);
        match told.recv().unwrap() {
            RxCaller::Krb { is_local_auth: true, level: of, .. } => assert_eq!(of, level),
            other => panic!("{other:?}"),
        }
    }
    // It has no class without proof.
    let nameless = connect(&client, &server);
    assert_eq!(client.ask(nameless, b"request"), Err(RxError::PeerAborted(-2)));
    client.close();
    server.close();
}
