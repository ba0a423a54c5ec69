//! A session over the network, as the user who is logged in.

use std::path::PathBuf;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use client::{CallError, ClientOptions, Endpoint, TokenWallet};
use fabric::tls::pki_types::CertificateDer;
use fabric::tls::{Fingerprint, Trust};
use local::ask::{AskLimits, Asking};
use local::failure::Failure;
use types::{Answer, AuthCall, Call, Caller, RequestIdentity, Secret, Timestamp};

use super::token_files::{HeldToken, TokenDir};
use super::{FoundBy, Reach, ReachedCell, mounted};
use crate::cells::CellList;
use crate::{logging, security};

/// How long one server may take to begin a session.
const DIAL_WITHIN: Duration = Duration::from_secs(3);

/// How long the first server is asked alone: longer than most need.
const FIRST_ALONE: Duration = Duration::from_millis(300);

/// Where the token comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LoginSource {
    /// The file of a login without a mount.
    Files,
    /// The mount at this place; without a login there, the file.
    Mount(PathBuf),
}

/// The authority that `cells.toml` states for a cell.
#[derive(Debug, Clone)]
pub enum Stated {
    /// None: the one that is recorded in `known_cells`, or the first that is shown.
    No,
    This(Trust),
}

impl Stated {
    /// The authorities with which a mount reaches the cell; none: it uses no TLS.
    pub(super) fn by_mount(prints: Vec<Fingerprint>) -> Stated {
        if prints.is_empty() {
            return Stated::No;
        }
        Stated::This(Trust::Asked(Arc::new(move |shown| {
            let is_one = |one: &CertificateDer<'_>| prints.contains(&Fingerprint::of(one));
            match shown.iter().any(is_one) {
                true => Ok(()),
                false => Err("it is not of the authority of the mounted tree".to_owned()),
            }
        })))
    }

    pub(super) fn in_list(list: &CellList, cell: &str) -> Stated {
        list.find_in_files(cell).and_then(|known| known.trust).map_or(Stated::No, Stated::This)
    }
}

/// Servers over the network.
#[derive(Debug, Clone)]
pub struct NetworkWay {
    pub found_by: FoundBy,
    /// The cell's name; `None`: the server says it.
    pub cell: Option<String>,
    pub servers: Vec<Endpoint>,
    /// The name under which the authority is known.
    pub trust: String,
    pub stated: Stated,
    pub login: LoginSource,
    /// The directory with `known_cells` and `cells.toml`; `None`: this user has none.
    pub place: Option<PathBuf>,
}

/// A session without a token.
pub struct Anonymous {
    pub asking: Asking,
    pub endpoint: Endpoint,
    pub cell: String,
}

impl NetworkWay {
    /// Begins a session as the user who is logged in; without a login as an anonymous caller.
    ///
    /// # Errors
    /// If no server answers, or the login has ended.
    pub fn open(self, patience: Duration) -> Result<ReachedCell, Failure> {
        let (way, cell) = self.settled(patience)?;
        way.open_settled(cell, patience)
    }

    /// The way with the cell's name. Where there is a login to that cell already, servers must be
    /// of the authority under which it was made: neither that token nor a password is shown to
    /// another cell of the same name.
    ///
    /// # Errors
    /// If no server answers.
    pub fn settled(mut self, patience: Duration) -> Result<(NetworkWay, String), Failure> {
        if let Some(cell) = self.cell.clone() {
            return Ok((self, cell));
        }
        let Anonymous { cell, .. } = self.anonymous(patience)?;
        if let Some(held) = stored(&cell)? {
            let list = CellList::new(None, self.place.as_deref());
            self.stated = Stated::in_list(&list, &held.trust);
            self.trust = held.trust;
        }
        self.cell = Some(cell.clone());
        Ok((self, cell))
    }

    fn open_settled(self, cell: String, patience: Duration) -> Result<ReachedCell, Failure> {
        let by_mount = match &self.login {
            LoginSource::Files => None,
            LoginSource::Mount(at) => mounted::token(at, &self.trust)?,
        };
        let is_stored = by_mount.is_none();
        let held = if is_stored { stored(&cell)? } else { by_mount };
        if let Some(held) = held.as_ref().filter(|held| held.is_over(now().secs)) {
            let name = &held.token.name;
            return Err(Failure::new(format!("acting as {name} in {cell}"), "the login has ended")
                .mend(format!("'rialto login {name}' makes another, 'rialto logout' forgets it")));
        }
        let wallet: Arc<TokenWallet> = Arc::default();
        let caller = own_caller();
        if let Some(held) = &held {
            logging::protect_memory();
            let token = Secret::new(held.bytes.to_vec());
            // The bytes were parsed before.
            let _ = wallet.put(caller.uid, &token, Arc::clone(&held.key));
        }
        let options = ClientOptions { wallet: Some(Arc::clone(&wallet) as _), ..self.options()? };
        let (asking, endpoint) = self.dial(&options, patience)?;
        let asking = asking.asking_as(caller.clone());
        if let Some(held) = held.as_ref().filter(|_| is_stored) {
            renew(&asking, &caller, &wallet, held);
        }
        let login_ends = held.as_ref().map(|held| held.token.expires);
        let user = held.map(|held| held.token.name);
        let (reach, name) = (Reach::Network(Box::new(self)), cell);
        Ok(ReachedCell { reach, name, endpoint, options, caller, asking, user, login_ends })
    }

    /// Begins a session without a token, and asks for the cell's name.
    ///
    /// # Errors
    /// If no server answers, or it is of another cell.
    pub fn anonymous(&self, patience: Duration) -> Result<Anonymous, Failure> {
        let (asking, endpoint) = self.dial(&self.options()?, patience)?;
        let asking = asking.asking_as(own_caller());
        let report = asking.report()?;
        let what = || format!("asking the server at {endpoint} for its cell");
        let said = report["server"]["cell"].as_str().filter(|name| !name.is_empty());
        let said = said.ok_or_else(|| Failure::new(what(), "it names none"))?.to_owned();
        match self.cell.as_ref().filter(|cell| **cell != said) {
            None => Ok(Anonymous { asking, endpoint, cell: said }),
            Some(cell) => Err(Failure::new(what(), format!("it is of {said}, not of {cell}"))
                .mend("check the servers of that cell in cells.toml")),
        }
    }

    /// The options of connections, without a token: always by TLS.
    fn options(&self) -> Result<ClientOptions, Failure> {
        if let Stated::This(trust) = &self.stated {
            return security::with(Some(trust.clone()));
        }
        match &self.place {
            Some(dir) => security::options(dir, &self.trust, false),
            None => security::options(TokenDir::make()?.path(), &self.trust, false),
        }
    }

    /// A session with a server that answers: the first one, if it does so at once. Otherwise all
    /// others are asked beside each other, so that silent ones cost the time of one.
    fn dial(
        &self,
        options: &ClientOptions,
        patience: Duration,
    ) -> Result<(Asking, Endpoint), Failure> {
        let limits = AskLimits { attach: DIAL_WITHIN, answer: patience };
        let (answer, answers) = mpsc::channel();
        let ask = |server: &Endpoint| {
            let (server, options, answer) = (server.clone(), options.clone(), answer.clone());
            std::thread::spawn(move || {
                let begun = Asking::begin(server.clone(), options, limits);
                // The command may have another answer already.
                let _ = answer.send((server, begun));
            });
        };
        let mut tried: Vec<String> = Vec::new();
        let (mut asked, mut within) = (0, FIRST_ALONE);
        while tried.len() < self.servers.len() {
            let next = if asked == 0 { 1 } else { self.servers.len() };
            self.servers[asked..next].iter().for_each(&ask);
            asked = next;
            match answers.recv_timeout(within) {
                Ok((server, Ok(asking))) => return Ok((asking, server)),
                Ok((server, Err(error))) => tried.push(format!("{server}: {error}")),
                Err(_) => {}
            }
            // Each attempt ends by itself.
            within = Duration::MAX;
        }
        let what = match &self.cell {
            Some(cell) => format!("reaching the cell {cell}"),
            None => "reaching the cell".to_owned(),
        };
        let failure = if tried.is_empty() {
            Failure::new(what, "no address of its servers is known")
                .mend("its servers need 'listen' in cell.toml; --via HOST:PORT names one")
        } else {
            Failure::new(what, format!("no server answers ({})", tried.join("; ")))
                .mend("check the network, and with 'rialto status' on its machine that it runs")
        };
        Err(failure.nothing_there())
    }
}

/// The caller's own user, which servers replace by the user of the token.
fn own_caller() -> Caller {
    let (uid, gid) = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
    Caller { uid, gid, groups: Some(Box::default()), who: RequestIdentity::NAMED }
}

/// The token of a login without a mount.
fn stored(cell: &str) -> Result<Option<HeldToken>, Failure> {
    Ok(TokenDir::find()?.map(|dir| dir.token(cell)).transpose()?.flatten())
}

/// Gets a newer token where little of this one is left, and stores it. A failure is reported, since
/// the token is still valid.
fn renew(asking: &Asking, caller: &Caller, wallet: &TokenWallet, held: &HeldToken) {
    if wallet.to_renew(now()).is_empty() {
        return;
    }
    let call = AuthCall::Renew { token: Secret::new(held.bytes.to_vec()) };
    let call = Call::Auth { behalf: None, call: Box::new(call) };
    let newer = match asking.call_as(caller, call) {
        Ok(Answer::Token(newer)) => newer,
        Ok(_) => return,
        Err(error @ CallError::Fault(_)) => {
            eprintln!("rialto: the login of {} is not renewed: {error}", held.token.name);
            return;
        }
        Err(_) => return,
    };
    let stored = held.renewed(&newer).map(|held| TokenDir::make().and_then(|dir| dir.put(&held)));
    if let Some(Err(failure)) = stored {
        eprintln!("rialto: the renewed login is not stored: {failure}");
    }
    let _ = wallet.put(caller.uid, &newer, Arc::clone(&held.key));
}

pub(super) fn now() -> Timestamp {
    let since = std::time::SystemTime::now()
        .duration_since(std::time::SystemTime::UNIX_EPOCH)
        .unwrap_or_default();
    Timestamp::new(since.as_secs().try_into().unwrap_or(i64::MAX), since.subsec_nanos())
}
