//! A server: the real service over real partitions, on a machine in memory that can lose its power.

use std::collections::BTreeMap;
use std::sync::Arc;

use celldb::CellDb;
use parking_lot::Mutex;
use rand::Rng;
use rand::rngs::SmallRng;
use store::{MemMachine, OpenOptions, Partition};
use types::{Answer, Fault, Pull, ServerId, ServerInfo, TaskInfo, Time};
use vice::{CellAccess, Fetch, Partitions, Tasks, TransferAgent, Vice, ViceConfig, ViceParts};

use super::database::{Database, DatabaseLink, HOST};
use super::wires::Wires;
use crate::clock::Clock;

/// The simulated server with its disks; see the head of the file.
pub struct SimHouse {
    /// The server's record in the database.
    pub info: ServerInfo,
    /// Its steady clock.
    pub clock: Clock,
    /// How often it has started.
    pub life: u64,
    /// The disk of each partition.
    pub machines: Vec<MemMachine>,
    /// The state that is lost when the process dies.
    pub up: Option<ServerLife>,
}

/// One life of a server.
pub struct ServerLife {
    /// The service.
    pub vice: Arc<Vice>,
    /// Its pulls, with those ordered since the last query.
    pub pulls: Arc<Pulls>,
    /// Pulls that run, by their tasks.
    pub fetches: BTreeMap<u64, Fetch>,
}

/// The pulls of one life.
#[derive(Default)]
pub struct Pulls {
    /// The progress that the service reports for each pull.
    pub tasks: Mutex<Tasks>,
    /// Pulls that have not begun yet.
    pub ordered: Mutex<Vec<(Pull, TaskInfo)>>,
}

struct Orders(Arc<Pulls>);

impl TransferAgent for Orders {
    fn pull(&self, pull: &Pull) -> Result<TaskInfo, Fault> {
        let (task, is_new) = self.0.tasks.lock().begin(pull)?;
        if is_new {
            self.0.ordered.lock().push((pull.clone(), task.clone()));
        }
        Ok(task)
    }

    fn tasks(&self) -> Vec<TaskInfo> {
        self.0.tasks.lock().infos()
    }

    fn end_task(&self, number: u64) -> Result<TaskInfo, Fault> {
        self.0.tasks.lock().end(number)
    }
}

fn config() -> ViceConfig {
    fn encode(answer: &Answer) -> Vec<u8> {
        dafs::encode_answer_record(answer)
    }
    ViceConfig::new(encode, |record| dafs::decode_answer_record(record).ok())
}

/// The name of a server's partition.
pub fn partition_name(no: usize) -> String {
    format!("/vicep{}", char::from(b'a' + no as u8))
}

impl SimHouse {
    /// A server that has never run.
    pub fn new(no: usize, partitions: usize, rng: &mut SmallRng) -> Self {
        let address = std::net::SocketAddr::from(([10, 0, 0, no as u8], 7620));
        let info = ServerInfo {
            id: ServerId(no as u128 + 1),
            name: format!("server{no}"),
            addresses: vec![address],
            keys: Vec::new(),
        };
        let machines = (0..partitions).map(|_| MemMachine::new()).collect();
        SimHouse { info, clock: Clock::random(rng), life: 0, machines, up: None }
    }

    /// The process starts.
    pub fn start(
        &mut self,
        now: Time,
        no: usize,
        rng: &mut SmallRng,
        database: &Arc<Database>,
        wires: &Wires,
    ) {
        let open = |(at, machine): (usize, &MemMachine)| {
            let options =
                OpenOptions { seed: Some(rng.random()), compress: true, ..OpenOptions::default() };
            (
                partition_name(at),
                Partition::open_memory(machine, options).expect("a machine in memory opens"),
            )
        };
        let partitions = Partitions::new(self.machines.iter().enumerate().map(open).collect());
        let db: Arc<dyn CellDb> = if no == HOST {
            Arc::clone(database) as _
        } else {
            Arc::new(DatabaseLink { database: Arc::clone(database), wires: wires.clone() })
        };
        let pulls = Arc::new(Pulls::default());
        let parts = ViceParts {
            me: Some(self.info.clone()),
            cell: CellAccess::Database(db),
            transfers: Some(Arc::new(Orders(Arc::clone(&pulls)))),
            ..ViceParts::default()
        };
        let vice = Vice::open_with(partitions, config(), parts, self.clock.read(now))
            .expect("what was written can be read");
        self.life += 1;
        self.up = Some(ServerLife { vice: Arc::new(vice), pulls, fetches: BTreeMap::new() });
        wires.set_up(no, true);
    }
}
