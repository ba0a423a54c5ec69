//! A bare TCP stream between two processes on this machine: the upper limit of remote reads and
//! writes.
//!
//! The other end is this program again. It takes one connection at a time; the first eight bytes
//! are the count of bytes that follow (little-endian), with the highest bit set if the other end
//! sends them.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use local::failure::{Doing, Failure};

use super::side::Side;
use super::{MeasuredFrom, Scenario, State};

const CHUNK: usize = 1 << 20;
const FROM_SERVER: u64 = 1 << 63;

/// The stream as a side.
pub struct Stream {
    process: Child,
    address: SocketAddr,
}

impl Stream {
    /// Starts the other end.
    ///
    /// # Errors
    /// If the other end does not start.
    pub fn new() -> Result<Self, Failure> {
        let what = || "starting the other end of a TCP stream".to_owned();
        let program = std::env::current_exe().doing(what)?;
        let mut command = Command::new(program);
        command.args(["bench", "--helper", "stream"]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = command.spawn().doing(what)?;
        let mut line = String::new();
        let output = process.stdout.take().expect("it was asked for");
        BufReader::new(output).read_line(&mut line).doing(what)?;
        match line.trim().parse() {
            Ok(address) => Ok(Stream { process, address }),
            Err(error) => {
                let _ = process.kill();
                let _ = process.wait();
                Err(Failure::new(what(), error))
            }
        }
    }

    fn transfer(&self, bytes: u64, from_server: bool) -> io::Result<f64> {
        let start = Instant::now();
        let mut stream = TcpStream::connect(self.address)?;
        let order = if from_server { bytes | FROM_SERVER } else { bytes };
        stream.write_all(&order.to_le_bytes())?;
        if from_server {
            receive(&mut stream, bytes)?;
        } else {
            send(&mut stream, bytes)?;
            // Sent bytes are not yet received: the other end acknowledges them.
            stream.read_exact(&mut [0])?;
        }
        Ok(start.elapsed().as_secs_f64())
    }
}

/// Runs the other end: prints its address, and serves until its standard input ends.
///
/// # Errors
/// If it cannot listen.
pub fn serve() -> io::Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    println!("{}", listener.local_addr()?);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            // A failed connection does not end the service.
            let _ = stream.and_then(|stream| answer(&stream));
        }
    });
    io::copy(&mut io::stdin(), &mut io::sink()).map(drop)
}

fn answer(mut stream: &TcpStream) -> io::Result<()> {
    let mut order = [0; 8];
    stream.read_exact(&mut order)?;
    let order = u64::from_le_bytes(order);
    if order & FROM_SERVER != 0 {
        return send(stream, order & !FROM_SERVER);
    }
    receive(stream, order)?;
    stream.write_all(&[1])
}

fn send(mut to: impl Write, bytes: u64) -> io::Result<()> {
    let chunk = vec![0x5a; CHUNK];
    let mut left = bytes;
    while left > 0 {
        let now = left.min(CHUNK as u64);
        to.write_all(&chunk[..now as usize])?;
        left -= now;
    }
    Ok(())
}

fn receive(mut from: impl Read, bytes: u64) -> io::Result<()> {
    let mut chunk = vec![0; CHUNK];
    let mut left = bytes;
    while left > 0 {
        let most = left.min(CHUNK as u64) as usize;
        match from.read(&mut chunk[..most])? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            count => left -= count as u64,
        }
    }
    Ok(())
}

impl Side for Stream {
    fn name(&self) -> &str {
        "tcp"
    }

    fn root(&self, _place: MeasuredFrom) -> &Path {
        Path::new("/")
    }

    fn has_files(&self) -> bool {
        false
    }

    fn takes(&self, scenario: Scenario) -> Result<(), String> {
        let carries = matches!(
            scenario,
            Scenario::RemoteSeqRead | Scenario::RemoteSeqReadFirst | Scenario::RemoteSeqWrite
        );
        if carries { Ok(()) } else { Err(String::new()) }
    }

    fn forget(&mut self, _state: State, _place: MeasuredFrom) -> Result<(), Failure> {
        Ok(())
    }

    fn own_way(
        &mut self,
        scenario: Scenario,
        file_bytes: u64,
    ) -> Option<Result<(f64, f64), Failure>> {
        let from_server = match scenario {
            Scenario::RemoteSeqRead | Scenario::RemoteSeqReadFirst => true,
            Scenario::RemoteSeqWrite => false,
            _ => return None,
        };
        let took = self
            .transfer(file_bytes, from_server)
            .doing(|| "measuring a bare TCP stream".to_owned());
        Some(took.map(|secs| (secs, file_bytes as f64)))
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        drop(self.process.stdin.take());
        let _ = self.process.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_has_no_place_for_files() {
        let process = Command::new("true").stdin(Stdio::piped()).spawn().unwrap();
        let mut side = Stream { process, address: "127.0.0.1:1".parse().unwrap() };
        let archive = Path::new("/nowhere");
        let size = super::super::Size::QUICK;
        let fixture =
            super::super::fixture::Fixture::make(&mut side, size, &Scenario::ALL, archive).unwrap();
        assert!(!fixture.large().exists() && fixture.small.is_empty());
    }

    #[test]
    fn both_ways_carry_what_was_ordered() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let other = std::thread::spawn(move || {
            for _ in 0..2 {
                answer(&listener.accept().unwrap().0).unwrap();
            }
        });
        let bytes = 3 * CHUNK as u64 + 5;
        for order in [bytes, bytes | FROM_SERVER] {
            let mut stream = TcpStream::connect(address).unwrap();
            stream.write_all(&order.to_le_bytes()).unwrap();
            if order == bytes {
                send(&stream, bytes).unwrap();
                stream.read_exact(&mut [0]).unwrap();
            } else {
                receive(&stream, bytes).unwrap();
                assert_eq!(stream.read(&mut [0]).unwrap(), 0, "no more than that");
            }
        }
        other.join().unwrap();
    }
}
