//! The common part of commands that ask a cell's server: the options for cell and caller, and a
//! session with the server of the cell's directory, which has the database or asks the server that
//! has it.

use std::path::PathBuf;
use std::time::Duration;

use client::{CallError, ClientOptions, Endpoint};
use local::ask::{Asking, TIMEOUT};
use local::cell::{CellDir, Where};
use local::failure::Failure;
use types::limits::PRINCIPALS_MAX;
use types::{Answer, Call, Caller, Fault, PrincipalId, PtsCall, RequestIdentity, ServerInfo};

/// The cell and the caller. `N` is [`CellName`] where the cell may be named too, and `M` has
/// further options of a command.
#[derive(clap::Args, Debug)]
pub struct CellOptions<N: clap::Args = (), M: clap::Args = ()> {
    /// The cell's directory [default: $RIALTO_HOME, or rialto below $XDG_DATA_HOME or
    /// ~/.local/share]
    #[arg(long, value_name = "DIR", global = true)]
    pub dir: Option<PathBuf>,
    #[command(flatten)]
    pub name: N,
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

/// The name that the cell must have.
#[derive(clap::Args, Debug)]
pub struct CellName {
    /// The cell's name; refused if another cell is in that directory.
    #[arg(long, value_name = "NAME", global = true)]
    cell: Option<String>,
}

/// Options that may name the cell.
pub trait NamesCell: clap::Args {
    fn cell(&self) -> Option<&str> {
        None
    }
}

impl NamesCell for () {}

impl NamesCell for CellName {
    fn cell(&self) -> Option<&str> {
        self.cell.as_deref()
    }
}

/// Makes a failure of a server's refusal: the action, and the refusal.
pub type Refused = fn(&str, &CallError) -> Failure;

/// A session with the server of the cell's directory.
pub struct CellClient {
    pub cell: CellDir,
    pub caller: Caller,
    asking: Asking,
    refused: Refused,
}

impl CellClient {
    /// Begins the session.
    pub(crate) fn open<N: NamesCell, M: clap::Args>(
        options: &CellOptions<N, M>,
        refused: Refused,
    ) -> Result<CellClient, Failure> {
        Self::within(options, refused, TIMEOUT)
    }

    /// Begins the session with this limit for answers.
    pub(crate) fn within<N: NamesCell, M: clap::Args>(
        options: &CellOptions<N, M>,
        refused: Refused,
        patience: Duration,
    ) -> Result<CellClient, Failure> {
        let cell = Where { dir: options.dir.clone(), clear: false }.cell()?;
        if let Some(name) = options.name.cell().filter(|name| *name != cell.config.name) {
            let why = format!("{} holds the cell {}", cell.dir().display(), cell.config.name);
            return Err(Failure::new(format!("finding the cell {name}"), why)
                .mend("name its directory with --dir"));
        }
        let asking =
            Asking::within(Endpoint::Unix(cell.socket()), ClientOptions::default(), patience)?;
        let caller = match options.as_uid {
            Some(uid) => Caller { uid, gid: uid, groups: None, who: RequestIdentity::NAMED },
            None => Caller::ROOT,
        };
        Ok(CellClient { cell, caller, asking, refused })
    }

    /// The server's record of itself.
    pub(crate) fn me(&self) -> Result<ServerInfo, Failure> {
        self.asking.me()
    }

    /// The servers of the cell.
    pub(crate) fn servers(&self) -> Result<Vec<ServerInfo>, Failure> {
        self.asking.servers()
    }

    /// Sends a query or a change. `doing`: the action, for people.
    pub(crate) fn ask(&self, doing: &str, call: Call) -> Result<Answer, Failure> {
        self.asking.call_as(&self.caller, call).map_err(|error| (self.refused)(doing, &error))
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
pub(crate) const CELL_AWAY: &str =
    "check that the server that has the database runs: 'database' in cell.toml names it";

/// The failure of an answer that does not belong to its call.
pub fn odd(doing: &str) -> Failure {
    Failure::new(doing, "the server answered something else")
        .mend("check that it has the same version")
}
