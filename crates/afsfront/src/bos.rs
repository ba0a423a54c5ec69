//! BOZO, the service that starts and watches the servers of a machine.
//!
//! Here the system's own service manager does that (systemd), so this service tells what is true
//! and changes nothing: there is one server, and it runs, since it answers.

use afs3::bos::{BosAnswer, BosCall, BosStatus, BosText, KTime, time_mask};
use afs3::errors::{BZACCESS, BZDOM, BZNOENT};
use types::{Answer, Call, CellCall};

use crate::{Refusal, Services};

const NO_ACCESS: Refusal = Refusal(BZACCESS);
/// The end of an enumeration.
const NO_MORE: Refusal = Refusal(BZDOM);
const NO_INSTANCE: Refusal = Refusal(BZNOENT);
/// The one server.
const INSTANCE: &str = "rialto";
const RUNNING: i32 = 1;
/// Behind the parameters of an instance, the program that is told when it ends: there is none.
const NOTIFIER: i32 = 999;
/// Times at which all servers are started again, and those with new binaries.
const RESTART_KINDS: std::ops::RangeInclusive<i32> = 1..=2;

/// See the head of the file.
pub struct BosService {
    cell: String,
    /// When the server started, in seconds since 1970.
    started: i64,
}

fn text(of: &str) -> Result<BosText, Refusal> {
    BosText::new(of.as_bytes()).map_err(|_| Refusal::TOO_BIG)
}

/// Only the one server is there.
fn need_instance(name: &BosText) -> Result<(), Refusal> {
    if name.as_bytes() == INSTANCE.as_bytes() { Ok(()) } else { Err(NO_INSTANCE) }
}

impl BosService {
    /// Of a server of this cell that started then.
    pub fn new(cell: &str, started: i64) -> BosService {
        BosService { cell: cell.to_owned(), started }
    }

    /// Answers a call.
    ///
    /// # Errors
    /// The code with which the call ends.
    pub fn serve(&self, services: &dyn Services, call: BosCall) -> Result<BosAnswer, Refusal> {
        match call {
            BosCall::EnumerateInstance { index: 0 } => {
                Ok(BosAnswer::EnumerateInstance { name: text(INSTANCE)? })
            }
            BosCall::GetStatus { instance } => {
                need_instance(&instance)?;
                Ok(BosAnswer::GetStatus { state: RUNNING, text: BosText::default() })
            }
            BosCall::GetInstanceInfo { instance } => {
                need_instance(&instance)?;
                let status = BosStatus {
                    goal: RUNNING,
                    file_goal: RUNNING,
                    process_started: u32::try_from(self.started).unwrap_or(0) as i32,
                    process_starts: 1,
                    ..BosStatus::default()
                };
                Ok(BosAnswer::GetInstanceInfo { kind: text("simple")?, status })
            }
            BosCall::GetInstanceParm { instance, number } => {
                need_instance(&instance)?;
                match number {
                    0 => Ok(BosAnswer::GetInstanceParm { text: text("rialto serve")? }),
                    NOTIFIER => Err(NO_INSTANCE),
                    _ => Err(NO_MORE),
                }
            }
            BosCall::GetInstanceStrings { instance } => {
                need_instance(&instance)?;
                let [error, spare1, spare2, spare3] = Default::default();
                Ok(BosAnswer::GetInstanceStrings { error, spare1, spare2, spare3 })
            }
            BosCall::GetCellName {} => Ok(BosAnswer::GetCellName { name: text(&self.cell)? }),
            BosCall::GetCellHost { index } => {
                let Answer::Servers(servers) =
                    services.ask_as_server(Call::Cell(CellCall::Servers))?
                else {
                    return Err(Refusal::IO);
                };
                let server = servers.get(index as usize).ok_or(NO_MORE)?;
                Ok(BosAnswer::GetCellHost { name: text(&server.record.name)? })
            }
            BosCall::GetRestartTime { kind } if !RESTART_KINDS.contains(&kind) => Err(NO_MORE),
            BosCall::GetRestartTime { .. } => {
                let time = KTime { mask: time_mask::NEVER, ..KTime::default() };
                Ok(BosAnswer::GetRestartTime { time })
            }
            BosCall::GetRestrictedMode {} => Ok(BosAnswer::GetRestrictedMode { mode: 1 }),
            BosCall::GetDates { .. } => Ok(BosAnswer::GetDates { new: 0, backup: 0, old: 0 }),
            // All servers are in the state that they are to be in.
            BosCall::WaitAll {} => Ok(BosAnswer::WaitAll {}),
            // `bos listusers` takes any other code for a failure.
            BosCall::ListSUsers { .. } => Err(Refusal::NOT_PERMITTED),
            BosCall::EnumerateInstance { .. } | BosCall::ListKeys { .. } => Err(NO_MORE),
            // All others are changes, and the log.
            _ => Err(NO_ACCESS),
        }
    }
}
