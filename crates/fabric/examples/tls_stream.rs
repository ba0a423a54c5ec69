//! One-mebibyte frames over the loopback interface, in clear text and over TLS in turn: rates, and
//! processor seconds of both ends together.
//!
//! `cargo run --release -p fabric --example tls_stream -- [MEBIBYTES] [ROUNDS]`

use std::error::Error;
use std::time::Instant;

use bytes::Bytes;
use fabric::tls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use fabric::tls::{CELL_SERVER, ClientTls, Handshake, Secured, ServerTls, TlsIdentity, Trust};
use fabric::{
    Connection, ConnectionOptions, Endpoint, Extent, Filled, FrameLimits, HEADER_BYTES, Inbox,
    Listener, OutFrame, Outbox, WaitFor,
};

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

const PAYLOAD: usize = 1 << 20;
const LIMITS: FrameLimits = FrameLimits { message: 0, payload: PAYLOAD };

fn measure(_: &[u8; HEADER_BYTES]) -> Result<Extent, &'static str> {
    Ok(Extent { message: 0, payload: PAYLOAD })
}

fn main() -> Outcome<()> {
    let mut numbers = std::env::args().skip(1).map(|text| text.parse::<usize>());
    let frames = numbers.next().transpose()?.unwrap_or(1024);
    let rounds = numbers.next().transpose()?.unwrap_or(3);
    let key = rcgen::KeyPair::generate()?;
    let certificate =
        rcgen::CertificateParams::new(vec![CELL_SERVER.to_owned()])?.self_signed(&key)?;
    let chain = vec![certificate.der().clone()];
    let client = ClientTls::new(Trust::Authorities(chain.clone()), None)?;
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let server = ServerTls::new(TlsIdentity { chain, key }, &[])?;
    for _ in 0..rounds {
        let (clear, clear_cost) = round(frames, None)?;
        let (sealed, sealed_cost) = round(frames, Some((&client, &server)))?;
        println!(
            "clear {clear:.2} GiB/s, {clear_cost:.3} s/GiB; TLS {sealed:.2} GiB/s, \
                {sealed_cost:.3} s/GiB; TLS/clear {:.2}",
            sealed / clear
        );
    }
    Ok(())
}

/// GiB per second, and processor seconds for each.
fn round(frames: usize, secured: Option<(&ClientTls, &ServerTls)>) -> Outcome<(f64, f64)> {
    let (one, other) = pair()?;
    let (mut outbox, mut inbox) = (Outbox::new(), Inbox::new(measure, LIMITS, false));
    if let Some((client, server)) = secured {
        let (ours, theirs) = std::thread::scope(|scope| {
            let answering = scope.spawn(|| answer(&other, server));
            (
                one.shake_hands(client, "127.0.0.1", None),
                answering.join().expect("the other end does not panic"),
            )
        });
        outbox.secure(theirs?.sealer);
        inbox.secure(ours?.opener);
    }
    let payload = Bytes::from(vec![7; PAYLOAD]);
    let (began, cost) = (Instant::now(), processor_seconds()?);
    std::thread::scope(|scope| -> Outcome<()> {
        let sending = scope.spawn(|| -> Outcome<()> {
            for _ in 0..frames {
                outbox.push(OutFrame::new([0; HEADER_BYTES], Bytes::new(), payload.clone(), None));
                while !outbox.flush(&other)? {
                    other.wait(WaitFor::Send, None)?;
                }
            }
            Ok(())
        });
        let mut left = frames;
        while left > 0 {
            if inbox.next_frame()?.is_some() {
                left -= 1;
            } else if inbox.fill(&one, true)? == Filled::End {
                return Err("the end came early".into());
            }
        }
        sending.join().expect("the sender does not panic")
    })?;
    let gib = frames as f64 / 1024.0;
    Ok((gib / began.elapsed().as_secs_f64(), (processor_seconds()? - cost) / gib))
}

fn pair() -> Outcome<(Connection, Connection)> {
    let listener =
        Listener::bind(&Endpoint::Tcp("127.0.0.1:0".into()), ConnectionOptions::default())?;
    let one = Connection::connect(&listener.endpoint()?, &ConnectionOptions::default())?;
    loop {
        if let Some(other) = listener.accept()? {
            return Ok((one, other));
        }
    }
}

fn answer(connection: &Connection, tls: &ServerTls) -> Outcome<Secured> {
    let mut handshake = Handshake::server(tls)?;
    let mut inbox = Inbox::new(measure, LIMITS, false);
    loop {
        let Some(record) = inbox.take_record()? else {
            inbox.fill(connection, true)?;
            continue;
        };
        let mut out = Vec::new();
        let done = handshake.step(&record, &mut out)?;
        connection.send_raw(&out, None)?;
        if done {
            return Ok(handshake.finish()?);
        }
    }
}

/// Processor time of this process, with all its threads.
fn processor_seconds() -> Outcome<f64> {
    let text = std::fs::read_to_string("/proc/self/stat")?;
    let behind_name = text.rsplit_once(')').ok_or("no name in stat")?.1;
    let fields = behind_name.split_ascii_whitespace().skip(11).take(2);
    let ticks: u64 = fields.map(|field| field.parse::<u64>().unwrap_or(0)).sum();
    Ok(ticks as f64 / 100.0)
}
