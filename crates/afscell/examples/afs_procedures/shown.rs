//! Answers as text, without what differs between any two cells.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::io;
use std::net::Ipv4Addr;

/// Members of results that are times, identities, figures of disks and counts of work.
const HIDDEN: &[&str] = &[
    "about",
    "accessed",
    "backed_up",
    "blocks_in_use",
    "client_mod_time",
    "copied",
    "created",
    "device",
    "expiration",
    "free",
    "last_procedure",
    "last_received",
    "last_sent",
    "lock_fd",
    "max_volume",
    "microseconds",
    "min_free",
    "next_unique",
    "parent_unique",
    "partition_blocks_available",
    "partition_blocks_max",
    "process_started",
    "read_next",
    "seconds",
    "server_mod_time",
    "server_uniques",
    "start_time",
    "statistics",
    "time",
    "total_usable",
    "transmit_next",
    "unique",
    "updated",
    "used",
    "uuid",
    "requests",
    "aborts",
    "allocations",
    "frees",
    "data",
    "end",
    "transaction",
];

pub struct Shown {
    names: BTreeMap<i64, String>,
}

impl Shown {
    pub fn new(address: Ipv4Addr) -> Shown {
        let address = u32::from(address);
        let names =
            [(address.into(), "HERE".to_owned()), (address.cast_signed().into(), "HERE".into())];
        Shown { names: BTreeMap::from(names) }
    }

    /// From now on this number, which differs between cells, has a name.
    pub fn name(&mut self, number: u32, name: &str) {
        self.names.insert(number.into(), name.to_owned());
    }

    pub fn code(&self, code: i32) -> String {
        match afs3::errors::code_name(code) {
            Some(name) => format!("{name} ({code})"),
            None if (1..=200).contains(&code) => {
                format!("{} ({code})", io::Error::from_raw_os_error(code))
            }
            None => format!("code {code}"),
        }
    }

    /// The stream before the results of a procedure, and the results.
    pub fn stream(&self, service: &str, number: u32, bytes: &[u8]) -> (String, Vec<u8>) {
        let counted = |words: usize| {
            let (count, rest) = bytes.split_at(words);
            let count = count.iter().fold(0, |all, byte| all << 8 | usize::from(*byte));
            let (stream, rest) = rest.split_at(count.min(rest.len()));
            let text = stream.escape_ascii().to_string();
            let text = if text.len() > 200 { String::new() } else { format!(" {text:?}") };
            (format!("{count} bytes{text}, "), rest.to_vec())
        };
        match (service, number) {
            ("RXAFS", 130) => counted(4),
            ("RXAFS", 65537) => counted(8),
            // A dump, which begins with its mark; a log.
            ("AFSVol", 109 | 65538) => {
                let is_dump = bytes.starts_with(&[1, 0xb3, 0xa1, 0x13, 0x22]);
                (if is_dump { "a dump, " } else { "no dump, " }.to_owned(), Vec::new())
            }
            ("BOZO", 112) => ("a log, ".to_owned(), Vec::new()),
            _ => (String::new(), bytes.to_vec()),
        }
    }

    pub fn results(&self, answer: &impl Debug) -> String {
        let text = format!("{answer:?}");
        let text = without_padding(&without_hidden(&text));
        self.with_names(&text)
    }

    fn with_names(&self, text: &str) -> String {
        let mut shown = String::new();
        let mut rest = text;
        while let Some(at) = rest.find(|c: char| c.is_ascii_digit()) {
            let count = rest[at..].find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len() - at);
            let is_word = rest[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_');
            let digits = &rest[at..at + count];
            let start = if rest[..at].ends_with('-') { at - 1 } else { at };
            let number: Option<i64> = rest[start..at + count].parse().ok();
            match number.and_then(|number| self.names.get(&number)).filter(|_| !is_word) {
                Some(name) => {
                    shown.push_str(&rest[..start]);
                    shown.push_str(name);
                }
                None => {
                    shown.push_str(&rest[..at]);
                    shown.push_str(digits);
                }
            }
            rest = &rest[at + count..];
        }
        shown + rest
    }
}

/// The zeros behind a text of a fixed size.
fn without_padding(text: &str) -> String {
    text.replace("\\x00", "")
}

fn without_hidden(text: &str) -> String {
    let mut shown = text.to_owned();
    for hidden in HIDDEN {
        let (mark, mut from) = (format!("{hidden}: "), 0);
        while let Some(at) = shown[from..].find(&mark).map(|at| from + at) {
            let begin = at + mark.len();
            if shown[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_') {
                from = begin;
                continue;
            }
            shown.replace_range(begin..begin + value_bytes(&shown[begin..]), "_");
            from = begin + 1;
        }
    }
    shown
}

/// The bytes of the value at the front, up to the comma or bracket behind it.
fn value_bytes(text: &str) -> usize {
    let mut depth = 0;
    for (at, one) in text.char_indices() {
        match one {
            '{' | '[' | '(' => depth += 1,
            '}' | ']' | ')' if depth == 0 => return at,
            '}' | ']' | ')' => depth -= 1,
            ',' if depth == 0 => return at,
            _ => {}
        }
    }
    text.len()
}
