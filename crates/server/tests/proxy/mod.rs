//! A network that cuts connections at random bytes.
#![allow(dead_code)] // each test program uses its part

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use client::Endpoint;
use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

pub struct Proxy {
    shared: Arc<Shared>,
    address: String,
}

struct Shared {
    target: Endpoint,
    random: Mutex<StdRng>,
    /// Connections live for about this many bytes; 0: for ever.
    life_bytes: AtomicU64,
    cuts: AtomicU64,
    closed: AtomicBool,
    /// Bytes are read and lost, as by a network that drops packets.
    silent: AtomicBool,
    open: Mutex<Vec<Stream>>,
}

enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Stream {
    fn connect(endpoint: &Endpoint) -> std::io::Result<Stream> {
        match endpoint {
            Endpoint::Tcp(address) => TcpStream::connect(address).map(Stream::Tcp),
            Endpoint::Unix(path) => UnixStream::connect(path).map(Stream::Unix),
        }
    }

    fn try_clone(&self) -> Stream {
        match self {
            Stream::Tcp(stream) => Stream::Tcp(stream.try_clone().unwrap()),
            Stream::Unix(stream) => Stream::Unix(stream.try_clone().unwrap()),
        }
    }

    fn shut_down(&self) {
        let _ = match self {
            Stream::Tcp(stream) => stream.shutdown(Shutdown::Both),
            Stream::Unix(stream) => stream.shutdown(Shutdown::Both),
        };
    }

    fn read(&mut self, bytes: &mut [u8]) -> std::io::Result<usize> {
        match self {
            Stream::Tcp(stream) => stream.read(bytes),
            Stream::Unix(stream) => stream.read(bytes),
        }
    }

    fn write_all(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        match self {
            Stream::Tcp(stream) => stream.write_all(bytes),
            Stream::Unix(stream) => stream.write_all(bytes),
        }
    }
}

impl Proxy {
    pub fn start(target: Endpoint, seed: u64) -> Proxy {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let shared = Arc::new(Shared {
            target,
            random: Mutex::new(StdRng::seed_from_u64(seed)),
            life_bytes: AtomicU64::new(0),
            cuts: AtomicU64::new(0),
            closed: AtomicBool::new(false),
            silent: AtomicBool::new(false),
            open: Mutex::default(),
        });
        let accepting = Arc::clone(&shared);
        std::thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                accepting.join(Stream::Tcp(client));
            }
        });
        Proxy { shared, address }
    }

    pub fn endpoint(&self) -> Endpoint {
        Endpoint::Tcp(self.address.clone())
    }

    /// New connections live for up to twice this many bytes; existing ones are cut now.
    pub fn cut_from_now_on(&self, life_bytes: u64) {
        self.shared.life_bytes.store(life_bytes, Ordering::SeqCst);
        self.shared.cut_all();
    }

    pub fn let_live(&self) {
        self.shared.life_bytes.store(0, Ordering::SeqCst);
    }

    pub fn cuts(&self) -> u64 {
        self.shared.cuts.load(Ordering::SeqCst)
    }

    /// Blocks everything.
    pub fn close_down(&self) {
        self.shared.closed.store(true, Ordering::SeqCst);
        self.shared.cut_all();
    }

    /// From now on every byte is lost, and connections stay open.
    pub fn fall_silent(&self) {
        self.shared.silent.store(true, Ordering::SeqCst);
    }

    /// Cuts connections that lost bytes; new ones carry bytes again.
    pub fn speak_again(&self) {
        self.shared.silent.store(false, Ordering::SeqCst);
        self.shared.cut_all();
    }

    pub fn open_up(&self) {
        self.shared.closed.store(false, Ordering::SeqCst);
    }
}

impl Shared {
    fn join(self: &Arc<Self>, client: Stream) {
        let Ok(server) = Stream::connect(&self.target) else {
            client.shut_down();
            return;
        };
        let mut open = self.open.lock();
        // The thread that closes the proxy cuts the connections registered by then.
        if self.closed.load(Ordering::SeqCst) {
            client.shut_down();
            server.shut_down();
            return;
        }
        open.push(client.try_clone());
        open.push(server.try_clone());
        drop(open);
        for (from, to) in [(client.try_clone(), server.try_clone()), (server, client)] {
            let life = match self.life_bytes.load(Ordering::SeqCst) {
                0 => u64::MAX,
                life => self.random.lock().random_range(1..=2 * life),
            };
            let shared = Arc::clone(self);
            std::thread::spawn(move || shared.carry(from, to, life));
        }
    }

    fn carry(&self, mut from: Stream, mut to: Stream, mut life: u64) {
        let mut buffer = [0; 16 << 10];
        while let Ok(count) = from.read(&mut buffer)
            && count > 0
        {
            if self.silent.load(Ordering::SeqCst) {
                continue;
            }
            let passed = (count as u64).min(life) as usize;
            life -= passed as u64;
            if to.write_all(&buffer[..passed]).is_err() {
                break;
            }
            if life == 0 {
                self.cuts.fetch_add(1, Ordering::SeqCst);
                break;
            }
        }
        from.shut_down();
        to.shut_down();
    }

    fn cut_all(&self) {
        self.open.lock().drain(..).for_each(|stream| stream.shut_down());
    }
}
