//! The parts of a port that its handles share: its socket, its thread, and its calls.

use std::collections::HashMap;
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use parking_lot::{Condvar, Mutex, MutexGuard};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::fd::OwnedFd;
use rx::{
    EndpointConfig, RxCallId, RxCaller, RxConnectionId, RxEndpoint, RxError, RxEvent,
    ServerSecurity, ServiceId,
};
use types::Time;

use crate::datagrams::{DatagramSocket, Incoming, Outgoing};

/// Receiving calls in a turn.
const TURNS: usize = 2;
/// The receiving thread looks at the clocks this often at least.
const REST: Duration = Duration::from_secs(1);

/// A call of a peer.
pub(crate) struct CameCall {
    pub id: RxCallId,
    pub service: ServiceId,
    pub peer: SocketAddr,
    pub caller: RxCaller,
    pub connection: RxConnectionId,
}

type Serve = Box<dyn Fn(&Arc<PortCore>, CameCall) + Send + Sync>;

/// See the head of the file.
pub(crate) struct PortCore {
    socket: DatagramSocket,
    state: Mutex<PortState>,
    /// Something happened to a call.
    changed: Condvar,
    /// Wakes the receiving thread.
    wake: OwnedFd,
    stop: AtomicBool,
    serve: Serve,
    born: Instant,
    thread: Mutex<Option<JoinHandle<()>>>,
}

struct PortState {
    endpoint: RxEndpoint,
    /// Calls that a thread has, and how they ended.
    calls: HashMap<RxCallId, Option<Result<(), RxError>>>,
    outgoing: Outgoing,
    /// Readers that are woken for [`ENOUGH_BYTES`], or when no more comes.
    readers: Vec<WaitingReader>,
    /// Until then the receiving thread sleeps.
    sleeps_until: Time,
}

/// A thread that waits for more of a call.
struct WaitingReader {
    id: RxCallId,
    /// It has taken some bytes.
    has_some: bool,
}

impl WaitingReader {
    /// Does it wait for more than it could have now?
    fn has_few(&self, endpoint: &RxEndpoint) -> bool {
        self.has_some || endpoint.unread(self.id).is_some_and(|bytes| bytes > 0)
    }
}

impl PortState {
    /// When the receiving thread has work that no datagram brings.
    fn due(&self, now: Time) -> Time {
        let has_few = self.readers.iter().any(|reader| reader.has_few(&self.endpoint));
        let quiet = if has_few { now + FOR_MORE } else { Time::NEVER };
        self.endpoint.due().min(quiet)
    }

    /// The line is quiet: readers take what there is. Returns whether there is such a reader.
    fn release_readers(&mut self) -> bool {
        let PortState { endpoint, readers, .. } = self;
        let waiting = readers.len();
        readers.retain(|reader| !reader.has_few(endpoint));
        readers.len() < waiting
    }
}

/// The outcome of a step on the endpoint.
struct Settled {
    /// Calls that came.
    came: Vec<CameCall>,
    /// Something happened to a call that a thread may wait for.
    is_news: bool,
}

/// A stream counts as interrupted when nothing of it came for so long; a sender with a window of 32
/// packets has sent less meanwhile.
const FOR_MORE: Duration = Duration::from_micros(40);

/// The reader of a stream is woken for some packets: it would otherwise wake up for each.
pub(crate) const ENOUGH_BYTES: usize = 16 << 10;

/// How much a step of a reader found.
pub(crate) enum Amount {
    Nothing,
    Few,
    /// Also at the end of the stream.
    Enough,
}

/// Bytes of datagrams that wait for the receiving thread: some windows.
const SOCKET_BYTES: usize = 4 << 20;

/// Asks for room for datagrams. The system gives less to a process without privileges; what does
/// not fit is lost, and sent again.
fn make_room(socket: &UdpSocket) {
    use rustix::net::sockopt::{
        set_socket_recv_buffer_size, set_socket_recv_buffer_size_force, set_socket_send_buffer_size,
    };
    let given = set_socket_recv_buffer_size_force(socket, SOCKET_BYTES)
        .or_else(|_| set_socket_recv_buffer_size(socket, SOCKET_BYTES))
        .and_then(|()| set_socket_send_buffer_size(socket, SOCKET_BYTES));
    if let Err(error) = given {
        tracing::debug!(%error, "the socket's buffers stay as they are");
    }
}

impl PortCore {
    pub(crate) fn open(
        address: SocketAddr,
        config: EndpointConfig,
        services: Vec<(ServiceId, Vec<ServerSecurity>)>,
        serve: Serve,
    ) -> io::Result<Arc<PortCore>> {
        let socket = UdpSocket::bind(address)?;
        make_room(&socket);
        let socket = DatagramSocket::new(socket)?;
        let mut endpoint = RxEndpoint::new(config, rand::random(), Time::ZERO);
        for (service, security) in services {
            endpoint.serve(service, security);
        }
        let (calls, outgoing) = (HashMap::new(), Outgoing::new());
        let state =
            PortState { endpoint, calls, outgoing, readers: Vec::new(), sleeps_until: Time::NEVER };
        let port = Arc::new(PortCore {
            socket,
            state: Mutex::new(state),
            changed: Condvar::new(),
            wake: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
            stop: AtomicBool::new(false),
            serve,
            born: Instant::now(),
            thread: Mutex::new(None),
        });
        let receiving = Arc::clone(&port);
        let name = format!("rx {}", port.address()?.port());
        let thread =
            std::thread::Builder::new().name(name).spawn(move || receiving.receive_all())?;
        *port.thread.lock() = Some(thread);
        Ok(port)
    }

    pub(crate) fn address(&self) -> io::Result<SocketAddr> {
        self.socket.socket.local_addr()
    }

    pub(crate) fn close(&self) {
        self.stop.store(true, Ordering::Release);
        self.wake();
        if let Some(thread) = self.thread.lock().take() {
            // The thread may be the one that closes: its `serve` was the last to have the port.
            if thread.thread().id() != std::thread::current().id() {
                let _ = thread.join();
            }
        }
        self.changed.notify_all();
    }

    /// Begins a call, which the caller forgets in the end.
    pub(crate) fn begin(&self, connection: RxConnectionId) -> Result<RxCallId, RxError> {
        let mut state = self.state.lock();
        let id = state.endpoint.begin(self.now(), connection)?;
        state.calls.insert(id, None);
        Ok(id)
    }

    /// A look at the endpoint.
    pub(crate) fn look<R>(&self, look: impl FnOnce(&RxEndpoint) -> R) -> R {
        look(&self.state.lock().endpoint)
    }

    fn now(&self) -> Time {
        Time::from_start(self.born.elapsed())
    }

    fn wake(&self) {
        let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
    }

    /// A step on the endpoint, and all that follows from it.
    pub(crate) fn step<R>(self: &Arc<Self>, act: impl FnOnce(&mut RxEndpoint, Time) -> R) -> R {
        let mut state = self.state.lock();
        let result = act(&mut state.endpoint, self.now());
        let Settled { came, .. } = self.settle(&mut state);
        drop(state);
        came.into_iter().for_each(|call| (self.serve)(self, call));
        result
    }

    /// Repeats a step on a call until it finds something; `Err` if the call is over before. Waits
    /// in between, until something happens to any call.
    pub(crate) fn wait_for<T>(
        self: &Arc<Self>,
        id: RxCallId,
        mut look: impl FnMut(&mut RxEndpoint, Time) -> Result<Option<T>, RxError>,
    ) -> Result<T, RxError> {
        self.wait_in(id, |state, now| look(&mut state.endpoint, now))
    }

    /// Repeats `take` until it has taken some, and for a short time until that is enough.
    pub(crate) fn read(
        self: &Arc<Self>,
        id: RxCallId,
        mut take: impl FnMut(&mut RxEndpoint, Time) -> Result<Amount, RxError>,
    ) -> Result<(), RxError> {
        let mut has_waited = false;
        self.wait_in(id, |state, now| {
            let place = state.readers.iter().position(|reader| reader.id == id);
            let amount = take(&mut state.endpoint, now)?;
            let is_found = match amount {
                Amount::Enough => true,
                Amount::Few => has_waited && place.is_none(),
                Amount::Nothing => false,
            };
            has_waited = true;
            let has_some = matches!(amount, Amount::Few);
            match place {
                Some(place) if is_found => _ = state.readers.swap_remove(place),
                Some(place) => state.readers[place].has_some = has_some,
                None if is_found => {}
                None => state.readers.push(WaitingReader { id, has_some }),
            }
            Ok(is_found.then_some(()))
        })
    }

    fn wait_in<T>(
        self: &Arc<Self>,
        id: RxCallId,
        mut look: impl FnMut(&mut PortState, Time) -> Result<Option<T>, RxError>,
    ) -> Result<T, RxError> {
        let mut state = self.state.lock();
        loop {
            let found = look(&mut state, self.now());
            let Settled { came, .. } = self.settle(&mut state);
            let is_late = !came.is_empty();
            if is_late {
                MutexGuard::unlocked(&mut state, || {
                    came.into_iter().for_each(|call| (self.serve)(self, call));
                });
            }
            match (found, state.calls.get(&id)) {
                // The endpoint knows the call no more: the cause is what ended it.
                (Err(RxError::NoCall), Some(Some(Err(error)))) => return Err(*error),
                (Err(error), _) => return Err(error),
                (Ok(Some(found)), _) => return Ok(found),
                (Ok(None), _) if self.stop.load(Ordering::Acquire) => return Err(RxError::Dead),
                (Ok(None), _) if is_late => {}
                (Ok(None), _) => _ = self.changed.wait_for(&mut state, REST),
            }
        }
    }

    /// Has threads that wait for calls look again.
    pub(crate) fn notify(&self) {
        self.changed.notify_all();
    }

    /// No thread has the call any more.
    pub(crate) fn forget(&self, id: RxCallId) {
        self.state.lock().calls.remove(&id);
    }

    /// Sends what is owed, wakes calls that wait, and the receiving thread if it would sleep too
    /// long.
    fn settle(&self, state: &mut PortState) -> Settled {
        let now = self.now();
        let (mut came, mut is_news) = (Vec::new(), false);
        while let Some(event) = state.endpoint.event() {
            match event {
                RxEvent::Incoming { call, service, peer, caller, connection, .. } => {
                    state.calls.insert(call, None);
                    came.push(CameCall { id: call, service, peer, caller, connection });
                }
                RxEvent::Over(id, result) => {
                    state.calls.entry(id).and_modify(|outcome| *outcome = Some(result));
                    is_news = true;
                }
                RxEvent::Readable(id) if state.readers.iter().any(|reader| reader.id == id) => {}
                RxEvent::Readable(_) | RxEvent::Writable(_) => is_news = true,
            }
        }
        let PortState { endpoint, readers, .. } = state;
        let waiting = readers.len();
        readers.retain(|reader| endpoint.unread(reader.id).is_some_and(|it| it < ENOUGH_BYTES));
        is_news |= readers.len() < waiting;
        while let Some(datagram) = state.endpoint.transmit(now) {
            state.outgoing.push(&self.socket, &datagram);
        }
        state.outgoing.send(&self.socket);
        if is_news {
            self.changed.notify_all();
        }
        if state.due(now) < state.sleeps_until {
            state.sleeps_until = Time::ZERO;
            self.wake();
        }
        Settled { came, is_news }
    }

    /// The receiving thread. While packets of a stream come and no thread waits for them it rests
    /// between its turns, so that it takes some at once: otherwise it would wake up for each.
    fn receive_all(self: Arc<Self>) {
        let mut incoming = Incoming::new();
        while !self.stop.load(Ordering::Acquire) {
            self.sleep();
            let (Settled { came, is_news }, is_stream) = {
                let mut state = self.state.lock();
                let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
                let now = self.now();
                state.endpoint.set_wall(now, wall.as_secs().cast_signed());
                // Packets that they make necessary are sent after some calls.
                for _ in 0..TURNS {
                    let may_be_more = incoming.receive(&self.socket, |from, datagram| {
                        state.endpoint.receive(now, from, datagram);
                    });
                    if !may_be_more {
                        break;
                    }
                }
                let now = self.now();
                state.endpoint.tick(now);
                let is_stream = state.endpoint.took_stream();
                if !is_stream && state.release_readers() {
                    self.changed.notify_all();
                }
                (self.settle(&mut state), is_stream)
            };
            let may_rest = is_stream && !is_news && came.is_empty();
            came.into_iter().for_each(|call| (self.serve)(&self, call));
            if may_rest {
                std::thread::sleep(FOR_MORE);
            }
        }
    }

    /// Sleeps until there is a datagram, something is due, or another thread wakes this one.
    fn sleep(&self) {
        let wait = {
            let mut state = self.state.lock();
            let now = self.now();
            let due = state.due(now).min(now + REST);
            state.sleeps_until = due;
            due.since(self.now())
        };
        let wait =
            Timespec { tv_sec: wait.as_secs().cast_signed(), tv_nsec: wait.subsec_nanos().into() };
        let mut sources = [
            PollFd::new(&self.socket.socket, PollFlags::IN),
            PollFd::new(&self.wake, PollFlags::IN),
        ];
        // An interrupted wait is over, too.
        let _ = poll(&mut sources, Some(&wait));
        if !sources[1].revents().is_empty() {
            let _ = rustix::io::read(&self.wake, &mut [0; 8]);
        }
    }
}
