//! How a command reaches the cell, and as which user: the one rule for all commands.
//!
//! A command goes one of the ways of [`Reach`]. [`Reach::find`] chooses by the command line, the
//! environment, the mount of the current directory, and the directories of this machine, in that
//! order (`docs/operations/remote-administration.md` has the table). Only the choice is made here:
//! the server decides what the caller may do.
//!
//! `find` has the order, `network` the session as the user who is logged in, `mounted` the token
//! that a mount gets for this process, and `token_files` the tokens of a user without a mount.

mod find;
mod mounted;
mod network;
pub mod token_files;

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use client::{ClientOptions, Endpoint};
use local::ask::Asking;
use local::cell::CellDir;
use local::failure::Failure;
use types::{Caller, Fault, RequestIdentity};

pub use find::is_cell_in_environment;
pub use network::{Anonymous, LoginSource, NetworkWay, Stated};

/// The options that choose the way.
#[derive(clap::Args, Debug, Clone, Default)]
pub struct ReachOptions {
    /// The cell's directory [default: $RIALTO_HOME, or rialto below $XDG_DATA_HOME or
    /// ~/.local/share]
    #[arg(long, value_name = "DIR", global = true)]
    pub dir: Option<PathBuf>,
    /// The cell's name: in cells.toml, of a login, or in DNS; of a cell's directory: refused if
    /// another cell is there [default: $RIALTO_CELL]
    #[arg(long, value_name = "NAME", global = true)]
    pub cell: Option<String>,
    /// A server of the cell; asked as the user who is logged in.
    #[arg(long, value_name = "HOST:PORT", global = true, value_parser = local::ask::endpoint)]
    pub via: Option<Endpoint>,
    /// Only the socket of this machine's server, as the superuser.
    #[arg(long, global = true, conflicts_with = "via")]
    pub localauth: bool,
}

/// A way to the cell.
#[derive(Debug)]
pub enum Reach {
    /// The socket of the server whose cell is in this directory: as the superuser where the caller
    /// is root or the server's user.
    Socket(Box<CellDir>),
    /// Servers over the network, as the user who is logged in.
    Network(Box<NetworkWay>),
}

/// The reason for which a way was chosen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FoundBy {
    Via,
    CellOption,
    CellVariable,
    Mount(PathBuf),
    CellDirectory(PathBuf),
    Machine(PathBuf),
    Login,
    /// Root runs its server on this machine.
    Local,
}

impl fmt::Display for FoundBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FoundBy::Via => f.write_str("--via"),
            FoundBy::CellOption => f.write_str("--cell"),
            FoundBy::CellVariable => f.write_str("$RIALTO_CELL"),
            FoundBy::Mount(at) => write!(f, "the tree at {}", at.display()),
            FoundBy::CellDirectory(dir) => {
                write!(f, "{}, whose socket is not yours to use", dir.display())
            }
            FoundBy::Machine(file) => write!(f, "{}", file.display()),
            FoundBy::Login => f.write_str("the only login"),
            FoundBy::Local => f.write_str("its server on this machine"),
        }
    }
}

/// A session with a server of the cell.
pub struct ReachedCell {
    /// The way that was gone.
    pub reach: Reach,
    /// The cell's name.
    pub name: String,
    /// Where the server answers.
    pub endpoint: Endpoint,
    /// For sessions with the same rights.
    pub options: ClientOptions,
    /// The caller of all calls.
    pub caller: Caller,
    /// The session.
    pub asking: Asking,
    /// The user whose token is shown.
    pub user: Option<String>,
    /// When that ends, in seconds since 1970.
    pub login_ends: Option<i64>,
}

impl ReachedCell {
    /// The way for people.
    pub fn way(&self) -> String {
        match &self.reach {
            Reach::Socket(cell) => format!("the socket in {}", cell.dir().display()),
            Reach::Network(way) => {
                let (by, nobody) = match &self.endpoint {
                    Endpoint::Unix(_) => ("by", format!("as uid {}", self.caller.uid)),
                    Endpoint::Tcp(_) => ("over the network to", "without a login".to_owned()),
                };
                let who = self.user.as_ref().map_or(nobody, |user| format!("as {user}"));
                format!("{by} {}, {who} (found by {})", self.endpoint, way.found_by)
            }
        }
    }

    /// The login of the session, for the remedies of later refusals; `None`: the caller needs none.
    pub fn login_state(&self) -> Option<LoginState> {
        let state = || LoginState { cell: self.name.clone(), user: self.user.clone() };
        matches!(self.reach, Reach::Network(_)).then(state)
    }
}

/// The login of a session over the network.
pub struct LoginState {
    cell: String,
    user: Option<String>,
}

impl LoginState {
    /// The remedy of a refusal that a login mends; `None`: another one does.
    pub fn remedy(&self, fault: Option<Fault>) -> Option<String> {
        match (fault?, &self.user) {
            (Fault::NotPermitted, None) => Some(format!(
                "you are not logged in to {}: 'rialto login NAME' does that",
                self.cell
            )),
            (Fault::TokenExpired | Fault::TokenRefused, Some(user)) => Some(format!(
                "the cell accepts this login no more: 'rialto login {user}' makes another"
            )),
            _ => None,
        }
    }
}

impl Reach {
    /// Begins a session. `as_uid`: as this user of the server's machine.
    ///
    /// # Errors
    /// If no server answers, or the login has ended.
    pub fn open(self, as_uid: Option<u32>, patience: Duration) -> Result<ReachedCell, Failure> {
        match self {
            Reach::Socket(cell) => {
                let endpoint = Endpoint::Unix(cell.socket());
                let options = ClientOptions::default();
                let asking = Asking::within(endpoint.clone(), options.clone(), patience)?;
                let caller = match as_uid {
                    Some(uid) => {
                        Caller { uid, gid: uid, groups: None, who: RequestIdentity::NAMED }
                    }
                    None => Caller::ROOT,
                };
                let name = cell.config.name.clone();
                let reach = Reach::Socket(cell);
                let (user, login_ends) = (None, None);
                Ok(ReachedCell { reach, name, endpoint, options, caller, asking, user, login_ends })
            }
            Reach::Network(_) if as_uid.is_some() => Err(Failure::new(
                "acting as the user with a uid",
                "over the network the token alone says who asks",
            )
            .mend("log in as that user, or use the socket on the server's machine")),
            Reach::Network(way) => way.open(patience),
        }
    }
}
