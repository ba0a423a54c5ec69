//! The least cost of receiving a stream of datagrams: the floor for a file server of AFS.
//!
//! `cargo run --release -p rxport --example floor` starts a sender as a child process. It sends
//! packets of 1,444 bytes with a window of 32, one system call each, as OpenAFS's client does; this
//! process takes what is there in one system call, acknowledges it with one datagram of 66 bytes,
//! and rests for 40 us, as the port does. Nothing else is done with the bytes. It prints the rate
//! and the processor time of this process for each GiB.

use std::error::Error;
use std::io::{ErrorKind, IoSliceMut};
use std::net::{SocketAddr, UdpSocket};
use std::process::Command;
use std::time::{Duration, Instant};

use quinn_udp::{RecvMeta, UdpSockRef, UdpSocketState};

type Outcome = Result<(), Box<dyn Error>>;

const PACKET: usize = 1444;
/// Bytes of a packet that are the stream's.
const DATA: u64 = 1416;
const WINDOW: u64 = 32;
const GIB: u64 = 1 << 30;
const PACKETS: u64 = GIB / DATA + 1;
const ACK: usize = 66;
const REST: Duration = Duration::from_micros(40);

fn main() -> Outcome {
    match std::env::args().nth(1) {
        Some(address) => send(address.parse()?),
        None => receive(),
    }
}

fn send(to: SocketAddr) -> Outcome {
    let socket = UdpSocket::bind("127.0.0.1:0")?;
    socket.connect(to)?;
    let (packet, mut ack) = ([7; PACKET], [0; ACK]);
    let (mut sent, mut arrived) = (0, 0);
    while arrived < PACKETS {
        while sent < PACKETS && sent < arrived + WINDOW {
            socket.send(&packet)?;
            sent += 1;
        }
        socket.recv(&mut ack)?;
        let [count, ..] = ack.as_chunks::<8>().0 else { return Err("a short answer".into()) };
        arrived = u64::from_le_bytes(*count);
    }
    Ok(())
}

fn receive() -> Outcome {
    let socket = UdpSocket::bind("127.0.0.1:0")?;
    let state = UdpSocketState::new(UdpSockRef::from(&socket))?;
    let mut sender =
        Command::new(std::env::current_exe()?).arg(socket.local_addr()?.to_string()).spawn()?;
    let mut bytes = vec![0; 32 << 16];
    let mut metas = [RecvMeta::default(); 32];
    let (mut arrived, mut began, mut used) = (0, None, 0.0);
    while arrived < PACKETS {
        let mut buffers = bytes.chunks_mut(1 << 16).map(IoSliceMut::new);
        let mut buffers: [IoSliceMut<'_>; 32] =
            std::array::from_fn(|_| buffers.next().expect("there are as many"));
        let count = match state.recv(UdpSockRef::from(&socket), &mut buffers, &mut metas) {
            Ok(count) => count,
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                let mut poll = [rustix::event::PollFd::new(&socket, rustix::event::PollFlags::IN)];
                rustix::event::poll(&mut poll, None)?;
                continue;
            }
            Err(error) => return Err(error.into()),
        };
        if began.is_none() {
            (began, used) = (Some(Instant::now()), processor_seconds()?);
        }
        let came: usize = metas.iter().take(count).map(|meta| meta.len / PACKET).sum();
        arrived += came as u64;
        let mut ack = [0; ACK];
        ack[..8].copy_from_slice(&arrived.to_le_bytes());
        socket.send_to(&ack, metas[0].addr)?;
        std::thread::sleep(REST);
    }
    let seconds = began.ok_or("nothing came")?.elapsed().as_secs_f64();
    let used = processor_seconds()? - used;
    sender.wait()?;
    println!("{:.1} MiB/s, {used:.2} processor seconds for each GiB", 1024.0 / seconds);
    Ok(())
}

/// Processor seconds of this process so far.
fn processor_seconds() -> Result<f64, Box<dyn Error>> {
    let text = std::fs::read_to_string("/proc/self/schedstat")?;
    Ok(text.split(' ').next().ok_or("no number")?.parse::<f64>()? / 1e9)
}
