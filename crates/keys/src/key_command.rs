//! Keys of a key server, which a command fetches: `[at-rest] command = ["/usr/local/bin/get-key"]`
//! in `cell.toml`.
//!
//! The command gets one more argument: `newest`, or the number of a key. It prints one line,
//! `NUMBER HEX`: the key's number and 64 hexadecimal digits. Its output is never shown; if it
//! fails, the first line of its standard error is. Keys are fetched once and stay in memory alone;
//! the number of the newest is asked for again after a minute, and stays the same if the command
//! fails. A command that failed is not run again for some seconds, since every reader of a volume
//! would otherwise wait for it.

use std::collections::BTreeMap;
use std::fmt;
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustix::process::{Pid, Signal, kill_process_group};
use types::TreeKey;
use zeroize::Zeroizing;

use crate::numbered::read_key;

/// How long the command may take.
const TIMEOUT: Duration = Duration::from_secs(10);
/// How long the number of the newest key is valid.
const FRESH: Duration = Duration::from_secs(60);
/// How long a failure is remembered.
const REFUSED: Duration = Duration::from_secs(5);
/// A longer line is no key.
const LINE_BYTES_MAX: u64 = 128;
/// The most bytes of its standard error that are read.
const WHY_BYTES_MAX: u64 = 400;

pub(crate) struct KeyCommand {
    words: Vec<String>,
    patience: Duration,
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    keys: BTreeMap<u32, TreeKey>,
    newest: Option<(u32, Instant)>,
    refused: BTreeMap<String, (String, Instant)>,
}

impl fmt::Debug for KeyCommand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KeyCommand({:?})", self.words)
    }
}

impl KeyCommand {
    pub fn new(words: Vec<String>) -> KeyCommand {
        KeyCommand { words, patience: TIMEOUT, known: Mutex::default() }
    }

    /// The newest key.
    ///
    /// # Errors
    /// Text for administrators, with nothing of a key.
    pub fn newest(&self) -> Result<(u32, TreeKey), String> {
        let mut known = self.known.lock();
        let fresh = known.newest.filter(|(_, at)| at.elapsed() < FRESH).map(|(number, _)| number);
        if let Some((number, key)) =
            fresh.and_then(|number| Some((number, known.keys.get(&number)?.clone())))
        {
            return Ok((number, key));
        }
        let asked = match (self.ask(&mut known, "newest"), known.newest) {
            (Err(_), Some((number, _))) => known.keys.get(&number).map(|key| (number, key.clone())),
            (asked, _) => Some(asked?),
        };
        let (number, key) = asked.ok_or("the newest key is not known")?;
        known.newest = Some((number, Instant::now()));
        Ok((number, key))
    }

    /// The key with a number.
    ///
    /// # Errors
    /// As [`KeyCommand::newest`].
    pub fn key(&self, wanted: u32) -> Result<TreeKey, String> {
        let mut known = self.known.lock();
        if let Some(key) = known.keys.get(&wanted) {
            return Ok(key.clone());
        }
        let (number, key) = self.ask(&mut known, &wanted.to_string())?;
        if number == wanted {
            Ok(key)
        } else {
            Err(self.describe(&format!("asked for key {wanted}, it printed key {number}")))
        }
    }

    /// The numbers of the keys that were fetched, ascending.
    pub fn fetched(&self) -> Vec<u32> {
        self.known.lock().keys.keys().copied().collect()
    }

    fn ask(&self, known: &mut Known, which: &str) -> Result<(u32, TreeKey), String> {
        if let Some((why, at)) = known.refused.get(which)
            && at.elapsed() < REFUSED
        {
            return Err(why.clone());
        }
        let asked = self.run(which).map_err(|why| self.describe(&why));
        match &asked {
            Ok((number, key)) => {
                known.refused.remove(which);
                // A number means one key for ever: another key could not unwrap what it wrapped.
                let first = known.keys.entry(*number).or_insert_with(|| key.clone());
                if first != key {
                    return Err(
                        self.describe(&format!("it printed another key {number} than before"))
                    );
                }
            }
            Err(why) => drop(known.refused.insert(which.to_owned(), (why.clone(), Instant::now()))),
        }
        asked
    }

    fn describe(&self, why: &str) -> String {
        format!("the command {}: {why}", self.words.first().map_or("", String::as_str))
    }

    fn run(&self, which: &str) -> Result<(u32, TreeKey), String> {
        let (program, rest) = self.words.split_first().ok_or("no command is configured")?;
        let mut command = Command::new(program);
        command
            .args(rest)
            .arg(which)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.process_group(0).spawn().map_err(|error| error.to_string())?;
        let (line, why) = (
            reader(child.stdout.take(), LINE_BYTES_MAX),
            reader(child.stderr.take(), WHY_BYTES_MAX),
        );
        let ended = wait(&mut child, Instant::now() + self.patience, &line, &why);
        let Some((status, line, why)) = ended else {
            return Err(format!("no answer within {:?}", self.patience));
        };
        if !status.success() {
            let why = String::from_utf8_lossy(&why);
            return Err(format!(
                "{status}: {}",
                why.lines().next().unwrap_or("it does not say why")
            ));
        }
        parsed(&line)
            .ok_or_else(|| "it did not print a number and 64 hexadecimal digits".to_owned())
    }
}

/// Reads to the end in a thread of its own, and returns the beginning.
fn reader(from: Option<impl Read + Send + 'static>, most: u64) -> Receiver<Zeroizing<Vec<u8>>> {
    let (send, receive) = channel();
    thread::spawn(move || {
        // Allocated at once: a growing buffer would leave copies that are not erased.
        let mut bytes = Zeroizing::new(Vec::with_capacity(most as usize));
        if let Some(mut from) = from {
            let _ = from.by_ref().take(most).read_to_end(&mut bytes);
            let _ = std::io::copy(&mut from, &mut std::io::sink());
        }
        let _ = send.send(bytes);
    });
    receive
}

type Bytes = Zeroizing<Vec<u8>>;

/// `None`: it took too long, and was killed, with all its child processes.
fn wait(
    child: &mut Child,
    until: Instant,
    line: &Receiver<Bytes>,
    why: &Receiver<Bytes>,
) -> Option<(ExitStatus, Bytes, Bytes)> {
    let left = || until.saturating_duration_since(Instant::now());
    let describe = line.recv_timeout(left()).ok().zip(why.recv_timeout(left()).ok());
    let mut status = None;
    while describe.is_some() && status.is_none() && !left().is_zero() {
        status = child.try_wait().ok().flatten();
        if status.is_none() {
            thread::sleep(Duration::from_millis(5));
        }
    }
    if status.is_none() {
        if let Some(group) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
            let _ = kill_process_group(group, Signal::KILL);
        }
        let _ = child.wait();
    }
    let (line, why) = describe?;
    Some((status?, line, why))
}

fn parsed(line: &[u8]) -> Option<(u32, TreeKey)> {
    let (number, key) = std::str::from_utf8(line).ok()?.trim_end().split_once(' ')?;
    let number = number.parse().ok().filter(|number| *number > 0)?;
    Some((number, TreeKey::new(*read_key(key.trim_start())?)))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// A command that runs this script.
    fn script(dir: &std::path::Path, text: &str) -> KeyCommand {
        let at = dir.join("get-key.sh");
        fs::write(&at, text).unwrap();
        KeyCommand::new(vec!["/bin/sh".to_owned(), at.display().to_string()])
    }

    #[test]
    fn keys_are_fetched_once() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("log");
        let keys = script(
            dir.path(),
            &format!(
                "echo $1 >> {}; n=$1; [ $n = newest ] && n=2; echo \"$n $(printf '%064d' $n)\"",
                log.display()
            ),
        );
        let (number, newest) = keys.newest().unwrap();
        assert_eq!((number, newest[31], newest[0]), (2, 2, 0));
        assert_eq!(keys.key(1).unwrap()[31], 1);
        for _ in 0..3 {
            assert_eq!(keys.newest().unwrap(), (2, keys.key(2).unwrap()));
            keys.key(1).unwrap();
        }
        assert_eq!(fs::read_to_string(&log).unwrap(), "newest\n1\n");
        assert_eq!(keys.fetched(), [1, 2]);
    }

    #[test]
    fn errors_do_not_show_the_output() {
        let dir = tempfile::tempdir().unwrap();
        let hex = "ab".repeat(32);
        for (text, wanted) in [
            (
                format!("echo '3 {hex}'; echo 'the vault is sealed' >&2; exit 4"),
                "the vault is sealed",
            ),
            (format!("echo '{hex}'"), "did not print a number"),
            (format!("echo '1 {hex}ab'"), "did not print a number"),
            (format!("echo '0 {hex}'"), "did not print a number"),
            (format!("yes '1 {hex}' | head -c 10000000"), "did not print a number"),
            (format!("echo '3 {hex}'"), "asked for key 7, it printed key 3"),
            ("kill -9 $$".to_owned(), "signal: 9"),
        ] {
            let describe = script(dir.path(), &text).key(7).unwrap_err();
            assert!(describe.contains(wanted), "{text}: {describe}");
            assert!(!describe.contains("abab"), "{describe}");
        }
        let missing = KeyCommand::new(vec!["/nowhere/get-key".to_owned()]);
        assert!(missing.newest().unwrap_err().contains("No such file"));
    }

    #[test]
    fn a_silent_command_is_killed_with_its_child_processes() {
        let dir = tempfile::tempdir().unwrap();
        let pid = dir.path().join("pid");
        let mut keys =
            script(dir.path(), &format!("sleep 1000 & echo $! > {}; wait", pid.display()));
        keys.patience = Duration::from_secs(2);
        assert!(keys.newest().unwrap_err().contains("no answer within 2s"));
        let child = fs::read_to_string(&pid).unwrap();
        // A killed process may wait for its parent.
        let gone = || match fs::read_to_string(format!("/proc/{}/stat", child.trim())) {
            Ok(stat) => stat.contains(") Z "),
            Err(_) => true,
        };
        while !gone() {
            thread::sleep(Duration::from_millis(10));
        }
    }

    #[test]
    fn a_failure_is_not_retried_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("log");
        let keys = script(dir.path(), &format!("echo $1 >> {}; exit 1", log.display()));
        assert_eq!(keys.key(1), keys.key(1));
        assert!(keys.newest().is_err() && keys.newest().is_err());
        assert_eq!(fs::read_to_string(&log).unwrap(), "1\nnewest\n");
    }
}
