//! `rialto audit`: shows and verifies the audit log of the server in a cell's directory.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

use clap::{Args, Subcommand};
use guard::{AuditBody, AuditEvent, AuditLine, NO_HASH, audit_check, audit_matches, audit_missing};
use local::failure::{Doing, Failure};
use local::show;
use serde::Deserialize;
use types::{Answer, Call, Fault, GuardCall, Timestamp};

use super::cell_client::{CellClient, odd};
use crate::reach::{Reach, ReachOptions};

const AFTER_HELP: &str = "\
EXAMPLES
    rialto audit show                          the events, the oldest first
    rialto audit show --since 1h --result denied
    rialto audit show --who joe --request pts.Join --json
    rialto audit verify                        checks that it was not changed
    rialto audit head                          the hash of its last line, to store elsewhere
    rialto audit verify --head HASH            checks it up to that line too

Over the network an administrator reads the log of the server that answers; --via chooses
it. verify and head need the files, on the server's machine.

The log of this server lies in DIR/audit: administration, logins and refused tokens, changed
access lists, fences, and refusals. Each line has the hash of the one before it.

EXIT CODES
    0  done; verify: nothing was changed, taken out or added
    1  verify: the log was changed; or it cannot be read
    3  no cell there";

/// Shows the audit log, and checks that it was not changed.
#[derive(Args, Debug)]
#[command(after_help = AFTER_HELP, arg_required_else_help = true)]
pub struct Audit {
    #[command(subcommand)]
    verb: Verb,
    #[command(flatten)]
    reach: ReachOptions,
    /// JSON: one value for each line of the answer.
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Subcommand, Debug)]
enum Verb {
    Show(Show),
    Verify(Verify),
    Head(Head),
}

/// Shows events, the oldest first.
#[derive(Args, Debug)]
#[command(after_help = "EXAMPLES\n    rialto audit show --since 1d\n    rialto audit show --who \
        10.1.2.3 --result denied --json")]
struct Show {
    /// Of this last time, such as 90s, 15m, 1h or 7d.
    #[arg(long, value_name = "TIME", value_parser = super::rules::seconds)]
    since: Option<u64>,
    /// Of a caller: a name, a principal's number, a uid, an address, or the number of a token.
    #[arg(long, value_name = "WHO")]
    who: Option<String>,
    /// Of a request, such as auth.Password, or of a kind: administration, authentication, denied,
    /// 'access list', fence.
    #[arg(long, value_name = "REQUEST")]
    request: Option<String>,
    /// With this in the result: 'done', or a part of the refusal.
    #[arg(long, value_name = "TEXT")]
    result: Option<String>,
}

/// Checks the whole log: names every line and file that was changed, taken out or added.
///
/// A log that was rewritten as a whole, with its head, is detected only with a head that was stored
/// elsewhere.
#[derive(Args, Debug)]
#[command(
    after_help = "EXAMPLES\n    rialto audit verify\n    rialto audit verify --head \"$(cat \
        /mnt/usb/head)\" --json"
)]
struct Verify {
    /// An earlier output of 'rialto audit head': the log must still have that line. May be
    /// repeated.
    #[arg(long, value_name = "HASH", value_parser = hash)]
    head: Vec<String>,
}

/// Prints the hash of the log's last line, which proves it and all lines before it.
#[derive(Args, Debug)]
#[command(
    after_help = "EXAMPLES\n    rialto audit head | ssh elsewhere 'cat >> heads'\n    rialto \
        audit head --json"
)]
struct Head {}

fn hash(text: &str) -> Result<String, String> {
    let sound = text.len() == NO_HASH.len() && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    if sound {
        Ok(text.to_ascii_lowercase())
    } else {
        Err("a hash has 64 hexadecimal digits".to_owned())
    }
}

impl Audit {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        let way = Reach::find(&self.reach)?;
        let dir = match &way {
            Reach::Socket(cell) => Some(cell.dir().join("audit")),
            Reach::Network(_) => None,
        };
        match (&self.verb, dir) {
            (Verb::Show(show), Some(dir)) => self.show(read(&dir)?, show),
            (Verb::Show(show), None) => self.show(read_over_network(way)?, show),
            (Verb::Verify(verify), Some(dir)) => self.verify(&dir, &verify.head),
            (Verb::Head(_), Some(dir)) => self.head(&dir),
            (Verb::Verify(_) | Verb::Head(_), None) => Err(Failure::new(
                "checking the audit log",
                "only the files on the server's machine prove anything",
            )
            .mend("run it there, with -localauth or --dir")),
        }
    }

    fn head(&self, dir: &Path) -> Result<ExitCode, Failure> {
        let head =
            server::audit::head(dir).doing(|| format!("reading the head in {}", dir.display()))?;
        let head = head.ok_or_else(|| {
            Failure::new(format!("reading the head in {}", dir.display()), "there is none").mend(
                "the server writes one with its first line; 'rialto audit verify' checks the log",
            )
        })?;
        show::answer(self.json, &head, format_args!("{}", head.hash));
        Ok(ExitCode::SUCCESS)
    }

    fn show(&self, files: VecDeque<(u64, Vec<u8>)>, wanted: &Show) -> Result<ExitCode, Failure> {
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |since| since.as_millis() as i64);
        let since =
            wanted.since.map_or(0, |secs| now.saturating_sub_unsigned(secs.saturating_mul(1000)));
        let (who, request, result) =
            (wanted.who.as_deref(), wanted.request.as_deref(), wanted.result.as_deref());
        let mut rows = Vec::new();
        for (_, bytes) in files {
            for line in bytes.split(|byte| *byte == b'\n') {
                let Ok(AuditLine { what: AuditBody::Event(event), .. }) =
                    serde_json::from_slice(line)
                else {
                    continue;
                };
                if event.time < since || !audit_matches(&event, who, request, result) {
                    continue;
                }
                if self.json { show::json(&event) } else { rows.push(row(&event)) }
            }
        }
        if !self.json {
            let header = ["time", "who", "from", "request", "about", "result"];
            println!("{}", show::table(&header, &[], rows));
        }
        Ok(ExitCode::SUCCESS)
    }

    fn verify(&self, dir: &Path, kept: &[String]) -> Result<ExitCode, Failure> {
        // Read first, since a running server continues to write.
        let head =
            server::audit::head(dir).doing(|| format!("reading the head in {}", dir.display()))?;
        let files = read(dir)?;
        let mut check =
            audit_check(files.iter().map(|(number, bytes)| (*number, &bytes[..])), head.as_ref());
        let oldest = files.front().map_or(0, |(number, _)| *number);
        check
            .wrong
            .extend(audit_missing(files.iter().map(|(_, bytes)| &bytes[..]), kept).into_iter().map(
            |hash| {
                let old = if oldest > 1 {
                    format!(", or was in a file before {oldest}, which are not kept")
                } else {
                    String::new()
                };
                format!(
                    "no line has the hash {hash}: it, or a line before it, was changed or taken \
                away{old}"
                )
            },
        ));
        if self.json {
            show::json(&serde_json::json!({
                "files": files.len(), "lines": check.lines, "torn": check.torn, "lost": check.lost,
                "behind_head": check.behind, "head": head.is_some(), "wrong": check.wrong,
            }));
        } else {
            check.wrong.iter().for_each(|wrong| println!("{wrong}"));
            println!(
                "{} lines in {} files, {} torn by a kill, {} events lost",
                check.lines,
                files.len(),
                check.torn,
                check.lost
            );
            if check.behind > 0 {
                println!(
                    "{} lines behind the head: a server that runs or was killed wrote them, or \
                        somebody added them",
                    check.behind
                );
            }
            if head.is_none() {
                println!("there is no head: lines removed at the end are not detected");
            }
        }
        if check.wrong.is_empty() {
            return Ok(ExitCode::SUCCESS);
        }
        Err(Failure::new("checking the audit log", "it was changed since it was written")
            .mend("compare it with a copy that is stored elsewhere"))
    }
}

/// The files of the log of a server in the network, in their order.
fn read_over_network(way: Reach) -> Result<VecDeque<(u64, Vec<u8>)>, Failure> {
    let doing = "reading the audit log";
    let client = CellClient::by(way, |doing, error| match error.fault() {
        Some(Fault::NotPermitted) => {
            Failure::new(doing, error).mend("only members of system:administrators may")
        }
        Some(Fault::Unsupported) => Failure::new(doing, error)
            .mend("that server has no log, or is older: read it on its machine"),
        _ => Failure::new(doing, error),
    })?;
    let (mut file, mut offset, mut read) = (0, 0, VecDeque::new());
    loop {
        let call = Box::new(GuardCall::AuditLines { file, offset });
        let Answer::Report(text) = client.ask(doing, Call::Guard { behalf: None, call })? else {
            return Err(odd(doing));
        };
        let part: AuditPart = serde_json::from_str(&text).doing(|| doing.to_owned())?;
        read.push_back((file, part.text.into_bytes()));
        if part.end || (part.file, part.offset) <= (file, offset) {
            return Ok(read);
        }
        (file, offset) = (part.file, part.offset);
    }
}

/// A part of a server's log.
#[derive(Deserialize)]
struct AuditPart {
    file: u64,
    offset: u64,
    text: String,
    end: bool,
}

/// The files of the log, in their order.
fn read(dir: &Path) -> Result<VecDeque<(u64, Vec<u8>)>, Failure> {
    let files = server::audit::files(dir).doing(|| format!("reading {}", dir.display()))?;
    let read = |(number, path): (u64, PathBuf)| {
        Ok((number, std::fs::read(&path).doing(|| format!("reading {}", path.display()))?))
    };
    files.into_iter().map(read).collect()
}

fn row(event: &AuditEvent) -> Vec<String> {
    let number = event.principal.map(|id| id.to_string());
    let uid = event
        .uid
        .map(|uid| if uid == 0 { "the superuser".to_owned() } else { format!("uid {uid}") });
    let who = event.name.clone().or(number).or(uid).unwrap_or_else(|| "nobody".to_owned());
    let more = if event.more > 0 { format!(" (and {} more)", event.more) } else { String::new() };
    vec![
        super::vos::iso(Timestamp::new(event.time.div_euclid(1000), 0)),
        who,
        event.host.clone().unwrap_or_else(|| "here".to_owned()),
        event.request.clone(),
        event.about.clone(),
        format!("{}{more}", event.result),
    ]
}
