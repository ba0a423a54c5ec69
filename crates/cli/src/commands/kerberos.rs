//! The user's side of a login with a Kerberos ticket, and the next login before the token ends.
//!
//! The tickets are the user's: only a process of that user reads the credential cache, makes the
//! request and checks the reply. The mount provides the key that the token will be bound to, and
//! carries both messages (`mount/logins.rs`). Shortly before the token ends the mount runs the same
//! command again as that user, with the credential cache of the first login, for the same part of
//! the tree, and in the name space of the user's session if there was one (`nsenter`).

use std::env;
use std::ffi::OsString;
use std::fs;
use std::io::IsTerminal;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use afsclient::AfsLogin;
use client::TicketSource;
use local::failure::{Doing, FAILED, Failure};
use login::{KerberosError, PendingTicket, service_ticket};
use rustix::fs::XattrFlags;
use rustix::io::Errno;
use serde::Deserialize;
use serde_json::json;
use types::{unhex, unhex_array};
use zeroize::Zeroizing;

use super::fs::tree;

const ATTRIBUTE: &str = "system.rialto.kerberos";
/// Takes a login for servers of AFS in a cell of Rialto.
const AFS_ATTRIBUTE: &str = "system.rialto.afs";
/// The variables in which MIT's library finds the credential cache and the configuration.
const CACHE: &str = "KRB5CCNAME";
const CONFIG: &str = "KRB5_CONFIG";
/// How long a realm may take to answer.
const TIMEOUT: Duration = Duration::from_secs(30);
const POLL_INTERVAL: Duration = Duration::from_millis(50);

#[derive(Deserialize)]
struct Offer {
    client: String,
    reply: Option<String>,
    /// The cell is one of AFS.
    #[serde(default)]
    afs: bool,
}

/// Logs in to the cell of `place` with a ticket for `service`, or for the usual service names.
///
/// # Errors
/// If there is no ticket, or the cell refuses it.
pub fn log_in(place: &Path, service: Option<&str>) -> Result<(), Failure> {
    let what = "logging in with a Kerberos ticket";
    let offer: Offer = tree::ask_json(place, ATTRIBUTE, what)?;
    if offer.afs {
        return log_in_to_afs(place, service);
    }
    let client = unhex_array::<32>(offer.client.as_bytes());
    let client = client.ok_or_else(|| Failure::new(what, "the mount's answer has no key"))?;
    let (service, ticket) = ticket(place, service, &client)?;
    show(place, &service, &ticket.request, what)?;
    let Offer { reply, .. } = tree::ask_json(place, ATTRIBUTE, what)?;
    let reply = reply.as_deref().and_then(|reply| unhex(reply.as_bytes())).unwrap_or_default();
    ticket.check(&reply).map_err(|error| {
        // The process that received the ticket is not the service that it is for.
        let _ = tree::set(place, "system.rialto.logout", "now");
        Failure::new(what, format!("the service that answered is not {service}: {error}"))
            .mend("inform the cell's administrators")
    })?;
    also_at_servers_of_afs(place);
    Ok(())
}

/// The cell may have servers of AFS, which know no token of Rialto. The realm tells by its ticket
/// for them: without one, and with a mount that knows no such servers, the user is *nobody* there.
fn also_at_servers_of_afs(place: &Path) {
    let shown = afs_login(place, None).and_then(|(_, login)| {
        let request = login.to_request();
        rustix::fs::setxattr(place, AFS_ATTRIBUTE, request.reveal(), XattrFlags::empty())
            .map_err(|error| refused("logging in to servers of AFS", error))
    });
    if let Err(failure) = shown {
        tracing::debug!(%failure, "no login for servers of AFS");
    }
}

/// Shows a request for a ticket of `service` to the mount.
fn show(place: &Path, service: &str, request: &[u8], what: &str) -> Result<(), Failure> {
    let cache = env::var(CACHE).unwrap_or_default();
    let at = fs::canonicalize(place).unwrap_or_else(|_| place.to_owned());
    let fields = json!({ "cache": cache, "service": service, "place": at.to_str() });
    let mut said = Zeroizing::new(fields.to_string().into_bytes());
    said.push(b'\n');
    said.extend_from_slice(request);
    rustix::fs::setxattr(place, ATTRIBUTE, &said, XattrFlags::empty())
        .map_err(|error| refused(what, error))
}

/// A cell of AFS: its servers see the ticket itself.
fn log_in_to_afs(place: &Path, service: Option<&str>) -> Result<(), Failure> {
    let (service, login) = afs_login(place, service)?;
    let what = "logging in with a Kerberos ticket";
    show(place, &service, login.to_request().reveal(), what)
}

/// The login for servers of AFS, and the service that its ticket is for. The cell's realm has its
/// name in capitals, or is the user's own.
fn afs_login(place: &Path, service: Option<&str>) -> Result<(String, AfsLogin), Failure> {
    let found = match service {
        Some(service) => service_ticket(service).map(|ticket| (service.to_owned(), ticket)),
        None => {
            let doing = || "reading the name of the cell".to_owned();
            let cell = tree::ask(place, "rialto.cell", doing)?.trim().to_owned();
            let (own, plain) = (cell.to_uppercase(), format!("afs/{cell}"));
            let in_its_realm = format!("{plain}@{own}");
            match service_ticket(&in_its_realm) {
                Ok(ticket) => Ok((in_its_realm, ticket)),
                // A fault of the first name's ticket holds for both, or only the other exists.
                Err(error) => {
                    service_ticket(&plain).map(|ticket| (plain, ticket)).map_err(|_| error)
                }
            }
        }
    };
    let (service, ticket) = found.map_err(no_ticket)?;
    let user = String::from_utf8_lossy(&ticket.client).into_owned();
    let key = Zeroizing::new(ticket.key);
    let login = AfsLogin::of_ticket(user, (ticket.key_type, &key), ticket.ticket, ticket.valid);
    let login = login.ok_or_else(|| {
        let what = "logging in with a Kerberos ticket";
        Failure::new(what, format!("servers of AFS know no keys of type {}", ticket.key_type))
    })?;
    Ok((service, login))
}

fn ticket(
    place: &Path,
    service: Option<&str>,
    client: &[u8; 32],
) -> Result<(String, PendingTicket), Failure> {
    if let Some(service) = service {
        return Ok((service.to_owned(), PendingTicket::new(service, client).map_err(no_ticket)?));
    }
    let cell = tree::ask(place, "rialto.cell", || "reading the name of the cell".to_owned())?;
    let [ours, afs] = ["rialto", "afs"].map(|kind| format!("{kind}/{}", cell.trim()));
    match PendingTicket::new(&ours, client) {
        Ok(ticket) => Ok((ours, ticket)),
        // A fault of the first name's ticket holds for both, or only the other name exists.
        Err(error) => PendingTicket::new(&afs, client)
            .map(|ticket| (afs, ticket))
            .map_err(|_| no_ticket(error)),
    }
}

pub(super) fn no_ticket(error: KerberosError) -> Failure {
    Failure::new("getting a Kerberos ticket for the cell", error).mend(
        "'klist' shows your tickets, 'kinit' gets one; --service names what the cell is \
            called in its realm",
    )
}

fn refused(what: &str, error: Errno) -> Failure {
    let (why, mend) = match error {
        Errno::ACCESS => (
            "the cell does not accept the ticket",
            "the log of its server has the reason: its keytab, clocks, a locked user",
        ),
        Errno::INVAL => (
            "the cell knows no such user",
            "'rialto pts createuser' makes one, and create = true in cell.toml all; those of \
            another realm after 'rialto pts creategroup system:authuser@REALM'",
        ),
        Errno::DQUOT => (
            "the cell makes no more users of your realm",
            "an administrator allows N more with 'rialto pts setfields system:authuser@REALM \
                -groupquota N'",
        ),
        Errno::OPNOTSUPP => (
            "this tree or its server accepts no tickets",
            "[kerberos] in cell.toml names the server's keytab",
        ),
        Errno::STALE => ("another login was quicker", "try again"),
        error => return Failure::new(what, std::io::Error::from(error)),
    };
    Failure::new(what, why).mend(mend)
}

/// Gets a ticket with the principal's password, which `kinit` reads, and logs in with it: `words`
/// are the command for that. The ticket is destroyed afterwards, unless the user keeps it.
///
/// # Errors
/// If there is no `kinit`, or it gets no ticket.
pub fn log_in_with_new_ticket(
    principal: &str,
    keeps: bool,
    words: &[OsString],
) -> Result<ExitCode, Failure> {
    let what = || format!("getting a ticket for {principal}");
    if principal.starts_with('-') {
        return Err(Failure::new(what(), "that is no principal").wrong_usage());
    }
    let place = tempfile::Builder::new().prefix("rialto-ticket").tempdir().doing(what)?;
    let cache = format!("FILE:{}", place.path().join("cache").display());
    let caches: &[(&str, &str)] = if keeps { &[] } else { &[(CACHE, &cache)] };
    // Its prompt goes to the standard output; a password that comes through a pipe needs none.
    let prompts = std::io::stdin().is_terminal();
    let got = Command::new("kinit")
        .args(["--", principal])
        .envs(caches.iter().copied())
        .stdout(if prompts { Stdio::inherit() } else { Stdio::null() })
        .status();
    let got = got.map_err(|error| {
        Failure::new(what(), error).mend("install MIT's programs (Debian: krb5-user)")
    })?;
    if !got.success() {
        return Err(Failure::new(what(), "kinit got none").mend("its message has the reason"));
    }
    let status = Command::new("/proc/self/exe")
        .args(words)
        .envs(caches.iter().copied())
        .stdin(Stdio::null())
        .status()
        .doing(what)?;
    let code = status.code().and_then(|code| u8::try_from(code).ok());
    Ok(ExitCode::from(code.unwrap_or(FAILED)))
}

/// Renews the ticket if possible: the cache may have a newer one anyway, so failures are ignored.
pub fn renew_ticket() {
    let kinit = Command::new("kinit")
        .arg("-R")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    tracing::debug!(?kinit, "renewing the ticket");
}

/// Repeats these logins for the tree at `at`, each in a process of its user.
pub fn log_in_again(sources: &[TicketSource], at: &Path) {
    let running: Vec<_> =
        sources.iter().filter_map(|source| Some((source, start(source, at)?))).collect();
    let until = Instant::now() + TIMEOUT;
    for (source, child) in running {
        if wait(child, until) {
            tracing::info!(uid = source.uid, "a newer ticket made a newer token");
        } else {
            tracing::warn!(
                uid = source.uid,
                cache = source.cache,
                "no newer ticket, so the token will end"
            );
        }
    }
}

fn start(source: &TicketSource, at: &Path) -> Option<Child> {
    let mut command = match source.name_space {
        None => {
            let mut command = Command::new("/proc/self/exe");
            command.uid(source.uid).gid(source.gid).current_dir("/");
            command
        }
        Some(name_space) => within(name_space, source)?,
    };
    let place = source.place.as_deref().map(Path::new).filter(|place| place.is_absolute());
    command
        .args(["login", "--kerberos", "--renew", "--service", &source.service, "--path"])
        .arg(place.unwrap_or(at));
    let kept = |name: &str| env::var_os(name).map(|value| (OsString::from(name), value));
    command.env_clear().envs([CONFIG, "PATH"].into_iter().filter_map(kept));
    if !source.cache.is_empty() {
        command.env(CACHE, &source.cache);
    }
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command
        .spawn()
        .inspect_err(|error| tracing::warn!(uid = source.uid, %error, "no process to log in again"))
        .ok()
}

/// This program, inside a session that still has a process. A session with a user name space is
/// entered as its user; root's session as root.
fn within(name_space: u64, source: &TicketSource) -> Option<Command> {
    let number = |process: &str, kind: &str| {
        Some(fs::metadata(format!("/proc/{process}/ns/{kind}")).ok()?.ino())
    };
    let processes = fs::read_dir("/proc")
        .ok()?
        .flatten()
        .filter_map(|entry| entry.file_name().into_string().ok());
    let mut numbers = processes.filter(|name| name.bytes().all(|byte| byte.is_ascii_digit()));
    let process = numbers.find(|process| number(process, "mnt") == Some(name_space))?;
    let mut command = Command::new("nsenter");
    command.args(["--target", &process, "--mount"]).current_dir("/");
    if number(&process, "user") == number("self", "user") {
        command.args(["--setuid", &source.uid.to_string(), "--setgid", &source.gid.to_string()]);
    } else {
        command.args(["--user", "--preserve-credentials"]).uid(source.uid).gid(source.gid);
    }
    command.arg("--").arg(env::current_exe().ok()?);
    Some(command)
}

/// Returns true if the process succeeded in time.
fn wait(mut child: Child, until: Instant) -> bool {
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return status.success(),
            Ok(None) if Instant::now() < until => std::thread::sleep(POLL_INTERVAL),
            Ok(None) | Err(_) => break,
        }
    }
    let _ = child.kill();
    let _ = child.wait();
    false
}
