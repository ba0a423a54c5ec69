//! Faults of the world: processes, machines and the network.

use std::time::Duration;

use rand::Rng;
use types::Time;

use crate::event::SimEvent;
use crate::ground::Ground;

/// One fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InjectedFault {
    /// The server's process dies; its machine keeps everything written.
    ServerDies,
    /// The server's machine loses its power; unsynced data may be lost.
    PowerLoss,
    /// A client's process dies; its machine closes its connections.
    ClientDies(usize),
    /// A client's machine dies without closing its connections.
    ClientVanishes(usize),
    /// A client's process stalls for a while.
    Stall(usize),
    /// Nothing reaches the client or comes from it for a while.
    Partition(usize),
    /// A connection of the client breaks.
    Break(usize),
    /// All connections of the client break.
    BreakAll(usize),
    /// A client's process is killed, and another one goes on with its session after a while. (Only
    /// the session's machine is made anew: the client knows its files and locks again.)
    ClientIsSucceeded(usize),
    /// A connection of the client is begun a second time, late: hello and attach, or bind, arrive
    /// again.
    SayAgain(usize),
}

/// Draws faults between `from` and `to`. Some runs have none, some a single one, some many.
pub fn plan(ground: &mut Ground, clients: usize, from: Time, to: Time) {
    let count = match ground.rng.random_range(0..8) {
        0 => 0,
        1 | 2 => 1,
        3 | 4 => ground.rng.random_range(2..=3),
        _ => ground.rng.random_range(3..=9),
    };
    for _ in 0..count {
        let at = from + ground.between(Duration::ZERO, to.since(from));
        let client = ground.rng.random_range(0..clients);
        let fault = match ground.rng.random_range(0..23) {
            0..4 => InjectedFault::ServerDies,
            4..6 => InjectedFault::PowerLoss,
            6 => InjectedFault::ClientDies(client),
            7 => InjectedFault::ClientVanishes(client),
            8..10 => InjectedFault::Stall(client),
            10..13 => InjectedFault::Partition(client),
            13..16 => InjectedFault::Break(client),
            16..18 => InjectedFault::BreakAll(client),
            18..21 => InjectedFault::ClientIsSucceeded(client),
            _ => InjectedFault::SayAgain(client),
        };
        ground.at(at, SimEvent::Fault(fault));
    }
}
