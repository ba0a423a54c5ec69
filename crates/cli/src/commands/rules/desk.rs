//! Where both ask: the server of the cell's directory, which has the database or asks who has it.

use std::collections::HashMap;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use client::{CallError, Endpoint, Options};
use local::ask::Asking;
use local::cell::Where;
use local::failure::Failure;
use types::{Answer, Call, Caller, Fault, GuardCall, PrincipalId, PtsCall, ServerId, ServerInfo, Who};

/// How long a change may take: servers that are silent are waited for.
const PATIENCE: Duration = Duration::from_secs(30);
/// Rules in one answer.
pub const AT_ONCE: u32 = 1000;

/// What every verb takes.
#[derive(Args, Debug)]
pub struct Common {
    /// The cell's directory [default: $RIALTO_HOME, or rialto below $XDG_DATA_HOME or ~/.local/share]
    #[arg(long, value_name = "DIR", global = true)]
    dir: Option<PathBuf>,
    /// JSON: one value for each line of the answer.
    #[arg(long, global = true)]
    pub json: bool,
    /// Ask as the user with this uid, as somebody who has the server's socket may, and not as the superuser.
    #[arg(long, value_name = "UID", global = true)]
    as_uid: Option<u32>,
}

/// See the head of the file.
pub struct Desk {
    pub common: Common,
    asking: Asking,
    caller: Caller,
    servers: Vec<ServerInfo>,
    me: ServerInfo,
}

impl Desk {
    pub fn open(common: Common) -> Result<Desk, Failure> {
        let cell = Where { dir: common.dir.clone(), clear: false }.cell()?;
        let asking = Asking::within(Endpoint::Unix(cell.socket()), Options::default(), PATIENCE)?;
        let caller = match common.as_uid {
            Some(uid) => Caller { uid, gid: uid, groups: None, who: Who::NAMED },
            None => Caller::ROOT,
        };
        let (servers, me) = (asking.servers()?, asking.me()?);
        Ok(Desk { common, asking, caller, servers, me })
    }

    /// Asks, or changes something. `doing`: what is tried, for people.
    pub fn ask(&self, doing: &str, call: GuardCall) -> Result<Answer, Failure> {
        let asked = self.asking.call_as(&self.caller, Call::Guard { behalf: None, call: Box::new(call) });
        asked.map_err(|error| refused(doing, &error))
    }

    /// Changes something: says which number it has, and fails if a server did not confirm.
    pub fn change(&self, doing: &str, done: &str, call: GuardCall) -> Result<ExitCode, Failure> {
        let Answer::Enforced { number, missing } = self.ask(doing, call)? else { return Err(odd(doing)) };
        let names = self.server_names(&missing);
        if self.common.json {
            local::show::json(&serde_json::json!({ "number": number, "missing": names }));
        } else {
            println!("{number}: {done}");
        }
        confirmed(doing, &names)
    }

    /// The names of servers.
    pub fn server_names(&self, servers: &[ServerId]) -> Vec<String> {
        servers.iter().map(|server| self.server_name(*server)).collect()
    }
    fn pts(&self, doing: &str, call: PtsCall) -> Result<Answer, Failure> {
        let asked = self.asking.call_as(&self.caller, Call::Pts { on_behalf: None, call: Box::new(call) });
        asked.map_err(|error| refused(doing, &error))
    }

    /// The number of a user or group; a number stands for itself.
    pub fn principal(&self, name: &str) -> Result<PrincipalId, Failure> {
        if let Ok(number) = name.parse::<i32>() {
            return Ok(PrincipalId(number));
        }
        let doing = format!("finding {name}");
        match self.pts(&doing, PtsCall::Numbers { names: vec![name.to_owned()] })? {
            Answer::Names { names, .. } => match names.first() {
                Some((id, _)) if *id != PrincipalId::NONE => Ok(*id),
                _ => Err(refused(&doing, &CallError::Fault(Fault::NoPrincipal))),
            },
            _ => Err(odd(&doing)),
        }
    }

    /// What numbers are called; a number that nobody has is its own name.
    pub fn names(&self, mut ids: Vec<PrincipalId>) -> Result<HashMap<PrincipalId, String>, Failure> {
        let doing = "finding names";
        ids.sort_unstable();
        ids.dedup();
        let mut known = HashMap::from([(PrincipalId::NONE, "the superuser".to_owned())]);
        for some in ids.chunks(types::limits::PRINCIPALS_MAX) {
            let Answer::Names { names, .. } = self.pts(doing, PtsCall::Names { ids: some.to_vec() })? else {
                return Err(odd(doing));
            };
            known.extend(names.into_iter().filter(|(_, name)| !name.is_empty()));
        }
        Ok(known)
    }

    pub fn server_name(&self, id: ServerId) -> String {
        self.servers.iter().find(|one| one.id == id).map_or_else(|| id.to_string(), |one| one.name.clone())
    }

    /// The server that was typed: its name, its id, or `localhost`.
    pub fn server(&self, text: &str) -> Result<ServerId, Failure> {
        if text == "localhost" {
            return Ok(self.me.id);
        }
        let is = |one: &&ServerInfo| one.name == text || one.id.to_string() == text;
        self.servers.iter().find(is).map(|one| one.id).ok_or_else(|| {
            let all: Vec<_> = self.servers.iter().map(|one| one.name.as_str()).collect();
            Failure::new(format!("finding the server {text}"), format!("the cell has {}", all.join(", ")))
                .mend("name one of these")
        })
    }
}

/// A change is in force everywhere, but for the servers of these names.
///
/// # Errors
/// If there are any.
pub fn confirmed(doing: &str, missing: &[String]) -> Result<ExitCode, Failure> {
    if missing.is_empty() {
        return Ok(ExitCode::SUCCESS);
    }
    let why = format!("it stands, but {} did not confirm", missing.join(", "));
    Err(Failure::new(doing, why)
        .mend("it is in force there once that server hears the database; until then stop it, or the network to it"))
}

pub fn odd(doing: &str) -> Failure {
    Failure::new(doing, "the server answered something else").mend("see whether it has the same version")
}

fn refused(doing: &str, error: &CallError) -> Failure {
    let failure = Failure::new(doing, error);
    match error.fault() {
        Some(Fault::NotPermitted) => failure.mend("members of system:administrators may, and nobody else"),
        Some(Fault::NoPrincipal) => failure.mend("'rialto pts listentries -users -groups' has all of them"),
        Some(Fault::NotFound) => failure.mend("'list' has the numbers of all there are"),
        Some(Fault::NoSpace) => failure.mend("a cell has 4096 at most: remove what is not needed any more"),
        Some(Fault::CellAway) => {
            failure.mend("see whether the server that has the database runs: 'database' in cell.toml names it")
        }
        _ => failure,
    }
}
