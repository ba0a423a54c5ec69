//! Asks another server of the cell for a certificate, where the key of the authority is not here.

use std::time::Duration;

use client::{CallError, ClientOptions, Endpoint};
use guard::JoinFacts;
use local::ask::{self, AskLimits, Asking};
use local::cell::CellDir;
use types::{Answer, Call, CellCall, Fault, ServerInfo};

/// How long one server may take.
const LIMITS: AskLimits =
    AskLimits { attach: Duration::from_secs(3), answer: Duration::from_secs(20) };

/// Asks each server of the cell, the one with the database first, for a certificate for the key of
/// this signing request. `options`: of this server, which shows its own key.
///
/// # Errors
/// The reason, for people, if none signs.
pub fn certificate(
    cell: &CellDir,
    options: &ClientOptions,
    signing_request: &str,
) -> Result<JoinFacts, String> {
    let mut why = "no server of the cell has the key of the authority".to_owned();
    for endpoint in others(cell) {
        match ask(&endpoint, options, signing_request) {
            Ok(facts) => return Ok(facts),
            // It does not sign, or is older than this call.
            Err(CallError::Fault(Fault::Unsupported)) => {}
            Err(error) => why = format!("{endpoint}: {error}"),
        }
    }
    Err(why)
}

fn ask(
    endpoint: &Endpoint,
    options: &ClientOptions,
    signing_request: &str,
) -> Result<JoinFacts, CallError> {
    let asking = Asking::begin(endpoint.clone(), options.clone(), LIMITS)?;
    let request = signing_request.to_owned();
    match asking.call(Call::Cell(CellCall::Certify { request }))? {
        Answer::Report(text) => {
            serde_json::from_str(&text).map_err(|_| CallError::Fault(Fault::Invalid))
        }
        _ => Err(CallError::Fault(Fault::Invalid)),
    }
}

/// The other servers of the cell, the one with the database first.
fn others(cell: &CellDir) -> Vec<Endpoint> {
    let database = cell.config.database.as_ref().and_then(|text| ask::endpoint(text).ok());
    let listed = Asking::begin(Endpoint::Unix(cell.socket()), ClientOptions::default(), LIMITS)
        .ok()
        .and_then(|here| Some((here.me().ok()?.id, here.servers().ok()?)));
    let listed = listed.map(|(me, servers)| reached_at(servers.into_iter(), Some(me)));
    let mut all: Vec<Endpoint> = database.into_iter().collect();
    for endpoint in listed.into_iter().flatten() {
        if !all.contains(&endpoint) {
            all.push(endpoint);
        }
    }
    all
}

/// Where these servers are reached, without one of them.
pub fn reached_at(
    servers: impl Iterator<Item = ServerInfo>,
    without: Option<types::ServerId>,
) -> Vec<Endpoint> {
    let others = servers.filter(|one| Some(one.id) != without);
    others.flat_map(|one| one.addresses).map(|address| Endpoint::Tcp(address.to_string())).collect()
}
