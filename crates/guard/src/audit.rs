//! The form of the audit log and its check: lines of JSON, each with the hash of the one before it,
//! in consecutive files. No I/O.
//!
//! The first line of a file has the file's number and the hash of the last line of the file before.
//! The *head*, a file beside them, has the position and hash of the last line written, so that
//! lines removed at the end are missed. After a kill the head may be some lines behind, and the
//! last line may be torn; the next server instance begins a new file, whose first line gives the
//! length of the torn one in bytes. Old files are removed after a while; a line names the last of
//! them before that happens: any other file missing at the beginning was removed by an intruder.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use types::hex;

/// The hash before the first line of all.
pub const NO_HASH: &str = "0000000000000000000000000000000000000000000000000000000000000000";

/// One event.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditEvent {
    /// Milliseconds since 1970.
    pub time: i64,
    /// `administration`, `authentication`, `denied`, `access list`, `fence` or `alarm`.
    pub kind: String,
    /// The principal's number, if it is known.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub principal: Option<i32>,
    /// The principal's name, if it was looked up.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub name: Option<String>,
    /// The uid that a connection or the kernel reported.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub uid: Option<u32>,
    /// The caller's authentication level.
    pub level: String,
    /// The number of the token: 32 hexadecimal digits.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub token: Option<String>,
    /// The caller's address; absent: this machine.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub host: Option<String>,
    /// The session; absent: none yet.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub session: Option<u64>,
    /// The name of the call.
    pub request: String,
    /// The object of the call.
    pub about: String,
    /// `done`, or the refusal.
    pub result: String,
    /// Number of further events like this one that have no line of their own.
    #[serde(skip_serializing_if = "is_zero", default)]
    pub more: u64,
}

#[allow(clippy::trivially_copy_pass_by_ref)] // as serde calls it
fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// The content of a line beside its hash.
#[allow(clippy::large_enum_variant)] // nearly every line is an event
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AuditBody {
    /// The first line of a file.
    File {
        /// The file's number, from 1 on.
        number: u64,
        /// Bytes of a torn line at the end of the file before.
        torn: u64,
    },
    /// An event.
    Event(AuditEvent),
    /// Number of events dropped because too many came at once.
    Lost(u64),
    /// The log removed the files up to this one because of its size or age limit.
    Removed {
        /// The number of the last one.
        until: u64,
    },
    /// The server shut down properly.
    End,
}

/// A line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditLine {
    /// The hash of the line before, in hexadecimal digits.
    pub before: String,
    /// The line's content.
    pub what: AuditBody,
}

/// The position of the last line written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditHead {
    /// The number of its file.
    pub file: u64,
    /// The line in that file, from 1 on.
    pub line: u64,
    /// The line's hash.
    pub hash: String,
}

/// The hash of a line, without its newline.
pub fn audit_hash(line: &[u8]) -> String {
    let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, line);
    hex(digest.as_ref())
}

impl AuditLine {
    /// Its JSON, without a newline.
    pub fn text(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }
}

/// The result of a check.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuditCheck {
    /// Whole lines.
    pub lines: u64,
    /// Files with a torn line at their end.
    pub torn: u64,
    /// Events that the log reports as dropped.
    pub lost: u64,
    /// Lines after the head: written just before the server was killed, or added by an intruder.
    pub behind: u64,
    /// Each defect, with its place.
    pub wrong: Vec<String>,
}

/// Checks files, each with its number and bytes, in their order, and the head.
pub fn audit_check<'f>(
    files: impl IntoIterator<Item = (u64, &'f [u8])>,
    head: Option<&AuditHead>,
) -> AuditCheck {
    let mut check = AuditCheck::default();
    let (mut before, mut last_file, mut torn) = (NO_HASH.to_owned(), 0, 0_u64);
    let (mut met, mut ended) = (head.is_none(), false);
    // For missing files at the beginning, the log itself says whether they were to be removed.
    let (mut missing, mut removed) = (0, 0);
    for (number, bytes) in files {
        let is_first = last_file == 0 && number > 1;
        if is_first {
            missing = number - 1;
        } else if number != last_file + 1 {
            check.wrong.push(format!("file {} is not there", last_file + 1));
        }
        last_file = number;
        let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        let (lines, rest) = bytes.split_at(whole);
        for (at, line) in (1_u64..).zip(lines.split_inclusive(|byte| *byte == b'\n')) {
            let line = line.strip_suffix(b"\n").unwrap_or(line);
            let place = format!("file {number}, line {at}");
            let Ok(parsed) = serde_json::from_slice::<AuditLine>(line) else {
                check.wrong.push(format!("{place}: is no line of this log"));
                before = audit_hash(line);
                continue;
            };
            if parsed.before != before && !(is_first && at == 1) {
                check.wrong.push(format!("{place}: does not follow the line before it"));
            }
            match parsed.what {
                AuditBody::File { number: says, torn: was } if at == 1 => {
                    if says != number || was != torn && !is_first {
                        check
                            .wrong
                            .push(format!("{place}: is of another file, or behind another end"));
                    }
                }
                _ if at == 1 => check.wrong.push(format!("{place}: is not the first of its file")),
                AuditBody::File { .. } => {
                    check.wrong.push(format!("{place}: begins a file within another"));
                }
                AuditBody::Lost(count) => check.lost += count,
                AuditBody::Removed { until } => removed = removed.max(until),
                AuditBody::Event(_) | AuditBody::End => {}
            }
            before = audit_hash(line);
            check.lines += 1;
            ended = serde_json::from_slice::<AuditLine>(line)
                .is_ok_and(|line| line.what == AuditBody::End);
            if met {
                check.behind += u64::from(head.is_some());
            } else if let Some(head) = head.filter(|head| (head.file, head.line) == (number, at)) {
                met = true;
                if head.hash != before {
                    check.wrong.push(format!("{place}: is not as it was written"));
                }
                if ended {
                    // Only the file of another server instance may follow an end.
                    check.behind = 0;
                }
            }
        }
        torn = rest.len() as u64;
        check.torn += u64::from(torn > 0);
    }
    if missing > removed {
        check.wrong.push(format!("files {} to {missing} are not there", removed + 1));
    }
    if let Some(head) = head.filter(|_| !met) {
        check.wrong.push(format!("file {}, line {}: is not there any more", head.file, head.line));
    }
    if ended && check.behind > 0 {
        check.wrong.push(format!("{} lines at the end were added", check.behind));
    }
    check
}

/// Returns those of `hashes` that no line of these files has. If [`audit_check`] finds nothing
/// wrong before a line, a known hash of it proves that the line and all before it are unchanged
/// since the hash was noted elsewhere: the hash covers the line, which has the hash of the one
/// before it, and so on.
pub fn audit_missing<'f, 'h>(
    files: impl IntoIterator<Item = &'f [u8]>,
    hashes: &'h [String],
) -> Vec<&'h str> {
    let mut missing: Vec<&str> = hashes.iter().map(String::as_str).collect();
    for bytes in files {
        for line in
            bytes.split_inclusive(|byte| *byte == b'\n').filter_map(|line| line.strip_suffix(b"\n"))
        {
            if missing.is_empty() {
                return missing;
            }
            let hash = audit_hash(line);
            missing.retain(|wanted| !wanted.eq_ignore_ascii_case(&hash));
        }
    }
    missing
}

/// Whether an event matches a search: each word occurs somewhere in its object.
pub fn audit_matches(
    event: &AuditEvent,
    who: Option<&str>,
    request: Option<&str>,
    result: Option<&str>,
) -> bool {
    let value = serde_json::to_value(event).unwrap_or(Value::Null);
    let is_who = |who: &str| {
        ["principal", "name", "uid", "token", "host"].iter().any(|field| match value.get(field) {
            Some(Value::String(text)) => text == who,
            Some(Value::Number(number)) => number.to_string() == who,
            _ => false,
        })
    };
    who.is_none_or(is_who)
        && request.is_none_or(|request| {
            event.request.eq_ignore_ascii_case(request) || event.kind == request
        })
        && result.is_none_or(|result| event.result.contains(result))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Three files of four lines, and the head.
    fn log() -> (Vec<Vec<u8>>, AuditHead) {
        let (mut files, mut before) = (Vec::new(), NO_HASH.to_owned());
        for number in 1..=3_u64 {
            let mut bytes = Vec::new();
            for line in 0..4_u64 {
                let event = AuditEvent {
                    time: 100 * number.cast_signed(),
                    about: format!("{line}"),
                    ..AuditEvent::default()
                };
                let what = if line == 0 {
                    AuditBody::File { number, torn: 0 }
                } else {
                    AuditBody::Event(event)
                };
                let text = AuditLine { before, what }.text();
                before = audit_hash(text.as_bytes());
                bytes.extend_from_slice(text.as_bytes());
                bytes.push(b'\n');
            }
            files.push(bytes);
        }
        (files, AuditHead { file: 3, line: 4, hash: before })
    }

    fn checked(files: &[Vec<u8>], head: &AuditHead) -> AuditCheck {
        audit_check((1..).zip(files.iter().map(|file| &file[..])), Some(head))
    }

    #[test]
    fn a_log_as_it_was_written_is_good() {
        let (files, head) = log();
        assert_eq!(checked(&files, &head), AuditCheck { lines: 12, ..AuditCheck::default() });
    }

    proptest! {
        #[test]
        fn every_changed_byte_and_line_is_found(
            file in 0..3_usize,
            at in any::<prop::sample::Index>(),
            bit in 0..8_u32,
        ) {
            let (mut files, head) = log();
            let at = at.index(files[file].len());
            files[file][at] ^= 1 << bit;
            prop_assert!(!checked(&files, &head).wrong.is_empty());
        }

        #[test]
        fn every_line_that_goes_comes_or_moves_is_found(
            file in 0..3_usize,
            line in 0..4_usize,
            how in 0..3,
        ) {
            let (mut files, head) = log();
            let mut lines: Vec<Vec<u8>> = files[file]
                .split_inclusive(|byte| *byte == b'\n')
                .map(<[u8]>::to_vec)
                .collect();
            match how {
                0 => drop(lines.remove(line)),
                1 => lines.insert(line, lines[line].clone()),
                _ => lines.swap(line, (line + 1) % 4),
            }
            files[file] = lines.concat();
            let check = checked(&files, &head);
            // A copy of the last line stands after the head, and its hash does not match.
            prop_assert!(!check.wrong.is_empty(), "{:?}", check);
        }
    }

    /// The whole log with other events and a matching head, as an intruder who can write the
    /// directory could forge it.
    fn rewritten(files: &[Vec<u8>], from: usize) -> (Vec<Vec<u8>>, AuditHead) {
        let (mut before, mut at, mut last) = (NO_HASH.to_owned(), 0, 0);
        let mut rewritten = Vec::new();
        for file in files {
            let mut bytes = Vec::new();
            last = 0;
            for line in file.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
                let mut line: AuditLine = serde_json::from_slice(line).unwrap();
                if let AuditBody::Event(event) = &mut line.what
                    && at >= from
                {
                    event.about = "nothing happened".to_owned();
                }
                let text = AuditLine { before, ..line }.text();
                before = audit_hash(text.as_bytes());
                bytes.extend_from_slice(text.as_bytes());
                bytes.push(b'\n');
                (at, last) = (at + 1, last + 1);
            }
            rewritten.push(bytes);
        }
        let head = AuditHead { file: files.len() as u64, line: last, hash: before };
        (rewritten, head)
    }

    #[test]
    fn m13_a_head_kept_elsewhere_finds_a_rewritten_log() {
        let (files, head) = log();
        let bytes = |files: &[Vec<u8>]| files.concat();
        let hashes: Vec<String> = bytes(&files)
            .split_inclusive(|byte| *byte == b'\n')
            .map(|line| audit_hash(&line[..line.len() - 1]))
            .collect();
        assert_eq!(hashes.last(), Some(&head.hash));
        let has_hash = |files: &[Vec<u8>], at: usize| {
            audit_missing(files.iter().map(Vec::as_slice), &hashes[at..=at]).is_empty()
        };
        assert!((0..hashes.len()).all(|at| has_hash(&files, at)));
        for from in 1..hashes.len() {
            let (forged, head) = rewritten(&files, from);
            assert_eq!(
                checked(&forged, &head).wrong,
                Vec::<String>::new(),
                "by itself nothing is found"
            );
            let changed = (from..hashes.len()).find(|at| at % 4 != 0).unwrap_or(hashes.len());
            for at in 0..hashes.len() {
                assert_eq!(has_hash(&forged, at), at < changed, "from {from}, a head of line {at}");
            }
        }
        let cut = &files[..2];
        assert!(
            has_hash(cut, 7) && !has_hash(cut, 8),
            "lines that were taken away at the end with their head"
        );
        assert_eq!(
            audit_missing([&files[0][..]], &["no hash".to_owned(), hashes[0].to_uppercase()]),
            ["no hash"]
        );
    }

    #[test]
    fn a_file_that_is_taken_out_is_found() {
        for gone in 0..3 {
            let (files, head) = log();
            let left = (1..)
                .zip(files.iter().map(|file| &file[..]))
                .filter(|(number, _)| *number != gone + 1);
            assert!(!audit_check(left, Some(&head)).wrong.is_empty(), "{gone}");
        }
    }

    #[test]
    fn a_torn_line_is_said_and_lines_behind_the_head_are_counted() {
        let (mut files, head) = log();
        let more = AuditLine { before: head.hash.clone(), what: AuditBody::Lost(3) }.text();
        files[2].extend_from_slice(more.as_bytes());
        files[2].push(b'\n');
        files[2].extend_from_slice(b"{\"bef");
        let check = checked(&files, &head);
        assert_eq!(check, AuditCheck { lines: 13, torn: 1, lost: 3, behind: 1, wrong: Vec::new() });
        // The next server instance reports it.
        let what = AuditBody::File { number: 4, torn: 5 };
        let mut next = AuditLine { before: audit_hash(more.as_bytes()), what }.text();
        next.push('\n');
        files.push(next.into_bytes());
        assert_eq!(checked(&files, &head).wrong, Vec::<String>::new());
        files[2].pop();
        assert!(!checked(&files, &head).wrong.is_empty());
    }
}
