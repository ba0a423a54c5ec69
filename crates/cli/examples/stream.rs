//! A bare TCP stream between two processes: the capacity of a link without a file system.
//!
//! ```text
//! stream send 10.77.0.1:7700 268435456      sends so many zero bytes to the first client, ends
//! stream receive 10.77.0.1:7700             connects, reads all, prints megabytes (10^6) a second
//! ```

use std::error::Error;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

const BUFFER_BYTES: usize = 1 << 20;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["send", address, bytes] => send(address, bytes.parse()?),
        ["receive", address] => receive(address),
        _ => Err("usage: stream send ADDRESS BYTES | stream receive ADDRESS".into()),
    }
}

fn send(address: &str, bytes: usize) -> Result<(), Box<dyn Error>> {
    let (mut stream, _) = TcpListener::bind(address)?.accept()?;
    let buffer = vec![0; BUFFER_BYTES];
    let mut left = bytes;
    while left > 0 {
        let now = left.min(BUFFER_BYTES);
        stream.write_all(&buffer[..now])?;
        left -= now;
    }
    Ok(())
}

fn receive(address: &str) -> Result<(), Box<dyn Error>> {
    let until = Instant::now() + Duration::from_secs(10);
    let mut stream = loop {
        match TcpStream::connect(address) {
            Ok(stream) => break stream,
            Err(error) if Instant::now() > until => return Err(error.into()),
            Err(_) => std::thread::sleep(Duration::from_millis(50)),
        }
    };
    let (start, mut total, mut buffer) = (Instant::now(), 0, vec![0; BUFFER_BYTES]);
    loop {
        match stream.read(&mut buffer)? {
            0 => break,
            bytes => total += bytes,
        }
    }
    println!("{:.1}", total as f64 / 1e6 / start.elapsed().as_secs_f64());
    Ok(())
}
