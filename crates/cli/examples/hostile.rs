//! A hostile peer for a server's TCP port.
//!
//! `record` is a proxy between a real client and its server and stores the client's bytes; `throw`
//! sends garbage, and recorded bytes that were changed, cut and repeated; `silent` opens many
//! connections and sends nothing. None of it may end the server, make it grow, or keep it from its
//! real clients: the calling script checks that.

use std::fs::File;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Parser;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

/// How long to wait for an answer to garbage.
const ANSWER: Duration = Duration::from_millis(50);

#[derive(Parser)]
enum Command {
    /// Forwards connections, and stores the clients' bytes.
    Record {
        /// The address for clients.
        listen: SocketAddr,
        /// The server.
        server: SocketAddr,
        /// Prefix of the stored files: one for each connection, with a number behind it.
        file: PathBuf,
    },
    /// Sends garbage, each piece over a new connection.
    Throw {
        /// The server.
        server: SocketAddr,
        /// Duration.
        #[arg(long, default_value_t = 5)]
        seconds: u64,
        /// Seed of the random numbers.
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// Files of `record`.
        #[arg(long)]
        recorded: Vec<PathBuf>,
    },
    /// Opens connections and sends nothing; prints `ready` when all are open.
    Silent {
        /// The server.
        server: SocketAddr,
        /// Count of connections.
        #[arg(long, default_value_t = 1000)]
        count: usize,
        /// Duration.
        #[arg(long, default_value_t = 10)]
        seconds: u64,
    },
}

fn main() -> ExitCode {
    let done = match Command::parse() {
        Command::Record { listen, server, file } => record(listen, server, &file),
        Command::Throw { server, seconds, seed, recorded } => {
            throw(server, seconds, seed, &recorded)
        }
        Command::Silent { server, count, seconds } => silent(server, count, seconds),
    };
    match done {
        Ok(text) => {
            println!("{text}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("hostile: {error}");
            ExitCode::FAILURE
        }
    }
}

fn record(
    listen: SocketAddr,
    server: SocketAddr,
    file: &std::path::Path,
) -> std::io::Result<String> {
    let listener = TcpListener::bind(listen)?;
    for (number, client) in listener.incoming().enumerate() {
        let client = client?;
        // From a reserved port like the client itself: the server trusts no others.
        let upstream = TcpStream::from(fabric::connect_reserved(server, Duration::from_secs(5))?);
        upstream.set_nonblocking(false)?;
        let kept = File::create(format!("{}.{number}", file.display()))?;
        let (mut from_client, mut to_server) = (client.try_clone()?, upstream.try_clone()?);
        std::thread::spawn(move || pass_on(&mut from_client, &mut to_server, Some(kept)));
        let (mut from_server, mut to_client) = (upstream, client);
        std::thread::spawn(move || pass_on(&mut from_server, &mut to_client, None));
    }
    Ok(String::new())
}

fn pass_on(from: &mut TcpStream, to: &mut TcpStream, mut kept: Option<File>) {
    let mut bytes = [0; 64 << 10];
    while let Ok(count @ 1..) = from.read(&mut bytes) {
        if let Some(kept) = &mut kept {
            kept.write_all(&bytes[..count]).expect("the record takes bytes");
        }
        if to.write_all(&bytes[..count]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Write);
}

fn throw(
    server: SocketAddr,
    seconds: u64,
    seed: u64,
    recorded: &[PathBuf],
) -> std::io::Result<String> {
    let recorded = recorded.iter().map(std::fs::read).collect::<Result<Vec<_>, _>>()?;
    let mut random = SmallRng::seed_from_u64(seed);
    let end = Instant::now() + Duration::from_secs(seconds);
    let mut thrown = 0u64;
    while Instant::now() < end {
        let bytes = garbage(&mut random, &recorded);
        let mut connection = TcpStream::connect_timeout(&server, Duration::from_secs(5))?;
        connection.set_read_timeout(Some(ANSWER))?;
        connection.set_write_timeout(Some(Duration::from_secs(1)))?;
        // The server may close the connection at any time, which is no error.
        let _ = connection.write_all(&bytes);
        if random.random_ratio(1, 4) {
            let _ = connection.shutdown(Shutdown::Write);
        }
        let _ = connection.read(&mut [0; 4096]);
        thrown += 1;
    }
    Ok(format!("{thrown} pieces thrown, seed {seed}"))
}

fn garbage(random: &mut SmallRng, recorded: &[Vec<u8>]) -> Vec<u8> {
    let length = random.random_range(1..20_000);
    let mut bytes = vec![0; length];
    match random.random_range(0..10) {
        0 => random.fill(bytes.as_mut_slice()),
        1 => bytes.fill(0xff),
        2 => {}
        3 => bytes = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n".to_vec(),
        _ if !recorded.is_empty() => {
            let which = random.random_range(0..recorded.len());
            bytes = spoiled(random, &recorded[which]);
        }
        _ => random.fill(bytes.as_mut_slice()),
    }
    bytes
}

/// Recorded bytes with some changed: a later change passes more of the server's checks.
fn spoiled(random: &mut SmallRng, real: &[u8]) -> Vec<u8> {
    let mut bytes = real.to_vec();
    for _ in 0..random.random_range(1..4) {
        if bytes.len() < 2 {
            break;
        }
        let at = random.random_range(0..bytes.len());
        match random.random_range(0..5) {
            0 => bytes[at] ^= 1 << random.random_range(0..8),
            1 => bytes[at] = 0xff,
            2 => bytes.truncate(at),
            3 => {
                let again = bytes[at..].to_vec();
                bytes.extend(again.into_iter().take(4096));
            }
            _ => {
                let end = (at + 8).min(bytes.len());
                bytes[at..end].fill(if random.random() { 0xff } else { 0 });
            }
        }
    }
    bytes
}

fn silent(server: SocketAddr, count: usize, seconds: u64) -> std::io::Result<String> {
    let connections =
        (0..count).map(|_| TcpStream::connect(server)).collect::<Result<Vec<_>, _>>()?;
    println!("ready");
    std::thread::sleep(Duration::from_secs(seconds));
    Ok(format!("{} connections sent nothing", connections.len()))
}
