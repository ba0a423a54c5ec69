//! A session's own threads: the *back* thread receives breaks and renewals, the *keeper* ticks the
//! machine and delivers the notices that other threads may not deliver, the *connector* makes
//! connections.

use std::sync::Arc;
use std::time::{Duration, Instant};

use dafs::{ChannelId, ClientInput, ConnectionRole};
use parking_lot::MutexGuard;

use super::channel::FrameChannel;
use super::core::SessionPhase;
use super::shared::{On, Shared};
use crate::{CallError, clock};

/// How long a server may take to answer the attach over a fresh connection.
const ATTACH_WITHIN: Duration = Duration::from_secs(10);
/// After this time the machine gives the connection up.
const ANSWER_WITHIN: Duration = dafs::limits::RENEWAL_TIME;
/// The shortest time between ticks, should the machine ever ask for one in the past.
const TICK_PAUSE: Duration = Duration::from_millis(5);
/// How long the keeper receives before it checks its clock again.
const MOMENT: Duration = Duration::from_millis(50);

/// Receives over the back channel as long as there is one. Without one the server sends breaks over
/// the operations connection, where no thread receives while no call waits: then this thread does,
/// and for a moment longer, for frames in transit.
pub(crate) fn receive_breaks(shared: &Arc<Shared>) {
    let mut was_without = false;
    loop {
        let (back, operations) = {
            let core = shared.core.lock();
            if core.phase == SessionPhase::Closed {
                return;
            }
            (core.back(), core.operations())
        };
        if let Some(channel) = &back {
            if std::mem::take(&mut was_without) {
                shared.lead_until(Some(Instant::now() + MOMENT), &|| false);
            }
            shared.pump(channel, None, &|| false, On::Back);
            continue;
        }
        was_without = true;
        let there_is_one = || shared.core.lock().back().is_some();
        if operations.is_none() || !shared.lead_until(Some(Instant::now() + MOMENT), &there_is_one)
        {
            let mut core = shared.core.lock();
            if core.phase != SessionPhase::Closed && core.back().is_none() {
                shared.changed.wait_for(&mut core, MOMENT);
            }
        }
    }
}

/// Ticks the machine when it asked for it, and delivers notices that arose in applications'
/// threads.
///
/// A tick may ask the server whether the operations connection lives. While no call waits there, no
/// other thread would receive the answer: the keeper then takes the reader's role until a frame
/// arrives.
pub(crate) fn keep(shared: &Arc<Shared>) {
    let mut asked: Option<Asked> = None;
    let mut ticked = types::Time::ZERO;
    let mut keeper = shared.keeper.lock();
    while !keeper.closing {
        // A thread that sets an earlier time after this check also sets `woken`.
        keeper.asleep_until = types::Time::NEVER;
        let due = MutexGuard::unlocked(&mut keeper, || shared.core.lock().wake_at)
            .max(ticked + TICK_PAUSE);
        let now = clock::now();
        if keeper.closing {
            return;
        } else if keeper.notices {
            keeper.notices = false;
            MutexGuard::unlocked(&mut keeper, || shared.tell(On::Own));
        } else if due <= now {
            ticked = now;
            asked = MutexGuard::unlocked(&mut keeper, || tick(shared)).or(asked);
        } else if let Some(question) = asked.take() {
            asked = MutexGuard::unlocked(&mut keeper, || question.await_answered(shared));
        } else if !keeper.woken {
            keeper.asleep_until = due;
            shared
                .keeper_woken
                .wait_for(&mut keeper, due.since(now).min(Duration::from_secs(3600)));
        }
        keeper.woken = false;
    }
}

fn tick(shared: &Arc<Shared>) -> Option<Asked> {
    let operations = shared.core.lock().operations();
    let before = operations.as_ref().map_or(0, |channel| channel.frames_received());
    let after = shared.core.lock().step(clock::now(), ClientInput::Tick, None, None);
    let asks = after.flush.iter().any(|channel| channel.role == ConnectionRole::Operations);
    shared.follow_up(after, On::Own);
    Some(Asked { channel: operations?, before, until: Instant::now() + ANSWER_WITHIN })
        .filter(|_| asks)
}

/// A frame other than a call was sent over the operations connection.
struct Asked {
    channel: Arc<FrameChannel>,
    before: u64,
    until: Instant,
}

impl Asked {
    /// Receives for a moment, unless other threads do. Returns itself if there is still no answer.
    fn await_answered(self, shared: &Arc<Shared>) -> Option<Asked> {
        let answered = || self.channel.frames_received() != self.before;
        let others = !shared.lead_until(Some(Instant::now() + MOMENT), &answered);
        let over = others
            || answered()
            || Instant::now() >= self.until
            || !shared.core.lock().knows(self.channel.id);
        if over { None } else { Some(self) }
    }
}

/// Receives the answers to a predecessor's requests. Perhaps no other thread waits for an answer,
/// and the server ends a connection that is not read.
pub(crate) fn receive_orphans(shared: &Arc<Shared>) {
    let none = || !shared.core.lock().orphans.any_waits();
    while !none() && !shared.is_closing() {
        if !shared.lead_until(Some(Instant::now() + MOMENT), &none) {
            let mut core = shared.core.lock();
            if core.orphans.any_waits() {
                shared.changed.wait_for(&mut core, MOMENT);
            }
        }
    }
}

/// Makes the connections that the machine asks for, one after the other.
pub(crate) fn connect(shared: &Arc<Shared>) {
    while let Some(role) = next_order(shared) {
        let id = {
            let mut core = shared.core.lock();
            core.next_channel += 1;
            ChannelId(core.next_channel)
        };
        let (place, server) = shared.places.lock().current();
        match FrameChannel::connect(id, role, &shared.config, (&place, server)) {
            Ok((channel, terms)) => {
                let mut core = shared.core.lock();
                if matches!(core.phase, SessionPhase::Closed) {
                    return;
                }
                *shared.features.lock() = terms.features;
                let certificate = channel.certificate;
                core.channels.push(Arc::new(channel));
                let input = ClientInput::Connected { role, channel: id, terms, certificate };
                let mut after = core.step(clock::now(), input, Some(id), None);
                drop(core);
                after.changed = true;
                shared.follow_up(after, On::Own);
                if role == ConnectionRole::Operations {
                    await_attached(shared, id);
                }
            }
            Err(error) => {
                tracing::debug!(%error, ?role, endpoint = %place, "connecting failed");
                shared.places.lock().failed(&place);
                let mut core = shared.core.lock();
                core.last_error = Some(error.to_string());
                let never = error.is_final() || error.is_another() && !core.attached_once;
                if never && core.phase == SessionPhase::Apart {
                    core.phase = SessionPhase::Refused(error.to_string());
                    core.finish_all(&CallError::Refused(error.to_string()));
                }
                let mut after =
                    core.step(clock::now(), ClientInput::ConnectFailed { role }, None, None);
                drop(core);
                after.changed = true;
                shared.follow_up(after, On::Own);
            }
        }
    }
}

/// The next connection to make, when its time has come. `None`: the session closes.
fn next_order(shared: &Shared) -> Option<ConnectionRole> {
    let mut orders = shared.connector.lock();
    loop {
        if shared.is_closing() {
            return None;
        }
        let now = clock::now();
        let next = orders
            .iter()
            .enumerate()
            .min_by_key(|(_, (_, at))| *at)
            .map(|(index, (_, at))| (index, *at));
        match next {
            Some((index, at)) if at <= now => return orders.remove(index).map(|(role, _)| role),
            Some((_, at)) => {
                shared.connector_woken.wait_for(&mut orders, at.since(now));
            }
            None => shared.connector_woken.wait(&mut orders),
        }
    }
}

/// Receives the answer to the attach, unless the thread of a waiting call does.
fn await_attached(shared: &Arc<Shared>, id: ChannelId) {
    let until = Instant::now() + ATTACH_WITHIN;
    let over = || {
        let core = shared.core.lock();
        core.phase != SessionPhase::Apart || !core.knows(id)
    };
    while !over() {
        if Instant::now() >= until {
            if let Some(channel) = shared.core.lock().operations() {
                channel.connection.shut_down();
            }
            return;
        }
        if !shared.lead_until(Some(until), &over) {
            let mut core = shared.core.lock();
            if core.phase == SessionPhase::Apart && core.knows(id) {
                shared.changed.wait_for(&mut core, Duration::from_millis(5));
            }
        }
    }
}
