//! A server: the real service over a partition in memory, and what its driver does.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use rand::Rng;
use rand::rngs::SmallRng;
use store::{MemMachine, OpenOptions, Partition};
use types::{Answer, Follow, ReplyAddress, ServerId, ServerInfo, SessionId, Time};
use vice::{CellAccess, Partitions, Vice, ViceConfig, ViceParts};

use super::database::DatabaseLine;
use super::wire::Asker;
use crate::clock::Clock;

/// The name of the only partition of each server.
pub(super) const PARTITION: &str = "/vicepa";

/// See the head of the file.
pub(super) struct StandbyHouse {
    pub info: ServerInfo,
    pub clock: Clock,
    pub machine: MemMachine,
    pub line: DatabaseLine,
    /// How often it has started.
    pub life: u64,
    pub up: Option<StandbyLife>,
    /// It does nothing before then, and is up.
    pub stalled_until: Time,
    /// When a standby last asked, on its clock.
    pub asked_at: Option<Time>,
}

/// The state that is lost when the process dies.
pub(super) struct StandbyLife {
    pub vice: Arc<Vice>,
    /// The owners of sessions, and their connections.
    pub peers: BTreeMap<SessionId, (Asker, u64)>,
    /// Sessions of other servers and commands: the incarnation, and the last request.
    pub sessions: BTreeMap<Asker, (u64, SessionId, u64)>,
    /// The numbers of questions that are not answered, and what a standby asks.
    pub questions: HashMap<ReplyAddress, (u64, Option<Follow>)>,
    /// The driver has searched the database for standbys of this server.
    pub has_searched: bool,
    /// The question of this server's standby: whom it asked, its number, when it is given up.
    pub asked: Option<(usize, u64, Time)>,
    /// The next step of the standby, of several that may be planned.
    pub next_step: u64,
}

fn config() -> ViceConfig {
    fn encode(answer: &Answer) -> Vec<u8> {
        dafs::encode_answer_record(answer)
    }
    ViceConfig::new(encode, |record| dafs::decode_answer_record(record).ok())
}

/// The id of a server.
pub(super) fn id(server: usize) -> ServerId {
    ServerId((server as u128 + 1) << 96)
}

/// The number of a server.
pub(super) fn number(id: ServerId) -> usize {
    (id.0 >> 96) as usize - 1
}

impl StandbyHouse {
    /// A server that has never run.
    pub fn new(no: usize, rng: &mut SmallRng, line: DatabaseLine) -> StandbyHouse {
        let address = std::net::SocketAddr::from(([10, 0, 0, no as u8], 7620));
        StandbyHouse {
            info: ServerInfo {
                id: id(no),
                name: format!("server{no}"),
                addresses: vec![address],
                keys: Vec::new(),
            },
            clock: Clock::random(rng),
            machine: MemMachine::new(),
            line,
            life: 0,
            up: None,
            stalled_until: Time::ZERO,
            asked_at: None,
        }
    }

    /// The process starts.
    pub fn start(&mut self, now: Time, rng: &mut SmallRng) {
        let options = OpenOptions { seed: Some(rng.random()), ..OpenOptions::default() };
        let partition = Partition::open_memory(&self.machine, options).expect("it is in memory");
        let partitions = Partitions::new(vec![(PARTITION.to_owned(), partition)]);
        let parts = ViceParts {
            me: Some(self.info.clone()),
            cell: CellAccess::Database(Arc::new(self.line.clone())),
            ..ViceParts::default()
        };
        let vice = Vice::open_with(partitions, config(), parts, self.clock.read(now))
            .expect("what was written can be read");
        vice.followers().begin_all();
        self.life += 1;
        self.asked_at = None;
        self.up = Some(StandbyLife {
            vice: Arc::new(vice),
            peers: BTreeMap::new(),
            sessions: BTreeMap::new(),
            questions: HashMap::new(),
            has_searched: false,
            asked: None,
            next_step: 0,
        });
    }
}
