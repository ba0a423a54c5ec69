//! Where both ask: the server of the cell's directory, which has the database or asks who has it.

use std::collections::HashMap;
use std::process::ExitCode;
use std::time::Duration;

use client::CallError;
use local::failure::Failure;
use types::{Answer, Call, Fault, GuardCall, PrincipalId, ServerId, ServerInfo};

use crate::commands::cell_client::{CellClient, CellOptions, odd};

/// How long a change may take: servers that are silent are waited for.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Rules in one answer.
pub const AT_ONCE: u32 = 1000;

/// See the head of the file.
pub struct RulesClient {
    pub json: bool,
    cell: CellClient,
    servers: Vec<ServerInfo>,
    me: ServerInfo,
}

impl RulesClient {
    pub fn open(options: &CellOptions) -> Result<RulesClient, Failure> {
        let cell = CellClient::within(options, refused, TIMEOUT)?;
        let (servers, me) = (cell.servers()?, cell.me()?);
        Ok(RulesClient { json: options.json, cell, servers, me })
    }

    /// Asks, or changes something. `doing`: what is tried, for people.
    pub fn ask(&self, doing: &str, call: GuardCall) -> Result<Answer, Failure> {
        self.cell.ask(doing, Call::Guard { behalf: None, call: Box::new(call) })
    }

    /// Changes something: says which number it has, and fails if a server did not confirm.
    pub fn change(&self, doing: &str, done: &str, call: GuardCall) -> Result<ExitCode, Failure> {
        let Answer::Enforced { number, missing } = self.ask(doing, call)? else {
            return Err(odd(doing));
        };
        let names = self.server_names(&missing);
        if self.json {
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

    /// The number of a user or group; a number stands for itself.
    pub fn principal(&self, name: &str) -> Result<PrincipalId, Failure> {
        self.cell.principal(name)
    }

    /// What numbers are called; a number that nobody has is its own name.
    pub fn names(&self, ids: Vec<PrincipalId>) -> Result<HashMap<PrincipalId, String>, Failure> {
        let named = self.cell.names(ids)?.into_iter().filter(|(_, name)| !name.is_empty());
        Ok([(PrincipalId::NONE, "the superuser".to_owned())].into_iter().chain(named).collect())
    }

    pub fn server_name(&self, id: ServerId) -> String {
        self.servers
            .iter()
            .find(|one| one.id == id)
            .map_or_else(|| id.to_string(), |one| one.name.clone())
    }

    /// The server that was typed: its name, its id, or `localhost`.
    pub fn server(&self, text: &str) -> Result<ServerId, Failure> {
        if text == "localhost" {
            return Ok(self.me.id);
        }
        let is = |one: &&ServerInfo| one.name == text || one.id.to_string() == text;
        self.servers.iter().find(is).map(|one| one.id).ok_or_else(|| {
            let all: Vec<_> = self.servers.iter().map(|one| one.name.as_str()).collect();
            Failure::new(
                format!("finding the server {text}"),
                format!("the cell has {}", all.join(", ")),
            )
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
    Err(Failure::new(doing, why).mend(
        "it is in force there once that server hears the database; until then stop it, or \
            the network to it",
    ))
}

fn refused(doing: &str, error: &CallError) -> Failure {
    let failure = Failure::new(doing, error);
    match error.fault() {
        Some(Fault::NotPermitted) => {
            failure.mend("members of system:administrators may, and nobody else")
        }
        Some(Fault::NoPrincipal) => {
            failure.mend("'rialto pts listentries -users -groups' has all of them")
        }
        Some(Fault::NotFound) => failure.mend("'list' has the numbers of all there are"),
        Some(Fault::NoSpace) => {
            failure.mend("a cell has 4096 at most: remove what is not needed any more")
        }
        Some(Fault::CellAway) => failure.mend(
            "see whether the server that has the database runs: 'database' in cell.toml names it",
        ),
        _ => failure,
    }
}
