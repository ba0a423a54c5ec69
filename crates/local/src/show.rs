//! Output of commands: tables for people, one JSON value for programs, and progress of long steps.

use std::collections::BTreeMap;
use std::sync::{Mutex, OnceLock};
use std::time::{Duration, Instant};

use comfy_table::{Cell, CellAlignment, Table, presets};
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;

/// Prints `value` as one line of JSON.
pub fn json(value: &impl Serialize) {
    println!("{}", serde_json::to_string(value).expect("our reports have only string keys"));
}

/// Prints an answer: `value` for programs, or `text` for people.
pub fn answer(json: bool, value: &impl Serialize, text: std::fmt::Arguments<'_>) {
    if json { self::json(value) } else { println!("{text}") }
}

/// A time in its largest fitting unit.
pub fn duration(secs: u64) -> String {
    match secs {
        0..120 => format!("{secs} s"),
        120..7200 => format!("{} min", secs / 60),
        7200..172_800 => format!("{} h", secs / 3600),
        _ => format!("{} days", secs / 86_400),
    }
}

/// A table without lines, as wide as the terminal allows. `numbers` names the columns that are
/// aligned to the right.
pub fn table(header: &[&str], numbers: &[usize], rows: Vec<Vec<String>>) -> Table {
    let mut table = Table::new();
    table
        .load_style(presets::NOTHING)
        .set_header(header.iter().map(|title| Cell::new(title.to_uppercase())));
    for column in numbers {
        if let Some(column) = table.column_mut(*column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table.add_rows(rows);
    table
}

/// Bytes as a person reads them: `1.5 GiB`.
pub fn bytes(count: u64) -> String {
    const UNITS: [&str; 6] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
    let mut value = count as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 { format!("{count} B") } else { format!("{value:.1} {}", UNITS[unit]) }
}

/// A line on the terminal that shows the current step; removed when dropped. Silent when stderr is
/// no terminal.
pub struct Progress(ProgressBar);

impl Progress {
    /// Starts to show the step `what`.
    pub fn start(what: impl Into<String>) -> Self {
        let bar = ProgressBar::new_spinner().with_message(what.into());
        bar.set_style(
            ProgressStyle::with_template("{spinner} {msg} {elapsed}")
                .expect("the template is a valid constant"),
        );
        bar.enable_steady_tick(Duration::from_millis(200));
        Progress(bar)
    }

    /// Shows the step `what` from here on.
    pub fn now(&self, what: impl Into<String>) {
        self.0.set_message(what.into());
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

/// A line on the terminal with the bytes received at several places, their rate, and the longest
/// remaining time. Shown after one second, removed when dropped. Thread-safe.
pub struct Fetching {
    since: Instant,
    bar: OnceLock<ProgressBar>,
    text: OnceLock<Progress>,
    at: Mutex<BTreeMap<String, (u64, u64)>>,
}

impl Default for Fetching {
    fn default() -> Self {
        Self::new()
    }
}

impl Fetching {
    /// Begins with no bytes received.
    pub fn new() -> Self {
        let (bar, text, at) = Default::default();
        Fetching { since: Instant::now(), bar, text, at }
    }

    /// Records the `bytes` received at `place`; `total` is the whole, 0 if unknown.
    pub fn record(&self, place: &str, bytes: u64, total: u64) {
        let Ok(mut at) = self.at.lock() else { return };
        at.insert(place.to_owned(), (bytes, total));
        let sum = |of: fn(&(u64, u64)) -> u64| at.values().map(of).sum::<u64>();
        let (bytes, total) = (sum(|one| one.0), sum(|one| one.1.max(one.0)));
        if self.since.elapsed() < Duration::from_secs(1) {
            return;
        }
        let bar = self.bar.get_or_init(|| {
            let bar = ProgressBar::new(total);
            let form =
                "{spinner} {bytes} of at most {total_bytes}, {bytes_per_sec}, {elapsed} so far, \
                    at most {eta} more";
            bar.set_style(ProgressStyle::with_template(form).expect("the template is a valid \
                constant"));
            bar
        });
        bar.set_length(total);
        bar.set_position(bytes);
    }

    /// Shows a line from here on instead of bytes.
    pub fn say(&self, text: String) {
        if let Some(bar) = self.bar.get() {
            bar.finish_and_clear();
        }
        self.text.get_or_init(|| Progress::start("")).now(text);
    }
}

impl Drop for Fetching {
    fn drop(&mut self) {
        if let Some(bar) = self.bar.get() {
            bar.finish_and_clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_shown_in_the_largest_unit_that_fits() {
        assert_eq!(bytes(1023), "1023 B");
        assert_eq!(bytes(1024), "1.0 KiB");
        assert_eq!(bytes(3 << 29), "1.5 GiB");
        assert_eq!(bytes(u64::MAX), "16384.0 PiB");
    }
}
