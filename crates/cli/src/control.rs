//! Orders to the process of a mount, after it was unmounted too: a socket for its own user and
//! root, beside its pid file. One line is an order, one line of JSON is the answer.
//!
//! | order | answer |
//! |---|---|
//! | `unsaved` | what the servers do not have yet, by volume |
//! | `give-up` | the same, which is lost now: the process ends without it |
//! | `remount WORDS` | `true` when it is done |
//!
//! A refusal is an object with the text `error`. A path may be too long for a socket, so both sides
//! name it by the directory's descriptor.

use std::fs;
use std::io::{self, BufRead, BufReader, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustix::net::{SendFlags, sockopt};
use serde_json::{Value, json};

/// The longest order: words of a remount.
const ORDER_BYTES_MAX: u64 = 1 << 16;

/// How long one who connects may take to give an order.
const ORDER_PATIENCE: Duration = Duration::from_secs(10);

/// Listens until it is dropped.
pub struct ControlSocket(PathBuf);

impl Drop for ControlSocket {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// The socket of the process `pid`, in the directory of its pid file.
fn name(pid: i32) -> String {
    format!("{pid}.control")
}

/// Runs with a short path of the file `name` in `dir`.
fn in_dir<T>(dir: &Path, name: &str, run: impl FnOnce(&Path) -> io::Result<T>) -> io::Result<T> {
    let dir = fs::File::open(dir)?;
    run(&PathBuf::from(format!("/proc/self/fd/{}/{name}", dir.as_raw_fd())))
}

/// Listens in `dir` for orders to the process `pid`: this one, or the keeper that started it.
///
/// # Errors
/// If the socket cannot be made.
pub fn listen(
    dir: &Path,
    pid: i32,
    answer: impl Fn(&str) -> Result<Value, String> + Send + Sync + 'static,
) -> io::Result<ControlSocket> {
    let name = name(pid);
    let path = dir.join(&name);
    let _ = fs::remove_file(&path);
    let listener = in_dir(dir, &name, |short| UnixListener::bind(short))?;
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600))?;
    let answer = Arc::new(answer);
    std::thread::Builder::new().name("control".into()).spawn(move || {
        for asker in listener.incoming().flatten() {
            let answer = Arc::clone(&answer);
            // A remount waits for servers, and must not keep others waiting.
            let served = std::thread::Builder::new()
                .name("control-order".into())
                .spawn(move || serve(&asker, &*answer));
            if let Err(error) = served {
                tracing::warn!(%error, "cannot start a thread for an order: it is not carried out");
            }
        }
    })?;
    Ok(ControlSocket(path))
}

fn serve(asker: &UnixStream, answer: &dyn Fn(&str) -> Result<Value, String>) {
    // The socket's mode says so too, but not yet at the moment when the socket is made.
    if !sockopt::socket_peercred(asker).is_ok_and(|peer| may_order(peer.uid)) {
        return;
    }
    if asker.set_read_timeout(Some(ORDER_PATIENCE)).is_err() {
        return;
    }
    let mut order = String::new();
    let mut reader = BufReader::new(io::Read::take(asker, ORDER_BYTES_MAX));
    if reader.read_line(&mut order).is_err() {
        return;
    }
    let said = answer(order.trim_end()).unwrap_or_else(|error| json!({ "error": error }));
    let mut asker = asker;
    let _ = asker.write_all(format!("{said}\n").as_bytes());
}

fn may_order(uid: rustix::process::Uid) -> bool {
    uid.is_root() || uid == rustix::process::geteuid()
}

/// Gives the process `pid`, whose pid file is in `dir`, an order; waits for the answer, at most
/// `patience`.
///
/// # Errors
/// If it does not listen, does not answer in time, or refuses.
pub fn ask(dir: &Path, pid: i32, order: &str, patience: Option<Duration>) -> io::Result<Value> {
    let stream = in_dir(dir, &name(pid), |short| UnixStream::connect(short))?;
    stream.set_read_timeout(patience)?;
    // Short enough for one piece. No signal: the other side may end at any moment.
    rustix::net::send(&stream, format!("{order}\n").as_bytes(), SendFlags::NOSIGNAL)?;
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line)?;
    let answer: Value = serde_json::from_str(&line)?;
    match answer["error"].as_str() {
        Some(error) => Err(io::Error::other(error.to_owned())),
        None => Ok(answer),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Its own user and root are answered, and no other user that reaches the socket.
    #[test]
    fn another_user_gives_no_order() {
        let own = rustix::process::geteuid();
        let other = rustix::process::Uid::from_raw(own.as_raw() + 4711);
        assert!(may_order(own) && may_order(rustix::process::Uid::ROOT) && !may_order(other));
        if !own.is_root() {
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let pid = i32::try_from(std::process::id()).unwrap();
        let _listening = listen(dir.path(), pid, |_| Ok(json!("given up"))).unwrap();
        let path = dir.path().join(name(pid));
        let order = move || {
            rustix::thread::set_thread_res_uid(other, other, other).unwrap();
            let mut said = String::new();
            let mut stream = UnixStream::connect(path)?;
            stream.write_all(b"give-up\n")?;
            BufReader::new(stream).read_line(&mut said)?;
            io::Result::Ok(said)
        };
        let refused = std::thread::spawn(order.clone()).join().unwrap();
        assert_eq!(refused.unwrap_err().kind(), io::ErrorKind::PermissionDenied);
        // As if the mode were not set yet.
        let path = dir.path().join(name(pid));
        fs::set_permissions(path, fs::Permissions::from_mode(0o777)).unwrap();
        let said = std::thread::spawn(order).join().unwrap();
        assert!(said.as_ref().map_or(true, String::is_empty), "{said:?}");
    }

    #[test]
    fn an_order_is_answered_or_refused() {
        let dir = tempfile::tempdir().unwrap();
        let deep = dir.path().join("d".repeat(120));
        fs::create_dir(&deep).unwrap();
        let answer = |order: &str| match order {
            "unsaved" => Ok(json!([1])),
            other => Err(format!("no order is {other}")),
        };
        let pid = i32::try_from(std::process::id()).unwrap();
        let listening = listen(&deep, pid, answer).unwrap();
        let patience = Some(Duration::from_secs(30));
        assert_eq!(ask(&deep, pid, "unsaved", patience).unwrap(), json!([1]));
        let refusal = ask(&deep, pid, "dance", patience).unwrap_err().to_string();
        assert!(refusal.contains("no order is dance"), "{refusal}");
        drop(listening);
        assert!(ask(&deep, pid, "unsaved", patience).is_err());
    }
}
