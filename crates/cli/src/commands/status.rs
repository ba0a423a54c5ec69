//! `rialto status`: running processes, connected clients, and usage.

use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use local::ask::{Asking, TIMEOUT};
use local::cell::{CellDir, VOLUME};
use local::daemon::Process;
use local::failure::{Doing, Failure, NOTHING_THERE};
use local::mounts::{self, Health};
use local::show;
use serde::Serialize;
use serde_json::{Value, json};
use server::CellPlace;
use types::{Name, VolumeStatus};

use super::vos::ailment;
use crate::levels::Levels;
use crate::reach::{Reach, ReachOptions};
use crate::transport::{Kept, MountFacts, Transport};

const AFTER_HELP: &str = "\
EXAMPLES
    rialto status
    rialto status --json | jq .usage
    rialto status --via fs1.example.org:7620     a server in the network, by your login

EXIT CODES
    0  the server runs and answers
    3  it does not answer, or there is no cell";

/// Shows running processes, connected clients, and usage.
#[derive(Args, Debug)]
#[command(after_help = AFTER_HELP)]
pub struct StatusCommand {
    #[command(flatten)]
    reach: ReachOptions,
    /// Has no effect: connections of this command are always encrypted.
    #[arg(long, hide = true)]
    clear: bool,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

/// State of one mount of this machine.
#[derive(Serialize)]
struct MountState {
    at: String,
    pid: Option<i32>,
    state: &'static str,
    /// The transport of its requests.
    transport: Option<Transport>,
    /// Whether the kernel reads and writes large files itself (docs/spec/passthrough.md), and why
    /// not.
    passthrough: bool,
    no_passthrough: Option<String>,
    /// Whether all volumes are in this one mount.
    flat: bool,
    /// The keeper that holds it for a successor of its process.
    kept: Kept,
    cache_bytes: u64,
}

impl StatusCommand {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        let cell = match Reach::find(&self.reach)? {
            Reach::Socket(cell) => cell,
            way @ Reach::Network(_) => return self.over_network(way),
        };
        let server = Process::recorded(&cell.server_pid_file())
            .doing(|| "reading the server's pid file".to_owned())?;
        let mounts = mount_states(&cell)?;
        let answered = server.map(|_| ask(&cell)).transpose();
        let (answers, trouble) = match answered {
            Ok(Some(answers)) => (Some(answers), None),
            Ok(None) => (None, None),
            Err(failure) => (None, Some(failure.to_string())),
        };
        let Answers { report, usage, levels } = answers.unwrap_or_default();
        if self.json {
            let listen = cell.config.listen;
            show::json(&json!({
                "cell": cell.config.name, "dir": cell.dir(), "listen": listen,
                "database": database_json(&cell.database()),
                "socket": cell.socket(), "users_socket": cell.users_socket(),
                "server": { "pid": server.map(|process| process.pid), "answers": report.is_some(),
                "trouble": trouble },
                "report": report, "usage": usage.map(usage_json), "mounts": mounts,
                "way": "socket", "level": levels.as_ref().map(|levels| levels.found.level),
                "next_level": levels.and_then(|levels| levels.next().level()),
            }));
        } else {
            print(&cell, server, report.as_ref(), usage, trouble.as_deref(), &mounts);
            if let Some(next) = levels.map(|levels| levels.next()).filter(|next| next.is_there()) {
                println!("\nupgrade   the cell's level: {}", next.text());
            }
        }
        Ok(if report.is_some() { ExitCode::SUCCESS } else { ExitCode::from(NOTHING_THERE) })
    }

    /// Shows the part of the server's report that the user who is logged in may see.
    fn over_network(&self, way: Reach) -> Result<ExitCode, Failure> {
        let reached = way.open(None, TIMEOUT)?;
        let report = reached.asking.report()?;
        let servers = reached.asking.servers().unwrap_or_default();
        if self.json {
            let names: Vec<&str> = servers.iter().map(|server| server.name.as_str()).collect();
            show::json(&json!({
                "cell": reached.name, "endpoint": reached.endpoint.to_string(),
                "user": reached.user, "servers": names, "report": report, "way": "network",
            }));
            return Ok(ExitCode::SUCCESS);
        }
        println!("cell      {}", reached.name);
        println!("way       {}", reached.way());
        for server in &servers {
            let addresses: Vec<_> = server.addresses.iter().map(ToString::to_string).collect();
            println!("server    {} at {}", server.name, addresses.join(", "));
        }
        match &report["you"]["level"] {
            Value::String(level) => println!("you       by {level}"),
            _ => println!("you       unknown: 'rialto login NAME' shows more"),
        }
        if let Value::String(engine) = &report["server"]["database"] {
            println!("database  {engine}");
        }
        if report["server"]["up_secs"].is_u64() {
            print_report(&report);
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// The engine of the cell's database, and where it is.
fn database_json(place: &CellPlace) -> Value {
    let at = match place {
        CellPlace::Here(path) => json!([path]),
        CellPlace::At(endpoint) => json!([endpoint.to_string()]),
        CellPlace::Etcd(etcd) => json!(etcd.endpoints),
    };
    json!({ "engine": place.engine(), "at": at })
}

fn database_line(place: &CellPlace) -> String {
    match place {
        CellPlace::Here(path) => format!("embedded, in {}", path.display()),
        CellPlace::At(endpoint) => format!("at another server, {endpoint}"),
        CellPlace::Etcd(etcd) => format!("in etcd, at {}", etcd.endpoints.join(", ")),
    }
}

/// The answers of the server.
#[derive(Default)]
struct Answers {
    report: Option<Value>,
    /// Of the root volume, which another server of the cell may have.
    usage: Option<VolumeStatus>,
    levels: Option<Levels>,
}

fn ask(cell: &CellDir) -> Result<Answers, Failure> {
    let asking = Asking::connect(client::Endpoint::Unix(cell.socket()))?;
    let volume = Name::new(VOLUME.as_bytes()).expect("a constant that is a name");
    let (report, usage) = (Some(asking.report()?), asking.volume(&volume)?);
    Ok(Answers { report, usage, levels: Levels::asked(&asking) })
}

fn usage_json(usage: VolumeStatus) -> Value {
    json!({
        "used_bytes": usage.used_bytes, "used_files": usage.used_files,
        "quota_bytes": usage.quota_bytes, "quota_files": usage.quota_files,
        "partition_bytes": usage.partition_bytes,
        "partition_free_bytes": usage.partition_free_bytes,
    })
}

fn mount_states(cell: &CellDir) -> Result<Vec<MountState>, Failure> {
    let points = cell.mounts().recorded().doing(|| "reading the list of mounts".to_owned())?;
    let state = |at: &std::path::PathBuf| {
        let process = Process::recorded(&cell.mounts().pid_file(at)).ok().flatten();
        let mounted = mounts::at(at).ok().flatten().is_some_and(|mounted| mounted.is_rialto());
        let facts = MountFacts::read(&cell.mounts().facts_file(at));
        let is_held = facts.as_ref().is_some_and(|facts| matches!(facts.kept, Kept::KeeperAt(_)));
        let state = match (process, mounted) {
            // Its supervisor starts the next process.
            (None, true) if is_held => "held",
            (None, false) => "not mounted",
            (Some(_), false) => "hands back",
            (None, true) => "stale",
            (Some(_), true) => match mounts::health(at, Duration::from_secs(2)) {
                Health::Answers => "answers",
                Health::Stale => "stale",
                Health::Silent => "silent",
            },
        };
        let cache_bytes = size_on_disk(&cell.mounts().cache(at));
        let facts = facts.filter(|_| process.is_some() || is_held);
        MountState {
            at: at.display().to_string(),
            pid: process.map(|process| process.pid),
            state,
            transport: facts.as_ref().map(|facts| facts.transport),
            passthrough: facts.as_ref().is_some_and(|facts| facts.no_passthrough.is_none()),
            flat: facts.as_ref().is_some_and(|facts| facts.flat),
            kept: facts.as_ref().map(|facts| facts.kept.clone()).unwrap_or_default(),
            no_passthrough: facts.and_then(|facts| facts.no_passthrough),
            cache_bytes,
        }
    };
    Ok(points.iter().map(state).collect())
}

/// Bytes in use below `dir`; unreadable entries do not count.
fn size_on_disk(dir: &std::path::Path) -> u64 {
    use std::os::unix::fs::MetadataExt;
    let Ok(entries) = std::fs::read_dir(dir) else { return 0 };
    let sizes = entries.flatten().filter_map(|entry| {
        let meta = entry.metadata().ok()?;
        Some(if meta.is_dir() { size_on_disk(&entry.path()) } else { meta.blocks() * 512 })
    });
    sizes.sum()
}

fn print(
    cell: &CellDir,
    server: Option<Process>,
    report: Option<&Value>,
    usage: Option<VolumeStatus>,
    trouble: Option<&str>,
    mounts: &[MountState],
) {
    println!("cell      {} in {}", cell.config.name, cell.dir().display());
    println!("way       the socket in {}", cell.dir().display());
    println!("database  {}", database_line(&cell.database()));
    let up = report.and_then(|report| report["server"]["up_secs"].as_u64());
    match (server, trouble) {
        (None, _) => println!("server    does not run; 'rialto up' starts it"),
        (Some(process), None) => {
            let up = up.map_or_else(String::new, |secs| format!(", up {}", show::duration(secs)));
            println!("server    process {}, listens on {}{up}", process.pid, cell.reached_at());
            println!("users     {}", users_line(cell, report));
        }
        (Some(process), Some(trouble)) => println!("server    process {}: {trouble}", process.pid),
    }
    if let Some(usage) = usage {
        println!("usage     {}", usage_line(&usage));
    }
    if let Some(report) = report {
        print_report(report);
    }
    if !mounts.is_empty() {
        let row = |mount: &MountState| {
            let pid = mount.pid.map_or_else(|| "-".to_owned(), |pid| pid.to_string());
            let transport = mount.transport.map_or("-", Transport::name).to_owned();
            let passthrough = if mount.passthrough { "yes" } else { "no" };
            vec![
                mount.at.clone(),
                mount.state.to_owned(),
                transport,
                passthrough.to_owned(),
                pid,
                show::bytes(mount.cache_bytes),
            ]
        };
        let rows = mounts.iter().map(row).collect();
        let by_device = mounts.iter().any(|mount| mount.transport == Some(Transport::Dev));
        println!(
            "\n{}",
            show::table(
                &["mount", "state", "transport", "passthrough", "pid", "cache"],
                &[4, 5],
                rows
            )
        );
        for mount in mounts {
            if let Some(why) = &mount.no_passthrough {
                println!("no passthrough on {}: {why}", mount.at);
            }
            match &mount.kept {
                Kept::No => {}
                Kept::OwnKeeper => println!("kept on {}: its process has successors", mount.at),
                Kept::KeeperAt(socket) => println!(
                    "kept on {}: the keeper at {} holds it for the next process",
                    mount.at,
                    socket.display()
                ),
            }
            if mount.flat {
                println!(
                    "flat on {}: all volumes are in this one mount, without edges for 'find \
                        -xdev' and the like",
                    mount.at
                );
            }
        }
        if by_device && std::path::Path::new(mount::URING_SWITCH).exists() && !mount::offers_uring()
        {
            println!(
                "transport dev: io_uring would take fewer wake-ups; 'rialto doctor' says how to \
                    turn it on"
            );
        }
    }
}

/// Where all users of this machine reach the server.
fn users_line(cell: &CellDir, report: Option<&Value>) -> String {
    let there = report.and_then(|report| report["server"]["users_socket"].as_str());
    match (there, cell.users_socket()) {
        (Some(path), _) => format!("of this machine reach it at unix:{path}"),
        (None, Some(path)) => {
            format!("of this machine cannot reach it at {}: its log says why", path.display())
        }
        (None, None) => "of this machine have no socket".to_owned(),
    }
}

/// Prints a server's report of itself.
fn print_report(report: &Value) {
    println!("clients   {}", counts(report, &["sessions", "promises", "locks", "held_files"]));
    println!(
        "waiting   {}",
        counts(report, &["lock_waits", "changes_waiting_for_breaks", "calls_waiting_for_grace"])
    );
    println!(
        "since up  {}",
        counts(&report["server"], &["replies", "breaks", "connections_malformed", "panics"])
    );
    if report["server"]["lane_requests"].as_u64().is_some_and(|requests| requests > 0) {
        println!("direct    {}", counts(&report["server"], &["lane_requests", "lane_hits"]));
    }
    bounds(report).iter().chain(&forwarded(report)).for_each(|line| println!("{line}"));
    for partition in stopped(report) {
        println!("STOPPED   {partition}");
    }
    for partition in unwell(report) {
        println!("UNWELL    {partition}");
    }
    if report["grace"] == true {
        println!(
            "grace     changes wait until the clients of the earlier server are back, or \
                their leases are over"
        );
    }
    if let Some(volumes) = report["volumes"].as_array().filter(|volumes| !volumes.is_empty()) {
        println!("\n{}", objects(volumes));
    }
}

/// Limits, their use, and those that were reached.
fn bounds(report: &Value) -> Vec<String> {
    let (limits, used) = (&report["server"]["limits"], &report["server"]["used"]);
    let of = |what: &str, used: &Value, most: &Value| {
        Some(format!("{} of {} {what}", used.as_u64()?, most.as_u64()?))
    };
    let all = [
        of("sessions", &used["sessions"], &limits["sessions"]),
        of("sessions of nobody", &used["nobody-sessions"], &limits["nobody-sessions"]),
        of("connections", &used["connections"], &used["connections-possible"]),
        of("promises", &report["promises"], &limits["promises"]),
        of("locks", &report["locks"], &limits["locks"]),
        of("holds", &report["holds"], &limits["holds"]),
    ];
    let line: Vec<String> = all.into_iter().flatten().collect();
    let mut lines = Vec::new();
    if !line.is_empty() {
        lines.push(format!("limits    {}", line.join(", ")));
    }
    let met = [&report["server"]["met"], &report["bounds_met"]]
        .into_iter()
        .filter_map(Value::as_object)
        .flatten();
    let met: Vec<String> = met
        .filter_map(|(name, count)| Some((name, count.as_u64().filter(|count| *count > 0)?)))
        .map(|(name, count)| format!("{count} times {}", name.replace(['-', '_'], " ")))
        .collect();
    if !met.is_empty() {
        lines.push(format!("met       {}", met.join(", ")));
    }
    lines
}

/// State of the copies of the audit log, if there are any.
fn forwarded(report: &Value) -> Option<String> {
    let state = &report["server"]["audit_forward"];
    let to = state["to"].as_str()?;
    let failing =
        state["failing"].as_str().map(|why| format!("; NOT TAKEN NOW: {why}")).unwrap_or_default();
    Some(format!(
        "audit     forwarded to {to}: {}{failing}",
        counts(state, &["sent", "waiting", "dropped"])
    ))
}

/// Partitions that accept no more changes, and why.
pub fn stopped(report: &Value) -> Vec<String> {
    let of = |partition: &Value| {
        let why = partition["stopped"].as_str()?;
        Some(format!(
            "partition {} takes no more changes until the server is started again: {why}",
            plain(&partition["name"])
        ))
    };
    report["partitions"].as_array().into_iter().flatten().filter_map(of).collect()
}

/// Partitions that take changes and are not well, and how.
pub fn unwell(report: &Value) -> Vec<String> {
    let of = |partition: &Value| {
        let how = ailment(&partition["health"]).filter(|_| partition["stopped"].is_null())?;
        let name = plain(&partition["name"]);
        Some(format!("partition {name} gets no new volumes: its disk is {how}"))
    };
    report["partitions"].as_array().into_iter().flatten().filter_map(of).collect()
}

fn usage_line(usage: &VolumeStatus) -> String {
    let quota = |used: String, limit: String, none: bool| {
        if none { used } else { format!("{used} of {limit}") }
    };
    let bytes = quota(
        show::bytes(usage.used_bytes),
        show::bytes(usage.quota_bytes),
        usage.quota_bytes == 0,
    );
    let files =
        quota(usage.used_files.to_string(), usage.quota_files.to_string(), usage.quota_files == 0);
    format!(
        "{bytes}, {files} files; {} free on the partition",
        show::bytes(usage.partition_free_bytes)
    )
}

/// Named counts in a line; missing ones are left out.
fn counts(of: &Value, names: &[&str]) -> String {
    let count =
        |name: &&str| of[*name].as_u64().map(|count| format!("{count} {}", name.replace('_', " ")));
    names.iter().filter_map(count).collect::<Vec<_>>().join(", ")
}

fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// A table of objects that have the same fields.
fn objects(rows: &[Value]) -> comfy_table::Table {
    let fields: Vec<&String> =
        rows[0].as_object().map(|object| object.keys().collect()).unwrap_or_default();
    let header: Vec<&str> = fields.iter().map(|field| field.as_str()).collect();
    let cells = |row: &Value| fields.iter().map(|field| plain(&row[field.as_str()])).collect();
    let numbers: Vec<usize> =
        (0..fields.len()).filter(|index| rows[0][fields[*index].as_str()].is_number()).collect();
    show::table(&header, &numbers, rows.iter().map(cells).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_and_a_partition_that_stopped_are_shown() {
        let report = json!({
            "promises": 5, "holds": 1, "bounds_met": { "promises": 0, "locks": 3 },
            "partitions": [{ "name": "/vicepa", "stopped": null }, { "name": "/vicepb",
            "stopped": "EIO" }],
            "server": {
                "limits": { "promises": 100, "holds": 9, "sessions": 7, "nobody-sessions": 4 },
                "used": { "sessions": 2, "nobody-sessions": 4 }, "met": { "passwords": 2 }
            },
        });
        assert_eq!(
            bounds(&report),
            [
                "limits    2 of 7 sessions, 4 of 4 sessions of nobody, 5 of 100 promises, 1 of 9 \
                    holds",
                "met       2 times passwords, 3 times locks"
            ]
        );
        let stopped = stopped(&report);
        assert!(
            stopped.len() == 1 && stopped[0].contains("/vicepb") && stopped[0].contains("EIO"),
            "{stopped:?}"
        );
        let unwell = |stopped| {
            let health = json!({ "state": "failing", "since": 0, "errors": 1,
                "slow_flushes": 0, "last_error": "EIO" });
            unwell(&json!({ "partitions": [{ "name": "/vicepb", "stopped": stopped,
                "health": health }] }))
        };
        assert!(unwell(Some("EIO")).is_empty(), "it is said once");
        assert!(unwell(None)[0].contains("/vicepb"), "{:?}", unwell(None));
        assert!(super::stopped(&json!({})).is_empty() && bounds(&json!({})).is_empty());
    }

    #[test]
    fn the_engine_of_the_database_is_shown() {
        let here = CellPlace::Here("/srv/rialto/celldb".into());
        assert_eq!(database_line(&here), "embedded, in /srv/rialto/celldb");
        let at = vec!["db1:2379".to_owned(), "db2:2379".to_owned()];
        let etcd = CellPlace::Etcd(celldb::EtcdConfig { endpoints: at.clone(), ..<_>::default() });
        assert_eq!(database_line(&etcd), "in etcd, at db1:2379, db2:2379");
        assert_eq!(database_json(&etcd), json!({ "engine": "etcd", "at": at }));
    }

    #[test]
    fn m13_copies_of_the_audit_log_are_shown() {
        let to = |failing: Value| {
            let state = json!({ "to": "/dev/log", "sent": 9, "waiting": 2, "dropped": 1,
                "failing": failing });
            forwarded(&json!({ "server": { "audit_forward": state } }))
        };
        let line = "audit     forwarded to /dev/log: 9 sent, 2 waiting, 1 dropped";
        assert_eq!(to(Value::Null).as_deref(), Some(line));
        assert_eq!(to(json!("gone")), Some(format!("{line}; NOT TAKEN NOW: gone")));
        assert_eq!(forwarded(&json!({ "server": {} })), None);
    }

    #[test]
    fn counts_and_times_are_shown_as_people_say_them() {
        let report = json!({ "sessions": 2, "lock_waits": 0, "grace": false });
        assert_eq!(
            counts(&report, &["sessions", "missing", "lock_waits", "grace"]),
            "2 sessions, 0 lock waits"
        );
        assert_eq!(
            (show::duration(119), show::duration(7199), show::duration(200_000)),
            ("119 s".into(), "119 min".into(), "2 days".into())
        );
    }
}
