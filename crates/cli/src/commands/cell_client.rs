//! The common part of commands that ask a cell's server: the options for cell and caller, and a
//! session with a server that has the cell's database, or asks the server that has it.

use std::time::Duration;

use client::CallError;
use local::ask::TIMEOUT;
use local::failure::Failure;
use types::limits::PRINCIPALS_MAX;
use types::{Answer, Call, Fault, PrincipalId, PtsCall, ServerInfo};

use crate::reach::{Reach, ReachOptions, ReachedCell};

/// The cell and the caller. `M` has further options of a command.
#[derive(clap::Args, Debug)]
pub struct CellOptions<M: clap::Args = ()> {
    #[command(flatten)]
    pub reach: ReachOptions,
    /// JSON: one value for each line of the answer.
    #[arg(long, global = true)]
    pub json: bool,
    #[command(flatten)]
    pub more: M,
    /// Ask as the user with this uid, as any owner of the server's socket may, not as the
    /// superuser.
    #[arg(long, value_name = "UID", global = true)]
    pub as_uid: Option<u32>,
}

/// Makes a failure of a server's refusal: the action, and the refusal.
pub type Refused = fn(&str, &CallError) -> Failure;

/// A session with a server of the cell.
pub struct CellClient {
    pub reached: ReachedCell,
    refused: Refused,
}

impl CellClient {
    /// Begins the session.
    pub(crate) fn open<M: clap::Args>(
        options: &CellOptions<M>,
        refused: Refused,
    ) -> Result<CellClient, Failure> {
        Self::within(options, refused, TIMEOUT)
    }

    /// Begins the session with this limit for answers.
    pub(crate) fn within<M: clap::Args>(
        options: &CellOptions<M>,
        refused: Refused,
        patience: Duration,
    ) -> Result<CellClient, Failure> {
        let reached = Reach::find(&options.reach)?.open(options.as_uid, patience)?;
        Ok(CellClient { reached, refused })
    }

    /// Begins the session by this way.
    pub(crate) fn by(way: Reach, refused: Refused) -> Result<CellClient, Failure> {
        Ok(CellClient { reached: way.open(None, TIMEOUT)?, refused })
    }

    /// The server's record of itself.
    pub(crate) fn me(&self) -> Result<ServerInfo, Failure> {
        self.reached.asking.me()
    }

    /// The servers of the cell.
    pub(crate) fn servers(&self) -> Result<Vec<ServerInfo>, Failure> {
        self.reached.asking.servers()
    }

    /// Sends a query or a change. `doing`: the action, for people.
    pub(crate) fn ask(&self, doing: &str, call: Call) -> Result<Answer, Failure> {
        let ReachedCell { asking, caller, .. } = &self.reached;
        asking.call_as(caller, call).map_err(|error| {
            let failure = (self.refused)(doing, &error);
            let login = self.reached.login_state();
            match login.and_then(|login| login.remedy(error.fault())) {
                Some(remedy) => failure.mend(remedy),
                None => failure,
            }
        })
    }

    /// Sends a call about users and groups.
    pub(crate) fn ask_pts(&self, doing: &str, call: PtsCall) -> Result<Answer, Failure> {
        self.ask(doing, Call::Pts { on_behalf: None, call: Box::new(call) })
    }

    /// Returns the number of a user or group; a number means itself.
    pub(crate) fn principal(&self, name: &str) -> Result<PrincipalId, Failure> {
        if let Ok(number) = name.parse::<i32>() {
            return Ok(PrincipalId(number));
        }
        let doing = format!("finding {name}");
        match self.ask_pts(&doing, PtsCall::Numbers { names: vec![name.to_owned()] })? {
            Answer::Names { names, .. } => match names.first() {
                Some((id, _)) if *id != PrincipalId::NONE => Ok(*id),
                _ => Err((self.refused)(&doing, &CallError::Fault(Fault::NoPrincipal))),
            },
            _ => Err(odd(&doing)),
        }
    }

    /// Returns the name of each number once; empty: an unused number.
    pub(crate) fn names(
        &self,
        mut ids: Vec<PrincipalId>,
    ) -> Result<Vec<(PrincipalId, String)>, Failure> {
        let doing = "finding names";
        ids.sort_unstable();
        ids.dedup();
        let mut known = Vec::new();
        for some in ids.chunks(PRINCIPALS_MAX) {
            let Answer::Names { names, .. } =
                self.ask_pts(doing, PtsCall::Names { ids: some.to_vec() })?
            else {
                return Err(odd(doing));
            };
            known.extend(names);
        }
        Ok(known)
    }
}

/// The remedy where the cell database does not answer.
pub(crate) const CELL_AWAY: &str = "check that the server that has the database runs \
    ('database' in cell.toml names it), or that etcd has a quorum ('rialto doctor' asks its \
    members); known users and volumes are served until then";

/// The failure of an answer that does not belong to its call.
pub fn odd(doing: &str) -> Failure {
    Failure::new(doing, "the server answered something else")
        .mend("check that it has the same version")
}
