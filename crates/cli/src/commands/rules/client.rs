//! The session of both commands.

use std::collections::HashMap;
use std::process::ExitCode;
use std::time::Duration;

use client::CallError;
use local::failure::Failure;
use types::{Answer, Call, Fault, GuardCall, PrincipalId, ServerId, ServerInfo};

use crate::commands::cell_client::{CELL_AWAY, CellClient, CellOptions, odd};
use crate::reach::Reach;

/// How long a change may take: it waits for silent servers.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Rules in one answer.
pub const AT_ONCE: u32 = 1000;

/// A session for calls about rules.
pub struct RulesClient {
    pub json: bool,
    cell: CellClient,
    servers: Vec<ServerInfo>,
    me: ServerInfo,
}

impl RulesClient {
    pub(crate) fn open(options: &CellOptions) -> Result<RulesClient, Failure> {
        let cell = CellClient::within(options, refused, TIMEOUT)?;
        let (servers, me) = (cell.servers()?, cell.me()?);
        Ok(RulesClient { json: options.json, cell, servers, me })
    }

    /// Sends a query or a change. `doing`: the action, for people.
    pub(crate) fn ask(&self, doing: &str, call: GuardCall) -> Result<Answer, Failure> {
        self.cell.ask(doing, Call::Guard { behalf: None, call: Box::new(call) })
    }

    /// Changes a rule: prints its number, and fails if a server did not confirm.
    pub(crate) fn change(
        &self,
        doing: &str,
        done: &str,
        call: GuardCall,
    ) -> Result<ExitCode, Failure> {
        let Answer::Enforced { number, missing } = self.ask(doing, call)? else {
            return Err(odd(doing));
        };
        let names = self.server_names(&missing);
        local::show::answer(
            self.json,
            &serde_json::json!({ "number": number, "missing": names }),
            format_args!("{number}: {done}"),
        );
        confirmed(doing, &names)
    }

    /// The names of servers.
    pub fn server_names(&self, servers: &[ServerId]) -> Vec<String> {
        servers.iter().map(|server| self.server_name(*server)).collect()
    }

    /// Returns the number of a user or group; a number means itself.
    pub(crate) fn principal(&self, name: &str) -> Result<PrincipalId, Failure> {
        self.cell.principal(name)
    }

    /// Returns the names of numbers; an unused number is its own name.
    pub(crate) fn names(
        &self,
        ids: Vec<PrincipalId>,
    ) -> Result<HashMap<PrincipalId, String>, Failure> {
        let named = self.cell.names(ids)?.into_iter().filter(|(_, name)| !name.is_empty());
        Ok([(PrincipalId::NONE, "the superuser".to_owned())].into_iter().chain(named).collect())
    }

    pub fn server_name(&self, id: ServerId) -> String {
        self.servers
            .iter()
            .find(|one| one.id == id)
            .map_or_else(|| id.to_string(), |one| one.name.clone())
    }

    /// Returns the typed server: by its name, its id, or `localhost`.
    pub(crate) fn server(&self, text: &str) -> Result<ServerId, Failure> {
        if text == "localhost" && matches!(self.cell.reached.reach, Reach::Socket(_)) {
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

/// Reports that a change is in force on all servers but those named.
pub(crate) fn confirmed(doing: &str, missing: &[String]) -> Result<ExitCode, Failure> {
    if missing.is_empty() {
        return Ok(ExitCode::SUCCESS);
    }
    let why = format!("it is in force, but {} did not confirm", missing.join(", "));
    Err(Failure::new(doing, why).mend(
        "it is in force there once that server hears the database; until then stop it, or \
            the network to it",
    ))
}

fn refused(doing: &str, error: &CallError) -> Failure {
    let mend = match error.fault() {
        Some(Fault::NotPermitted) => "only members of system:administrators may",
        Some(Fault::NoPrincipal) => "'rialto pts listentries -users -groups' has all of them",
        Some(Fault::NotFound) => "'list' shows the numbers of all rules",
        Some(Fault::NoSpace) => {
            "a cell has 4096 at most: remove those that are not needed any more"
        }
        Some(Fault::CellAway) => CELL_AWAY,
        _ => return Failure::new(doing, error),
    };
    Failure::new(doing, error).mend(mend)
}
