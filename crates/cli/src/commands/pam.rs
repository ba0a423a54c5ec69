//! `rialto login --pam`: the cell's part of a login on this machine, run by `pam_exec`
//! (`docs/operations/logins.md`).
//!
//! `pam_exec` runs the program as root, with the name of the user in `PAM_USER`, the kind of the
//! call in `PAM_TYPE`, and the password on the standard input, up to a zero byte. All work is done
//! by another process of this program that has no right but the user's: it gets the password
//! through a pipe, never as an argument or in the environment. It is given a time, after which the
//! login goes on without it: a server that is away must not keep people out of the machine.

use std::ffi::OsString;
use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use local::failure::{Doing, FAILED, Failure};
use rustix::thread::set_thread_groups;
use zeroize::Zeroizing;

use crate::logging;

/// Longest time that a login waits for the cell.
pub(super) const WITHIN: Duration = Duration::from_secs(10);
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// Longest password that PAM passes on.
const PASSWORD_BYTES_MAX: u64 = 4096;
/// Where `getent` and `nsenter` are; the caller's own value does not count.
const PATH: &str = "/usr/sbin:/usr/bin:/sbin:/bin";

/// A user of this machine.
#[derive(Debug, PartialEq, Eq)]
struct Account {
    name: String,
    uid: u32,
    gid: u32,
}

/// Does the cell's part of a call of PAM.
///
/// # Errors
/// If the cell gives no token; the login's own rules decide what that means.
pub(super) fn run(path: Option<&Path>) -> Result<ExitCode, Failure> {
    logging::protect_memory();
    let variable = |name: &str| std::env::var(name).unwrap_or_default();
    let what = || "logging in for PAM".to_owned();
    let account = account(&variable("PAM_USER"))?;
    if account.uid == 0 {
        return Err(Failure::new(what(), "root gets no token of a user"));
    }
    if rustix::process::geteuid().as_raw() != 0 {
        return Err(Failure::new(what(), "only a login program that runs as root may")
            .mend("'rialto login' is for users"));
    }
    match variable("PAM_TYPE").as_str() {
        "auth" => {
            let password = password().doing(what)?;
            if password.is_empty() {
                return Err(Failure::new(what(), "there is no password"));
            }
            let words = ["login", &account.name, "--password-stdin"];
            carried_out(&account, &words, path, Some(&password))
        }
        "open_session" if !variable("KRB5CCNAME").is_empty() => {
            carried_out(&account, &["login", "--kerberos"], path, None)
        }
        "open_session" => Ok(ExitCode::SUCCESS),
        "close_session" if has_processes(account.uid) => Ok(ExitCode::SUCCESS),
        "close_session" => carried_out(&account, &["logout"], path, None),
        other => Err(Failure::new(what(), format!("PAM_TYPE is {other:?}"))
            .mend("it is for auth and session, by pam_exec")),
    }
}

/// The password as PAM passes it on: up to the first zero byte, or the end.
fn password() -> std::io::Result<Zeroizing<Vec<u8>>> {
    let mut bytes = Zeroizing::new(Vec::with_capacity(PASSWORD_BYTES_MAX as usize));
    std::io::stdin().lock().take(PASSWORD_BYTES_MAX).read_to_end(&mut bytes)?;
    let end = bytes.iter().position(|byte| [0, b'\n'].contains(byte)).unwrap_or(bytes.len());
    bytes.truncate(end);
    Ok(bytes)
}

/// The user of this name, from wherever this machine has its users.
fn account(name: &str) -> Result<Account, Failure> {
    let what = || format!("finding the user {name:?}");
    // A name that could be an option, or end a field, is no user's.
    if name.is_empty() || name.starts_with('-') || name.contains([':', '\n', '/']) {
        return Err(Failure::new(what(), "that is no user's name"));
    }
    let output = Command::new("getent")
        .args(["passwd", "--", name])
        .env("PATH", PATH)
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output()
        .doing(what)?;
    let text = String::from_utf8_lossy(&output.stdout);
    parsed(&text, name).ok_or_else(|| Failure::new(what(), "this machine has no such user"))
}

/// The account that a line of `passwd` shows, if it has this name: `getent` also takes numbers.
fn parsed(line: &str, name: &str) -> Option<Account> {
    let mut fields = line.lines().next()?.split(':');
    let (found, uid, gid) = (fields.next()?, fields.nth(1)?, fields.next()?);
    let (uid, gid) = (uid.parse().ok()?, gid.parse().ok()?);
    (found == name).then(|| Account { name: name.to_owned(), uid, gid })
}

/// Runs this program as the user, for as long as a login may wait.
fn carried_out(
    account: &Account,
    words: &[&str],
    path: Option<&Path>,
    password: Option<&[u8]>,
) -> Result<ExitCode, Failure> {
    let what = || format!("logging in for {}", account.name);
    let until = Instant::now() + WITHIN;
    let mut words: Vec<OsString> = words.iter().map(OsString::from).collect();
    if let Some(path) = path {
        words.extend(["--path".into(), path.into()]);
    }
    let cache = std::env::var_os("KRB5CCNAME").map(|cache| ("KRB5CCNAME", cache));
    // The standard library leaves the groups of a caller such as su, whose real user is another.
    set_thread_groups(&[]).doing(what)?;
    let mut child = Command::new("/proc/self/exe")
        .args(words)
        .uid(account.uid)
        .gid(account.gid)
        .current_dir("/")
        .env_clear()
        .env("PATH", PATH)
        .envs(cache)
        .stdin(if password.is_some() { Stdio::piped() } else { Stdio::null() })
        .stdout(Stdio::null())
        .spawn()
        .doing(what)?;
    if let (Some(password), Some(mut to)) = (password, child.stdin.take()) {
        // One that ended already says why.
        let _ = to.write_all(password).and_then(|()| to.write_all(b"\n"));
    }
    match ended(&mut child, until) {
        Some(code) => Ok(ExitCode::from(code)),
        None => {
            let why = format!("the cell did not answer within {} s", WITHIN.as_secs());
            Err(Failure::new(what(), why).mend("the login goes on without a token"))
        }
    }
}

/// The exit code of a process; `None`: it did not end in time, and is killed. It is not waited for
/// then: a process that waits for a mount may take longer to die.
fn ended(child: &mut Child, until: Instant) -> Option<u8> {
    loop {
        match child.try_wait() {
            Ok(Some(status)) => {
                return Some(
                    status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(FAILED),
                );
            }
            Ok(None) if Instant::now() < until => std::thread::sleep(POLL_INTERVAL),
            Ok(None) | Err(_) => break,
        }
    }
    let _ = child.kill();
    None
}

/// Whether the user has a process on this machine: another login, or a job. The ending login's own
/// process does not count: sshd closes the session before its child ends.
fn has_processes(uid: u32) -> bool {
    let login = rustix::process::getppid().map_or(0, |login| login.as_raw_nonzero().get());
    let Ok(processes) = fs::read_dir("/proc") else { return true };
    processes.flatten().any(|entry| {
        let name = entry.file_name();
        let is_process = name.to_string_lossy().bytes().all(|byte| byte.is_ascii_digit());
        let is_users = is_process && entry.metadata().is_ok_and(|status| status.uid() == uid);
        is_users
            && fs::read_to_string(entry.path().join("stat")).is_ok_and(|stat| lives(&stat, login))
    })
}

/// Whether a process, as `/proc` describes it, is neither over nor a child of `login`.
fn lives(stat: &str, login: i32) -> bool {
    // A name may have spaces and parentheses.
    let mut fields = stat.rsplit_once(") ").map_or("", |(_, rest)| rest).split(' ');
    let (state, parent) = (fields.next(), fields.next().and_then(|text| text.parse::<i32>().ok()));
    !matches!(state, Some("Z" | "X" | "") | None) && parent != Some(login)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ending_login_is_no_other_process() {
        assert!(lives("71 (a) b) S 1 71 71 0 -1", 70));
        assert!(!lives("71 (sshd) S 70 71 71 0 -1", 70), "its own child");
        assert!(!lives("71 (a) Z 1 71 71 0 -1", 70), "over");
        assert!(!lives("", 70), "ended meanwhile");
    }

    #[test]
    fn a_user_is_named_exactly() {
        let line = "joe:x:4711:4712:Joe:/home/joe:/bin/sh\n";
        let joe = Account { name: "joe".to_owned(), uid: 4711, gid: 4712 };
        assert_eq!(parsed(line, "joe"), Some(joe));
        assert_eq!(parsed(line, "4711"), None, "a number that names the same user");
        assert_eq!(parsed("", "joe"), None);
        assert_eq!(parsed("joe:x:many:1:", "joe"), None);
        for name in ["", "-x", "a:b", "a\nb", "a/b"] {
            assert!(account(name).is_err(), "{name:?}");
        }
    }
}
