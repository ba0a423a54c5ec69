//! A slow, long, lossy network link between two network namespaces, for tests and measurements on
//! one machine.
//!
//! ```text
//! link --delay-ms 6.25 --rate 200 --loss 0.001     sets the link up, prints the namespaces, and
//!                                                  ends with ctrl-c or the end of its input
//! ```
//!
//! Each end is a TUN device in a namespace of its own. A thread for each direction reads the
//! packets of one end, loses some, and writes the others to the other end after the link's time: a
//! packet leaves when those before it have left at the link's rate, and arrives after the delay. A
//! packet that finds the queue full is lost, as in a router. The kernel's own emulation (netem) is
//! not in every kernel; this needs TUN and `ip`.

use std::collections::VecDeque;
use std::error::Error;
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use clap::Parser;
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

/// Emulates a network link between two network namespaces.
#[derive(Parser)]
struct Arguments {
    /// Prefix of the namespaces' names.
    #[arg(long, default_value = "rialto-link")]
    name: String,
    /// One-way delay in milliseconds; a round trip is twice that.
    #[arg(long, default_value_t = 6.25)]
    delay_ms: f64,
    /// Megabytes (10^6) a second, each way.
    #[arg(long, default_value_t = 250.0)]
    rate: f64,
    /// Share of packets that are lost, each way.
    #[arg(long, default_value_t = 0.0)]
    loss: f64,
    /// Bytes of a packet.
    #[arg(long, default_value_t = 1500)]
    mtu: u32,
    /// Bytes that wait to leave before packets are dropped; 0: those that the link carries in 50
    /// ms.
    #[arg(long, default_value_t = 0)]
    queue: usize,
    /// Seed that chooses the lost packets.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// Properties of the link.
#[derive(Clone, Copy)]
struct Shape {
    delay: Duration,
    bytes_per_second: f64,
    loss: f64,
    queue: usize,
}

#[derive(Default)]
struct Counters {
    packets: AtomicU64,
    bytes: AtomicU64,
    lost: AtomicU64,
    dropped: AtomicU64,
}

/// One direction: packets under way, and when the line is free again.
struct Direction {
    shape: Shape,
    random: StdRng,
    under_way: VecDeque<(Instant, Vec<u8>)>,
    free_at: Instant,
}

impl Direction {
    fn new(shape: Shape, seed: u64) -> Self {
        Direction {
            shape,
            random: StdRng::seed_from_u64(seed),
            under_way: VecDeque::new(),
            free_at: Instant::now(),
        }
    }

    fn enter(&mut self, now: Instant, packet: &[u8], counters: &Counters) {
        counters.packets.fetch_add(1, Ordering::Relaxed);
        counters.bytes.fetch_add(packet.len() as u64, Ordering::Relaxed);
        let begins = self.free_at.max(now);
        let waiting = (begins - now).as_secs_f64() * self.shape.bytes_per_second;
        if waiting as usize > self.shape.queue {
            counters.dropped.fetch_add(1, Ordering::Relaxed);
            return;
        }
        self.free_at =
            begins + Duration::from_secs_f64(packet.len() as f64 / self.shape.bytes_per_second);
        if self.random.random_bool(self.shape.loss) {
            counters.lost.fetch_add(1, Ordering::Relaxed);
            return;
        }
        self.under_way.push_back((self.free_at + self.shape.delay, packet.to_vec()));
    }

    fn due(&mut self, now: Instant) -> Option<Vec<u8>> {
        self.under_way.front().filter(|(at, _)| *at <= now)?;
        self.under_way.pop_front().map(|(_, packet)| packet)
    }

    /// How long until a packet is due.
    fn idle(&self, now: Instant) -> Duration {
        self.under_way
            .front()
            .map_or(Duration::from_millis(200), |(at, _)| at.saturating_duration_since(now))
    }
}

/// Carries one direction until `stop` is set.
fn carry(
    from: &File,
    to: &File,
    mut way: Direction,
    counters: &Counters,
    stop: &AtomicBool,
) -> std::io::Result<()> {
    let mut packet = vec![0; 64 << 10];
    while !stop.load(Ordering::Relaxed) {
        let idle = way.idle(Instant::now());
        let wait =
            Timespec { tv_sec: idle.as_secs() as i64, tv_nsec: i64::from(idle.subsec_nanos()) };
        poll(&mut [PollFd::new(from, PollFlags::IN)], Some(&wait)).map_err(std::io::Error::from)?;
        loop {
            match (&*from).read(&mut packet) {
                Ok(bytes) => way.enter(Instant::now(), &packet[..bytes], counters),
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => break,
                Err(error) if is_down(&error) => break,
                Err(error) => return Err(error),
            }
            // Due packets leave also while more arrive all the time.
            deliver(to, &mut way)?;
        }
        deliver(to, &mut way)?;
    }
    Ok(())
}

fn deliver(to: &File, way: &mut Direction) -> std::io::Result<()> {
    while let Some(packet) = way.due(Instant::now()) {
        match (&*to).write(&packet) {
            Ok(_) => {}
            // A full device drops the packet; one that is down too.
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock || is_down(&error) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn is_down(error: &std::io::Error) -> bool {
    error.raw_os_error() == Some(Errno::IO.raw_os_error())
        || error.raw_os_error() == Some(Errno::INVAL.raw_os_error())
}

/// The two namespaces, removed when dropped.
struct Namespaces {
    names: [String; 2],
}

impl Drop for Namespaces {
    fn drop(&mut self) {
        for name in &self.names {
            // A namespace that is already removed needs no action.
            let _ = Command::new("ip").args(["netns", "del", name]).status();
        }
    }
}

fn ip(arguments: &[&str]) -> Result<(), Box<dyn Error>> {
    let status = Command::new("ip").args(arguments).status()?;
    if status.success() {
        Ok(())
    } else {
        Err(format!("ip {} failed: {status}", arguments.join(" ")).into())
    }
}

/// Makes a namespace with one end in it, at `address`.
fn make_end(
    namespace: &str,
    device: &str,
    address: &str,
    mtu: u32,
) -> Result<File, Box<dyn Error>> {
    let file = mem::tun::open(device).map_err(|error| format!("no TUN device: {error}"))?;
    ip(&["netns", "add", namespace])?;
    ip(&["link", "set", device, "netns", namespace])?;
    ip(&["-n", namespace, "addr", "add", address, "dev", device])?;
    ip(&[
        "-n",
        namespace,
        "link",
        "set",
        device,
        "mtu",
        &mtu.to_string(),
        "txqueuelen",
        "10000",
        "up",
    ])?;
    ip(&["-n", namespace, "link", "set", "lo", "up"])?;
    Ok(file)
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments = Arguments::parse();
    let bytes_per_second = arguments.rate * 1e6;
    let queue =
        if arguments.queue == 0 { (bytes_per_second * 0.05) as usize } else { arguments.queue };
    let delay = Duration::from_secs_f64(arguments.delay_ms / 1e3);
    let shape = Shape { delay, bytes_per_second, loss: arguments.loss, queue };
    let namespaces =
        Namespaces { names: ["a", "b"].map(|end| format!("{}-{end}", arguments.name)) };
    let number = std::process::id() % 100_000;
    let [a, b] = &namespaces.names;
    let ends = [
        Arc::new(make_end(a, &format!("rla{number}"), "10.77.0.1/30", arguments.mtu)?),
        Arc::new(make_end(b, &format!("rlb{number}"), "10.77.0.2/30", arguments.mtu)?),
    ];
    let stop = Arc::new(AtomicBool::new(false));
    let counters = [Arc::new(Counters::default()), Arc::new(Counters::default())];
    let mut threads = Vec::new();
    for (index, counted) in counters.iter().enumerate() {
        let (from, to) = (Arc::clone(&ends[index]), Arc::clone(&ends[1 - index]));
        let (stop, counted) = (Arc::clone(&stop), Arc::clone(counted));
        let way = Direction::new(shape, arguments.seed + index as u64);
        threads.push(std::thread::spawn(move || carry(&from, &to, way, &counted, &stop)));
    }
    println!("{a} 10.77.0.1 <-> {b} 10.77.0.2");
    std::io::stdout().flush()?;
    // A signal ends the process, and the devices with it; the end of the input ends it in order.
    let stopped = Arc::clone(&stop);
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&stopped))?;
    }
    wait_for_end(&stop);
    stop.store(true, Ordering::Relaxed);
    for thread in threads {
        thread.join().map_err(|_| "a direction panicked")??;
    }
    for (counted, way) in counters.iter().zip(["a to b", "b to a"]) {
        let [packets, bytes, lost, dropped] =
            [&counted.packets, &counted.bytes, &counted.lost, &counted.dropped]
                .map(|count| count.load(Ordering::Relaxed));
        println!(
            "{way}: {packets} packets, {bytes} bytes, {lost} lost, {dropped} found the queue full"
        );
    }
    Ok(())
}

/// Waits until a signal comes or the input ends.
fn wait_for_end(stop: &AtomicBool) {
    let input = std::io::stdin();
    let moment = Timespec { tv_sec: 0, tv_nsec: 200_000_000 };
    while !stop.load(Ordering::Relaxed) {
        let mut ends = [PollFd::new(&input, PollFlags::IN)];
        if poll(&mut ends, Some(&moment)).is_ok_and(|ready| ready > 0)
            && !matches!(input.lock().read(&mut [0; 64]), Ok(1..))
        {
            return;
        }
    }
}
