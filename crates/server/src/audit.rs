//! The audit log's writer: a thread of its own behind a bounded queue (`docs/spec/access.md`,
//! *Audit*; its form is `guard/audit.rs`).
//!
//! Other threads queue events and go on; events that find no room are counted, and the log records
//! the count. Files are `audit-N.jsonl` in the audit directory, readable by the server's user
//! alone. Each server instance begins a new one. Copies of the lines go to another log, if one is
//! configured (`forward.rs`).

mod forward;

use std::collections::{HashMap, VecDeque};
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

pub(crate) use forward::Forward;
pub use forward::{ForwardState, ForwardTo};
use guard::{AuditBody, AuditEvent, AuditHead, AuditLine, NO_HASH, audit_hash};
use parking_lot::{Condvar, Mutex};
use types::{Fault, Fid};
use vice::AuditLog;

/// Events that wait to be written: some MB.
const QUEUE_MAX: usize = 8192;
/// A file ends with the line that makes it this long.
const FILE_BYTES_MAX: u64 = 16 << 20;
const DAY_MILLIS: i64 = 86_400_000;
/// Of the refusals of one caller at one directory, one is written in this time.
const WINDOW_MILLIS: i64 = 60_000;
/// The most pairs of caller and directory that are counted apart.
const PAIRS_MAX: usize = 4096;
/// Of these, hosts and reasons of refused connections: any host can cause some, and they must not
/// use up the pairs of users.
const HOST_PAIRS_MAX: usize = 1024;
/// How often the thread checks for windows that have ended.
const POLL_INTERVAL: Duration = Duration::from_secs(5);
const HEAD: &str = "head.json";

/// Which caller was refused, and where.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Pair {
    principal: Option<i32>,
    uid: Option<u32>,
    host: Option<String>,
    dir: Fid,
    /// Of a refused connection: its request, and the reason.
    host_refusal: Option<(String, String)>,
}

#[derive(Debug, Default)]
struct Queue {
    events: VecDeque<AuditEvent>,
    lost: u64,
    /// The last event that was not written, and the start of the window.
    windows: HashMap<Pair, (i64, AuditEvent)>,
    host_windows: usize,
    stopping: bool,
}

impl Queue {
    fn push(&mut self, event: AuditEvent) {
        if self.events.len() < QUEUE_MAX { self.events.push_back(event) } else { self.lost += 1 }
    }

    /// Ends the windows that began before `until`, and records their counts.
    fn close_windows(&mut self, until: i64) {
        let mut over = Vec::new();
        let of_hosts = &mut self.host_windows;
        self.windows.retain(|pair, (began, last)| {
            let stays = *began >= until;
            *of_hosts -= usize::from(!stays && pair.host_refusal.is_some());
            if !stays && last.more > 0 {
                over.push(last.clone());
            }
            stays
        });
        over.into_iter().for_each(|event| self.push(event));
    }
}

/// How much of the log is retained: the oldest files are removed, but never the one being written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Retention {
    /// Days since a file was last written.
    pub days: u64,
    /// Bytes of all files.
    pub bytes: u64,
}

/// The queue of the audit log, and its thread's state.
#[derive(Debug)]
pub(crate) struct Audit {
    queue: Mutex<Queue>,
    more: Condvar,
    forward: Option<Arc<Forward>>,
    dir: PathBuf,
}

impl Audit {
    /// Begins a new file below `dir`, and the thread that writes it. Each new file removes those
    /// that exceed `retention`. Copies of the lines go to `forward`, which ends with it.
    ///
    /// # Errors
    /// If the directory or the file cannot be made.
    pub fn start(
        dir: &Path,
        retention: Retention,
        forward: Option<(Arc<Forward>, JoinHandle<()>)>,
    ) -> io::Result<(Arc<Audit>, JoinHandle<()>)> {
        let (forward, sending) = forward.unzip();
        let log = Log::open(dir, retention, forward.clone())?;
        let (queue, more) = (Mutex::default(), Condvar::new());
        let audit = Arc::new(Audit { queue, more, forward, dir: dir.to_owned() });
        let (writing, dir) = (Arc::clone(&audit), dir.to_owned());
        let write = move || {
            writing.keep_writing(log, &dir, retention);
            if let (Some(forward), Some(sending)) = (&writing.forward, sending) {
                forward.stop();
                if sending.join().is_err() {
                    tracing::error!("the thread that forwards the audit log panicked");
                }
            }
        };
        let thread = std::thread::Builder::new().name("audit".to_owned()).spawn(write)?;
        Ok((audit, thread))
    }

    /// State of the copies of the log; `None`: there are none.
    pub fn forwarded(&self) -> Option<ForwardState> {
        self.forward.as_ref().map(|forward| forward.state())
    }

    /// Writes until the server stops; after a failure into a new file.
    fn keep_writing(&self, log: Log, dir: &Path, retention: Retention) {
        let mut log = Some(log);
        loop {
            let log =
                log.take().map_or_else(|| Log::open(dir, retention, self.forward.clone()), Ok);
            let wrote = catch_unwind(AssertUnwindSafe(|| log.map(|log| self.write_all(log))));
            match wrote {
                Ok(Ok(())) => return,
                Ok(Err(error)) => {
                    tracing::error!(%error, dir = %dir.display(), "the audit log cannot be \
                        written; the server tries again");
                }
                Err(_) => tracing::error!(
                    cause = "a broken assertion, which the previous line names",
                    consequence = "events that it was writing may be missing from the audit log",
                    remedy = "it goes on in a new file; report the lines before this one",
                    "the thread of the audit log panicked"
                ),
            }
            if self.queue.lock().stopping {
                return;
            }
            std::thread::sleep(Duration::from_secs(1));
        }
    }

    /// Writes the queued events; accepts no more.
    pub fn stop(&self) {
        self.queue.lock().stopping = true;
        self.more.notify_all();
    }

    fn write_all(&self, mut log: Log) {
        loop {
            let mut queue = self.queue.lock();
            if queue.events.is_empty() && queue.lost == 0 && !queue.stopping {
                self.more.wait_for(&mut queue, POLL_INTERVAL);
            }
            let until =
                if queue.stopping { i64::MAX } else { now_millis().saturating_sub(WINDOW_MILLIS) };
            queue.close_windows(until);
            let (events, lost, stopping) = (
                std::mem::take(&mut queue.events),
                std::mem::take(&mut queue.lost),
                queue.stopping,
            );
            drop(queue);
            let count = events.len() as u64;
            if let Err(error) = log.write(events, lost, stopping) {
                tracing::error!(%error, dir = %log.dir.display(), events = count, "the audit log \
                    cannot be written");
                self.queue.lock().lost += count + lost;
                if !stopping {
                    std::thread::sleep(Duration::from_secs(1));
                }
            }
            if stopping {
                return;
            }
        }
    }
}

impl AuditLog for Audit {
    fn saw(&self, event: AuditEvent) {
        self.queue.lock().push(event);
        self.more.notify_one();
    }

    fn saw_refusal(&self, dir: Fid, event: AuditEvent) {
        if event.kind != "denied" {
            return self.saw_host_refusal(event);
        }
        let pair = Pair {
            principal: event.principal,
            uid: event.uid,
            host: event.host.clone(),
            dir,
            host_refusal: None,
        };
        self.saw_one_of(pair, event);
    }

    fn lines(&self, file: u64, offset: u64) -> Result<String, Fault> {
        part(&self.dir, file, offset).map_err(|error| {
            tracing::warn!(%error, file, "the audit log cannot be read for an administrator");
            Fault::Medium
        })
    }
}

/// The most bytes of lines in one answer. Their JSON form is at most twice as long, for lines have
/// no control characters.
const PART_BYTES_MAX: u64 = 64 << 10;

/// Whole lines of a log, from this place of a file on.
fn part(dir: &Path, file: u64, offset: u64) -> io::Result<String> {
    use std::io::{Read, Seek, SeekFrom};
    let files = files(dir)?;
    // A file that was removed meanwhile is passed over.
    let mut left = files.iter().skip_while(|(number, _)| *number < file);
    let Some((number, path)) = left.next() else {
        return Ok(serde_json::json!({ "file": file, "offset": offset, "text": "", "end": true })
            .to_string());
    };
    let offset = if *number == file { offset } else { 0 };
    let mut open = File::open(path)?;
    open.seek(SeekFrom::Start(offset))?;
    let mut bytes = Vec::new();
    open.take(PART_BYTES_MAX).read_to_end(&mut bytes)?;
    let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    // Bytes without an end of line: one that is being written, or was torn by a kill.
    let is_full = bytes.len() as u64 == PART_BYTES_MAX;
    let next = left.next().map(|(number, _)| *number);
    let text = String::from_utf8_lossy(&bytes[..whole]).into_owned();
    let (file, offset, end) = match next {
        _ if is_full && whole > 0 => (*number, offset + whole as u64, false),
        Some(next) => (next, 0, false),
        None => (*number, offset + whole as u64, true),
    };
    Ok(serde_json::json!({ "file": file, "offset": offset, "text": text, "end": end }).to_string())
}

impl Audit {
    /// Records a refusal of a caller without session. With too many hosts, all are counted as one.
    pub fn saw_host_refusal(&self, mut event: AuditEvent) {
        let host_refusal = Some((event.request.clone(), event.result.clone()));
        let mut pair = Pair {
            principal: None,
            uid: None,
            host: event.host.clone(),
            dir: Fid::default(),
            host_refusal,
        };
        let queue = self.queue.lock();
        if queue.host_windows >= HOST_PAIRS_MAX && !queue.windows.contains_key(&pair) {
            pair.host = None;
            event.host = None;
        }
        drop(queue);
        self.saw_one_of(pair, event);
    }

    fn saw_one_of(&self, pair: Pair, mut event: AuditEvent) {
        let mut queue = self.queue.lock();
        if let Some((_, last)) = queue.windows.get_mut(&pair) {
            event.more = last.more + 1;
            *last = event;
            return;
        }
        if queue.windows.len() >= PAIRS_MAX {
            queue.lost += 1;
            return;
        }
        queue.host_windows += usize::from(pair.host_refusal.is_some());
        queue.windows.insert(pair, (event.time, event.clone()));
        queue.push(event);
        drop(queue);
        self.more.notify_one();
    }
}

fn now_millis() -> i64 {
    let now = crate::loopback::wall();
    now.secs.saturating_mul(1000).saturating_add(i64::from(now.nanos / 1_000_000))
}

/// The file being written.
struct Log {
    dir: PathBuf,
    file: Option<File>,
    number: u64,
    lines: u64,
    bytes: u64,
    day: i64,
    before: String,
    retention: Retention,
    forward: Option<Arc<Forward>>,
}

impl Log {
    fn open(dir: &Path, retention: Retention, forward: Option<Arc<Forward>>) -> io::Result<Log> {
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
        let dir = dir.to_owned();
        let before = NO_HASH.to_owned();
        let mut log = Log {
            dir,
            file: None,
            number: 0,
            lines: 0,
            bytes: 0,
            day: 0,
            before,
            retention,
            forward,
        };
        log.begin()?;
        Ok(log)
    }

    /// Begins a new file, numbered after the last one.
    fn begin(&mut self) -> io::Result<()> {
        self.file = None;
        let (mut number, mut before, mut torn) = (0, NO_HASH.to_owned(), 0);
        if let Some((last, path)) = files(&self.dir)?.pop() {
            let bytes = std::fs::read(path)?;
            let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
            let (lines, rest) = bytes.split_at(whole);
            number = last;
            torn = rest.len() as u64;
            let line = lines
                .strip_suffix(b"\n")
                .and_then(|lines| lines.rsplit(|byte| *byte == b'\n').next());
            before = line.map_or(before, audit_hash);
        }
        let path = self.dir.join(file_name(number + 1));
        let file = OpenOptions::new().create_new(true).append(true).mode(0o600).open(path)?;
        (self.number, self.before, self.lines, self.bytes) = (number + 1, before, 0, 0);
        self.day = now_millis() / DAY_MILLIS;
        self.file = Some(file);
        self.append(vec![AuditBody::File { number: self.number, torn }])?;
        if let Err(error) = self.remove_old() {
            let dir = self.dir.display();
            tracing::warn!(%error, %dir, "old files of the audit log cannot be removed");
        }
        Ok(())
    }

    /// Removes the files that exceed the retention, the oldest first. The first line of the next
    /// file records the last removed line, so that the rest remains one chain.
    fn remove_old(&mut self) -> io::Result<()> {
        let mut all = Vec::new();
        for (number, path) in files(&self.dir)? {
            let about = std::fs::metadata(&path)?;
            let age = about.modified()?.elapsed().unwrap_or_default();
            all.push((number, path, about.len(), age));
        }
        let mut bytes: u64 = all.iter().map(|(_, _, bytes, _)| bytes).sum();
        let retention = self.retention;
        let goes = |bytes: u64, age: Duration| {
            bytes > retention.bytes || age.as_secs() / 86_400 >= retention.days
        };
        let old = all.into_iter().take_while(|(number, _, of_it, age)| {
            let goes = *number < self.number && goes(bytes, *age);
            bytes -= if goes { *of_it } else { 0 };
            goes
        });
        let old: Vec<_> = old.collect();
        let Some((last, ..)) = old.last() else { return Ok(()) };
        tracing::info!(files = old.len(), last, "old files of the audit log are removed");
        // Recorded before the removal: files that are missing without this line were removed by
        // someone else.
        assert!(*last < self.number, "AU-1: the file that is written stays");
        let removed = AuditBody::Removed { until: *last };
        self.append(vec![removed])?;
        old.iter().try_for_each(|(_, path, ..)| std::fs::remove_file(path))
    }

    fn write(&mut self, events: VecDeque<AuditEvent>, lost: u64, ends: bool) -> io::Result<()> {
        if self.file.is_none()
            || self.bytes >= FILE_BYTES_MAX
            || now_millis() / DAY_MILLIS != self.day
        {
            self.begin()?;
        }
        let lost = (lost > 0).then_some(AuditBody::Lost(lost));
        let all: Vec<AuditBody> = events
            .into_iter()
            .map(AuditBody::Event)
            .chain(lost)
            .chain(ends.then_some(AuditBody::End))
            .collect();
        if all.is_empty() { Ok(()) } else { self.append(all) }
    }

    /// After a failure a part of the lines may be written, so the next ones go into another file.
    fn append(&mut self, bodies: Vec<AuditBody>) -> io::Result<()> {
        let Some(mut file) = self.file.take() else {
            return Err(io::Error::other("no file is open"));
        };
        let mut bytes = Vec::new();
        for what in bodies {
            assert_eq!(self.before.len(), NO_HASH.len(), "AU-1: a line has a hash before it");
            let entry = AuditLine { before: std::mem::take(&mut self.before), what };
            let line = entry.text();
            self.before = audit_hash(line.as_bytes());
            self.lines += 1;
            // Forwarded before it is written: a full disk must not keep the line from the other
            // log.
            if let Some(forward) = &self.forward {
                forward.push(self.number, self.lines, &entry.what, &line);
            }
            bytes.extend_from_slice(line.as_bytes());
            bytes.push(b'\n');
        }
        file.write_all(&bytes)?;
        file.sync_data()?;
        self.bytes += bytes.len() as u64;
        self.file = Some(file);
        self.put_head()
    }

    fn put_head(&self) -> io::Result<()> {
        assert!(self.lines > 0, "AU-1: the head has the hash of a line of file {}", self.number);
        let head = AuditHead { file: self.number, line: self.lines, hash: self.before.clone() };
        let (new, path) = (self.dir.join("head.new"), self.dir.join(HEAD));
        let mut file =
            OpenOptions::new().create(true).truncate(true).write(true).mode(0o600).open(&new)?;
        file.write_all(&serde_json::to_vec(&head).map_err(io::Error::other)?)?;
        std::fs::rename(new, path)
    }
}

fn file_name(number: u64) -> String {
    format!("audit-{number:08}.jsonl")
}

/// The files of an audit log, in their order, each with its number.
///
/// # Errors
/// If the directory cannot be read.
pub fn files(dir: &Path) -> io::Result<Vec<(u64, PathBuf)>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir)? {
        let path = entry?.path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let number = name.strip_prefix("audit-").and_then(|name| name.strip_suffix(".jsonl"));
        if let Some(number) = number.and_then(|number| number.parse().ok()) {
            found.push((number, path));
        }
    }
    found.sort_unstable();
    Ok(found)
}

/// The last line that was written to an audit log; `None`: unknown.
///
/// # Errors
/// If it cannot be read.
pub fn head(dir: &Path) -> io::Result<Option<AuditHead>> {
    match std::fs::read(dir.join(HEAD)) {
        Ok(bytes) => serde_json::from_slice(&bytes).map(Some).map_err(io::Error::other),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
const KEPT_IN_TESTS: Retention = Retention { days: 400, bytes: 1 << 30 };

#[cfg(test)]
mod tests {
    use guard::{AuditCheck, audit_check};

    use super::*;

    const KEPT: Retention = KEPT_IN_TESTS;

    #[test]
    fn the_log_is_read_in_parts_of_whole_lines() {
        let dir = tempfile::tempdir().unwrap();
        let line = |file: u64, number: u64| format!("{{\"{file}\":\"{number:0100}\"}}\n");
        let file = |number: u64, count: u64, torn: &str| {
            let text: String = (0..count).map(|at| line(number, at)).collect();
            std::fs::write(dir.path().join(file_name(number)), text.clone() + torn).unwrap();
            text
        };
        let all = file(3, 2000, "") + &file(4, 10, "{\"torn") + &file(7, 1000, "{\"half");
        let (mut read, mut at, mut parts) = (String::new(), (0, 0), 0);
        loop {
            let text = part(dir.path(), at.0, at.1).unwrap();
            let said: serde_json::Value = serde_json::from_str(&text).unwrap();
            read += said["text"].as_str().unwrap();
            at = (said["file"].as_u64().unwrap(), said["offset"].as_u64().unwrap());
            parts += 1;
            if said["end"] == true {
                break;
            }
        }
        assert!(read == all && parts > 4, "{} of {} bytes, {parts} parts", read.len(), all.len());
        assert_eq!(at, (7, file(7, 1000, "").len() as u64), "the next line will be there");
        let beyond = part(dir.path(), 99, 5).unwrap();
        assert!(beyond.contains("\"end\":true"), "{beyond}");
    }

    fn check(dir: &Path) -> AuditCheck {
        let files: Vec<(u64, Vec<u8>)> = files(dir)
            .unwrap()
            .into_iter()
            .map(|(number, path)| (number, std::fs::read(path).unwrap()))
            .collect();
        let head = head(dir).unwrap();
        audit_check(files.iter().map(|(number, bytes)| (*number, &bytes[..])), head.as_ref())
    }

    fn event(about: &str) -> AuditEvent {
        AuditEvent { time: now_millis(), about: about.to_owned(), ..AuditEvent::default() }
    }

    fn text(dir: &Path) -> String {
        files(dir)
            .unwrap()
            .into_iter()
            .map(|(_, path)| String::from_utf8(std::fs::read(path).unwrap()).unwrap())
            .collect()
    }

    #[test]
    fn several_instances_are_one_chain_torn_or_not() {
        let dir = tempfile::tempdir().unwrap();
        for instance in 0..3_u64 {
            let (audit, thread) = Audit::start(dir.path(), KEPT, None).unwrap();
            (0..10).for_each(|number| audit.saw(event(&format!("{instance}.{number}"))));
            audit.stop();
            thread.join().unwrap();
            let found = check(dir.path());
            assert_eq!(
                (found.wrong.len(), found.behind, found.torn),
                (0, 0, instance),
                "{found:?}"
            );
            // A kill in the middle of a line leaves this.
            let (_, last) = files(dir.path()).unwrap().pop().unwrap();
            OpenOptions::new()
                .append(true)
                .open(last)
                .unwrap()
                .write_all(b"{\"before\":\"12")
                .unwrap();
        }
        assert!(text(dir.path()).contains("2.9"));
        std::fs::remove_file(files(dir.path()).unwrap().remove(1).1).unwrap();
        assert!(!check(dir.path()).wrong.is_empty());
    }

    #[test]
    fn of_many_refusals_one_is_written_and_the_others_are_counted() {
        let dir = tempfile::tempdir().unwrap();
        let (audit, thread) = Audit::start(dir.path(), KEPT, None).unwrap();
        let denied = |about| AuditEvent { kind: "denied".to_owned(), ..event(about) };
        (0..100).for_each(|_| audit.saw_refusal(Fid::root(types::VolumeId(1)), denied("one")));
        audit.saw_refusal(Fid::root(types::VolumeId(2)), denied("two"));
        audit.stop();
        thread.join().unwrap();
        assert_eq!(text(dir.path()).matches("\"one\"").count(), 2);
        assert!(text(dir.path()).contains("\"more\":99"));
        assert_eq!(text(dir.path()).matches("\"two\"").count(), 1);
    }

    #[test]
    fn events_that_find_no_room_are_counted() {
        let dir = tempfile::tempdir().unwrap();
        let log = Log::open(dir.path(), KEPT, None).unwrap();
        let (queue, more) = (Mutex::default(), Condvar::new());
        let audit = Audit { queue, more, forward: None, dir: PathBuf::new() };
        (0..QUEUE_MAX + 5).for_each(|number| audit.saw(event(&number.to_string())));
        audit.stop();
        audit.write_all(log);
        let found = check(dir.path());
        assert_eq!((found.lost, found.lines as usize, found.wrong.len()), (5, QUEUE_MAX + 3, 0));
    }

    #[test]
    fn a_new_file_begins_after_a_long_one_or_on_another_day() {
        let dir = tempfile::tempdir().unwrap();
        let mut log = Log::open(dir.path(), KEPT, None).unwrap();
        log.bytes = FILE_BYTES_MAX;
        log.write(VecDeque::from([event("a")]), 0, false).unwrap();
        log.day -= 1;
        log.write(VecDeque::from([event("b")]), 0, false).unwrap();
        assert_eq!(files(dir.path()).unwrap().len(), 3);
        assert_eq!(check(dir.path()).wrong, Vec::<String>::new());
    }

    #[test]
    fn old_files_go_and_what_is_left_is_a_chain() {
        let dir = tempfile::tempdir().unwrap();
        let retention = Retention { bytes: 6000, ..KEPT };
        for instance in 0..40_u64 {
            let mut log = Log::open(dir.path(), retention, None).unwrap();
            log.write((0..5).map(|of| event(&format!("{instance}.{of}"))).collect(), 0, true)
                .unwrap();
            let found = check(dir.path());
            assert_eq!(found.wrong, Vec::<String>::new(), "after {instance}");
        }
        let left = files(dir.path()).unwrap();
        let bytes: u64 = left.iter().map(|(_, path)| std::fs::metadata(path).unwrap().len()).sum();
        assert!(left[0].0 > 1 && left.len() > 1 && bytes < 9000, "{left:?} {bytes}");
        assert!(text(dir.path()).contains("39.4"));
        // A file that is removed without a record is detected, in the middle and at the beginning.
        std::fs::rename(&left[0].1, dir.path().join("away")).unwrap();
        assert_ne!(check(dir.path()).wrong, Vec::<String>::new());
        std::fs::rename(dir.path().join("away"), &left[0].1).unwrap();
        assert_eq!(check(dir.path()).wrong, Vec::<String>::new());
        std::fs::remove_file(&left[1].1).unwrap();
        assert_ne!(check(dir.path()).wrong, Vec::<String>::new());
    }

    #[test]
    fn refusals_of_a_host_are_counted_and_many_hosts_count_as_one() {
        let dir = tempfile::tempdir().unwrap();
        let (audit, thread) = Audit::start(dir.path(), KEPT, None).unwrap();
        let refused = |host: String, why: &str| {
            let (request, result, host) = ("door.token".to_owned(), why.to_owned(), Some(host));
            audit.saw_host_refusal(AuditEvent { request, result, host, ..event("") });
        };
        (0..500).for_each(|_| refused("10.0.0.1".to_owned(), "no token"));
        refused("10.0.0.1".to_owned(), "too old");
        (0..5000).for_each(|host| refused(format!("host-{host}"), "no token"));
        // A user's refusal is recorded beside them.
        audit.saw_refusal(
            Fid::root(types::VolumeId(1)),
            AuditEvent { kind: "denied".to_owned(), ..event("user's") },
        );
        audit.stop();
        thread.join().unwrap();
        let text = text(dir.path());
        assert_eq!(
            text.matches("\"10.0.0.1\"").count(),
            3,
            "the first, another reason, and the count"
        );
        assert!(text.contains("\"more\":499") && text.contains("user's"));
        assert!(text.lines().count() < HOST_PAIRS_MAX + 20, "{}", text.lines().count());
    }
}
