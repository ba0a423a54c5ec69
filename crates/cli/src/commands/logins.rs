//! The user's identity in the cell: `login`, `logout`, `tokens`, `passwd`. Where a tree is mounted
//! they ask only that (`mount/logins.rs`), which has the token wallet; so they need no rights and
//! no address. Without a mount they ask a server (`network_login.rs`).

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

use clap::Args;
use local::failure::Failure;
use local::show;
use rustix::io::Errno;
use serde::Deserialize;
use serde_json::{Value, json};
use zeroize::Zeroizing;

use super::fs::tree;
use super::{kerberos, network_login, pam};
use crate::quiet_line;
use crate::reach::{self, NetworkWay, ReachOptions};

/// The tree, or the cell, of the command.
#[derive(Args, Debug)]
struct LoginOptions {
    /// A file or directory of the tree; of another cell's part of it: for that cell [default: the
    /// current directory, or the first tree that is mounted]
    #[arg(long, value_name = "PATH", conflicts_with_all = ["cell", "via", "dir", "localauth"])]
    path: Option<PathBuf>,
    #[command(flatten)]
    reach: ReachOptions,
}

/// The holder of a user's tokens.
enum LoginPlace {
    /// The mount of this tree.
    Tree(PathBuf),
    /// Files of the user, for the cell that `reach` finds.
    Files,
}

impl LoginOptions {
    /// The holder of an existing login: of the tree of the current directory, or else without a
    /// mount, or else of the first tree that is mounted.
    fn place_of_login(&self) -> Result<LoginPlace, Failure> {
        let is_in_tree = || tree::is_ours(Path::new("."));
        if self.path.is_none() && !is_in_tree() && network_login::is_any()? {
            return Ok(LoginPlace::Files);
        }
        self.place()
    }

    /// The holder of a new login.
    fn place(&self) -> Result<LoginPlace, Failure> {
        let ReachOptions { dir, cell, via, localauth } = &self.reach;
        let is_named = dir.is_some() || cell.is_some() || via.is_some() || *localauth;
        if is_named || self.path.is_none() && reach::is_cell_in_environment() {
            return Ok(LoginPlace::Files);
        }
        match tree::some_place(self.path.as_deref()) {
            Ok(place) => Ok(LoginPlace::Tree(place)),
            Err(_) if self.path.is_none() => Ok(LoginPlace::Files),
            Err(failure) => Err(failure),
        }
    }

    fn way(&self) -> Result<NetworkWay, Failure> {
        NetworkWay::for_login(&self.reach)
    }

    /// The cell that is named, if any.
    fn cell(&self) -> Result<Option<String>, Failure> {
        let ReachOptions { dir, cell, via, localauth } = &self.reach;
        if let Some(cell) = cell {
            return Ok(Some(cell.clone()));
        }
        if dir.is_none() && via.is_none() && !localauth {
            return Ok(None);
        }
        let way = self.way()?;
        Ok(Some(match way.cell {
            Some(cell) => cell,
            None => way.anonymous(local::ask::TIMEOUT)?.cell,
        }))
    }
}

const LOGIN_HELP: &str = "\
EXAMPLES
    rialto login joe               asks for the password
    rialto login joe --password-stdin < FILE
    rialto login                   as the user that a trusted connection names
    rialto login --kerberos        with the ticket that 'kinit' got
    rialto login --kerberos --kinit joe           asks for joe's password in the realm
    rialto login joe --path /afs/example.org      to another cell
    rialto login joe --via fs1.example.org:7620   without a mount
    rialto login joe --cell example.org           the same, for a cell of cells.toml or DNS

The mount stores the token, for all your processes on this machine, until it ends (10 hours;
it is renewed for a week) or 'rialto logout'. 'rialto tokens' shows it. A token from a
ticket ends with the ticket; before that, the mount logs in with a newer ticket of the same
credential cache (KRB5CCNAME), and renews the ticket if it can be renewed.

Without a mount, or with --via or --cell, the token is in a file that you alone can read, in
$RIALTO_TOKENS, $XDG_RUNTIME_DIR/rialto or /tmp/rialto-tokens-UID. The commands vos, pts,
fence, admin, audit, status and doctor use it, and renew it when a quarter is left.

Logins on a machine by password, ssh and Kerberos, jobs: docs/operations/logins.md.

EXIT CODES
    0  logged in
    1  refused or failed: the message names the remedy
    3  no tree is mounted and no cell is found, or no server answers";

/// Logs in to the cell with a password.
#[derive(Args, Debug)]
#[command(after_help = LOGIN_HELP)]
pub struct Login {
    /// The user of the cell; without it the user that a trusted connection names.
    user: Option<String>,
    /// Read the password from standard input, up to the end of its first line.
    #[arg(long, requires = "user")]
    password_stdin: bool,
    /// For 'pam_exec': the user, the kind of the call and the password as PAM passes them.
    #[arg(long, conflicts_with_all = ["user", "kerberos", "password_stdin", "cell", "via", "dir"])]
    pam: bool,
    /// Log in with a Kerberos ticket.
    #[arg(long, short, conflicts_with = "user")]
    kerberos: bool,
    /// The service that the ticket is for, with or without a realm [default: rialto/CELL, or
    /// afs/CELL]
    #[arg(long, value_name = "NAME", requires = "kerberos")]
    service: Option<String>,
    /// Renew the ticket first, if it can be renewed.
    #[arg(long, requires = "kerberos")]
    renew: bool,
    /// Get the ticket first, with the password of this principal, by 'kinit'; the ticket is
    /// destroyed after the login.
    #[arg(long, requires = "kerberos", value_name = "PRINCIPAL", conflicts_with = "renew")]
    kinit: Option<String>,
    /// With --kinit: leave the ticket in your credential cache.
    #[arg(long, requires = "kinit")]
    keep_ticket: bool,
    #[command(flatten)]
    options: LoginOptions,
}

impl Login {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        if self.pam {
            return pam::run(self.options.path.as_deref());
        }
        if let Some(principal) = &self.kinit {
            return kerberos::log_in_with_new_ticket(principal, self.keep_ticket, &self.words());
        }
        if self.kerberos && self.renew {
            kerberos::renew_ticket();
        }
        let place = match self.options.place()? {
            LoginPlace::Tree(place) => place,
            LoginPlace::Files => return self.without_mount(),
        };
        if self.kerberos {
            kerberos::log_in(&place, self.service.as_deref())?;
            return logged_in(&place);
        }
        let request = match &self.user {
            Some(user) => {
                let password = password(&format!("Password for {user}: "), self.password_stdin)?;
                Zeroizing::new(json!({ "user": user, "password": *password }).to_string())
            }
            None => Zeroizing::new(json!({ "attest": true }).to_string()),
        };
        let what = || {
            self.user
                .as_ref()
                .map_or_else(|| "logging in".to_owned(), |user| format!("logging in as {user}"))
        };
        tree::set(&place, "system.rialto.login", &request).map_err(|error| {
            let failure = Failure::new(what(), explained(error));
            match error {
                Errno::INVAL if self.user.is_none() => failure.mend(
                    "name the user: 'rialto login NAME'; 'rialto pts createuser' \
                        makes one with your uid",
                ),
                Errno::ACCESS => failure
                    .mend("'rialto passwd' changes a password; an administrator sets a new one"),
                Errno::BUSY => {
                    failure.mend("wait a little; logins from other machines are possible")
                }
                _ => failure,
            }
        })?;
        logged_in(&place)
    }

    /// The words of the same login with a ticket that is there.
    fn words(&self) -> Vec<OsString> {
        let ReachOptions { dir, cell, via, localauth } = &self.options.reach;
        let via = via.as_ref().map(ToString::to_string);
        let texts = [("--service", &self.service), ("--cell", cell), ("--via", &via)];
        let texts = texts.map(|(name, value)| (name, value.as_ref().map(OsString::from)));
        let paths = [("--path", &self.options.path), ("--dir", dir)];
        let paths = paths.map(|(name, value)| (name, value.as_ref().map(OsString::from)));
        let values = texts.into_iter().chain(paths);
        let values = values.filter_map(|(name, value)| Some([name.into(), value?]));
        let local = localauth.then(|| OsString::from("--localauth"));
        ["login".into(), "--kerberos".into()]
            .into_iter()
            .chain(values.flatten())
            .chain(local)
            .collect()
    }

    fn without_mount(&self) -> Result<ExitCode, Failure> {
        let way = self.options.way()?;
        let token = if self.kerberos {
            let service = self.service.as_deref();
            network_login::log_in_by_ticket(way, service, kerberos::no_ticket)?
        } else {
            let user = self.user.as_deref();
            let password = user
                .map(|user| password(&format!("Password for {user}: "), self.password_stdin))
                .transpose()?;
            network_login::log_in(way, user, password.as_ref().map(|text| text.as_str()))?
        };
        println!("logged in to {} as {}: ends {}", token.cell, token.name, when(token.expires));
        Ok(ExitCode::SUCCESS)
    }
}

fn logged_in(place: &Path) -> Result<ExitCode, Failure> {
    if let Some(token) = token(place)? {
        let ends = when(token.expires);
        println!("logged in to {} as {}{}: ends {ends}", token.cell, token.user, token.servers());
    }
    Ok(ExitCode::SUCCESS)
}

fn explained(error: Errno) -> String {
    match error {
        Errno::ACCESS => "wrong password, or no such user".to_owned(),
        Errno::BUSY => "too many wrong attempts".to_owned(),
        Errno::INVAL => "the cell has no user for you".to_owned(),
        Errno::OPNOTSUPP => "this tree or its server accepts no logins".to_owned(),
        error => std::io::Error::from(error).to_string(),
    }
}

const LOGOUT_HELP: &str = "\
EXAMPLES
    rialto logout

    rialto logout --cell example.org     the login without a mount to this cell

The mount drops your token: your processes are anonymous callers from their next request
on. Logins without a mount are forgotten too: without --cell or --via, and without a mount,
all of them.

EXIT CODES
    0  done, or there was none
    1  failed";

/// Logs out of the cell.
#[derive(Args, Debug)]
#[command(after_help = LOGOUT_HELP)]
pub struct Logout {
    #[command(flatten)]
    options: LoginOptions,
}

impl Logout {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        match self.options.place_of_login()? {
            LoginPlace::Tree(place) => {
                let cell = tree::get(&place, "rialto.cell").ok();
                let request = tree::set(&place, "system.rialto.logout", "now");
                request.map_err(|error| Failure::new("logging out", explained(error)))?;
                if let Some(cell) = cell {
                    network_login::forget(Some(cell.trim()))?;
                }
            }
            LoginPlace::Files => network_login::forget(self.options.cell()?.as_deref())?,
        }
        Ok(ExitCode::SUCCESS)
    }
}

const TOKENS_HELP: &str = "\
EXAMPLES
    rialto tokens
    rialto tokens --json
    rialto tokens --cell example.org     the login without a mount to this cell

EXIT CODES
    0  there is a token
    1  there is none, it has ended, or the query failed";

/// Shows your identity in the cell, and until when it is valid.
#[derive(Args, Debug)]
#[command(after_help = TOKENS_HELP)]
pub struct Tokens {
    /// Print one JSON object, or null.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    options: LoginOptions,
}

#[derive(Deserialize)]
struct Token {
    cell: String,
    user: String,
    id: i32,
    level: String,
    expires: i64,
    renewable: i64,
    /// In a cell of Rialto: there is a login for its servers of AFS as well. A mount of an earlier
    /// version does not say it.
    #[serde(default)]
    afs: bool,
}

impl Token {
    /// Servers beside those of Rialto that the user is known to.
    fn servers(&self) -> &'static str {
        if self.afs { ", at servers of AFS too" } else { "" }
    }
}

fn token(place: &Path) -> Result<Option<Token>, Failure> {
    tree::ask_json(place, "system.rialto.tokens", "asking for tokens")
}

impl Tokens {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        let place = match self.options.place_of_login()? {
            LoginPlace::Tree(place) => place,
            LoginPlace::Files => return self.without_mount(),
        };
        if self.json {
            let value: Value = tree::ask_json(&place, "system.rialto.tokens", "asking for tokens")?;
            show::json(&value);
            return Ok(if value.is_null() { ExitCode::FAILURE } else { ExitCode::SUCCESS });
        }
        let Some(token) = token(&place)? else {
            println!("no token: 'rialto login NAME' gets one");
            return Ok(ExitCode::FAILURE);
        };
        let servers = token.servers();
        let Token { cell, user, id, level, expires, renewable, afs: _ } = token;
        println!(
            "{user} ({id}) in {cell}, by {level}{servers}: ends {}, the last renewal ends {}",
            when(expires),
            when(renewable)
        );
        Ok(ExitCode::SUCCESS)
    }

    fn without_mount(&self) -> Result<ExitCode, Failure> {
        let tokens = network_login::tokens(self.options.cell()?.as_deref())?;
        for token in &tokens {
            let level = format!("{:?}", token.level).to_lowercase();
            if self.json {
                show::json(&json!({
                    "cell": token.cell, "user": token.name, "id": token.principal.0,
                    "level": level, "issued": token.issued, "expires": token.expires,
                    "renewable": token.renewable,
                }));
            } else {
                println!(
                    "{} ({}) in {}, by {level}: ends {}, the last renewal ends {}",
                    token.name,
                    token.principal,
                    token.cell,
                    when(token.expires),
                    when(token.renewable)
                );
            }
        }
        let now = network_login::now();
        match &tokens[..] {
            [] if self.json => show::json(&Value::Null),
            [] => println!("no token: 'rialto login NAME' gets one"),
            [..] => {}
        }
        let is_in = tokens.iter().any(|token| token.expires > now);
        Ok(if is_in { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}

const PASSWD_HELP: &str = "\
EXAMPLES
    rialto passwd joe                    joe changes it: asks for the old and the new one
    rialto passwd joe --new-only         an administrator sets one
    printf 'OLD\\nNEW\\n' | rialto passwd joe --password-stdin
    rialto passwd joe --via fs1.example.org:7620     without a mount

The new password ends all tokens that were made for the user before, on all machines, unless
--keep-tokens is given. After a change of your own password this mount gets a new token at
once, and so does the login without a mount.

EXIT CODES
    0  changed
    1  refused or failed: the message names the remedy
    3  no tree is mounted and no cell is found, or no server answers";

/// Sets a user's password.
#[derive(Args, Debug)]
#[command(after_help = PASSWD_HELP)]
pub struct Passwd {
    /// The user of the cell.
    user: String,
    /// Set it as an administrator, without the old one.
    #[arg(long)]
    new_only: bool,
    /// Keep tokens of the user that were issued before valid.
    #[arg(long)]
    keep_tokens: bool,
    /// Read the old and the new one from standard input, a line each.
    #[arg(long)]
    password_stdin: bool,
    #[command(flatten)]
    options: LoginOptions,
}

impl Passwd {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        let place = self.options.place_of_login()?;
        let user = &self.user;
        let old = if self.new_only {
            None
        } else {
            Some(password(&format!("Old password of {user}: "), self.password_stdin)?)
        };
        let new = password(&format!("New password of {user}: "), self.password_stdin)?;
        if !self.password_stdin && *password("Again: ", false)? != *new {
            return Err(Failure::new(
                format!("setting the password of {user}"),
                "the two entries differ",
            ));
        }
        match place {
            LoginPlace::Tree(place) => self.by_mount(&place, old.as_ref(), &new)?,
            LoginPlace::Files => {
                let (reach, old) = (&self.options.reach, old.as_ref().map(|old| old.as_str()));
                network_login::set_password(reach, user, old, &new, self.keep_tokens)?;
            }
        }
        println!("password changed for {user}");
        if !self.keep_tokens {
            println!("older tokens of {user} are refused from now on");
        }
        Ok(ExitCode::SUCCESS)
    }

    fn by_mount(
        &self,
        place: &Path,
        old: Option<&Zeroizing<String>>,
        new: &Zeroizing<String>,
    ) -> Result<(), Failure> {
        let user = &self.user;
        let mut request = json!({ "user": user, "keep_tokens": self.keep_tokens });
        if let Some(old) = old {
            request["old"] = old.as_str().into();
        }
        request["new"] = new.as_str().into();
        let request = Zeroizing::new(request.to_string());
        tree::set(place, "system.rialto.passwd", &request).map_err(|error| {
            let why = match error {
                Errno::ACCESS => "the old password is wrong".to_owned(),
                Errno::PERM => "you are neither that user nor an administrator".to_owned(),
                Errno::INVAL => {
                    "a password has 8 to 1024 bytes, and the user must exist".to_owned()
                }
                error => explained(error),
            };
            Failure::new(format!("setting the password of {user}"), why)
        })
    }
}

/// Reads a password, from the terminal without echo, or from standard input.
fn password(prompt: &str, from_stdin: bool) -> Result<Zeroizing<String>, Failure> {
    let what = || "reading a password".to_owned();
    let line = quiet_line::read((!from_stdin).then_some(prompt), what)?;
    if line.is_empty() {
        return Err(Failure::new(what(), "there is none").mend("type it, or use --password-stdin"));
    }
    Ok(line)
}

/// A time for people, relative to now.
fn when(secs: i64) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    in_time(u64::try_from(secs).unwrap_or(0).saturating_sub(now))
}

/// So many seconds from now, to the nearest unit: what was just made for 10 hours ends in 10.
fn in_time(left: u64) -> String {
    let nearest = |unit: u64| (left + unit / 2) / unit;
    match left {
        0 => "now (it has ended)".to_owned(),
        left if left < 120 => format!("in {left} s"),
        left if left < 2 * 3600 => format!("in {} min", nearest(60)),
        left if left < 48 * 3600 => format!("in {} h", nearest(3600)),
        _ => format!("in {} days", nearest(86400)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_told_to_the_nearest_unit() {
        assert_eq!(in_time(0), "now (it has ended)");
        assert_eq!(in_time(119), "in 119 s");
        assert_eq!(in_time(7199), "in 120 min");
        assert_eq!(in_time(10 * 3600 - 3), "in 10 h");
        assert_eq!(in_time(9 * 3600 + 1700), "in 9 h");
        assert_eq!(in_time(7 * 86400 - 3), "in 7 days");
    }
}
