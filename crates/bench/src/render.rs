//! Output of results: two tables at a terminal, or a page.

use std::fmt::Write as _;

use comfy_table::Table;
use local::show;

use super::{Machine, Scenario, ScenarioRow, Size};

/// Rows of text under a header. The first `words` columns are words, the rest numbers.
struct Grid {
    header: Vec<String>,
    words: usize,
    rows: Vec<Vec<String>>,
}

impl Grid {
    fn table(self) -> Table {
        let header: Vec<&str> = self.header.iter().map(String::as_str).collect();
        let numbers: Vec<usize> = (self.words..header.len()).collect();
        show::table(&header, &numbers, self.rows)
    }

    fn markdown(&self) -> String {
        let rule =
            (0..self.header.len()).map(|column| if column < self.words { "---" } else { "---:" });
        let rows = [self.header.join(" | "), rule.collect::<Vec<_>>().join(" | ")];
        let rows = rows.into_iter().chain(self.rows.iter().map(|row| row.join(" | ")));
        rows.map(|row| format!("| {row} |\n")).collect()
    }
}

/// Medians and ratios.
fn rates(lines: &[ScenarioRow]) -> Grid {
    let names: Vec<String> =
        lines.first().map(|line| line.names().map(str::to_owned).collect()).unwrap_or_default();
    let used = |side: &usize| {
        lines.iter().any(|line| line.value(*side).is_some() || line.is_over_limit(*side))
    };
    let others: Vec<usize> = (1..names.len()).filter(used).collect();
    let mut header = vec!["scenario".to_owned(), "unit".to_owned(), "rialto".to_owned()];
    for side in &others {
        header.extend([names[*side].clone(), "ratio".to_owned()]);
    }
    header.push("spread".to_owned());
    let row = |line: &ScenarioRow| {
        let late =
            |side| if line.is_over_limit(side) { "over limit".to_owned() } else { String::new() };
        let value = |side| line.value(side).map_or_else(|| late(side), figure);
        let mut row = vec![line.scenario.name().to_owned(), unit(line.scenario), value(0)];
        for side in &others {
            let ratio =
                line.ratio_to(*side).map_or_else(String::new, |ratio| format!("{ratio:.2}"));
            row.extend([value(*side), ratio]);
        }
        row.push(format!("{:.0} %", line.spread() * 100.0));
        row
    };
    Grid { header, words: 2, rows: lines.iter().map(row).collect() }
}

/// Costs of Rialto's processes, and the requests of the pass-through for the same work.
fn costs(lines: &[ScenarioRow]) -> Grid {
    let header = [
        "scenario",
        "per",
        "client CPU us",
        "server CPU us",
        "client switches",
        "server switches",
        "client calls",
        "server calls",
        "FUSE requests",
        "client growth",
    ];
    let row = |line: &ScenarioRow| {
        let cost = line.cost(0).unwrap_or_default();
        let counted = line.counts(0);
        let optional = |count: Option<f64>| count.map_or_else(|| "-".to_owned(), figure);
        let mut row = vec![line.scenario.name().to_owned(), line.scenario.unit().per().to_owned()];
        row.extend([cost.client_cpu * 1e6, cost.server_cpu * 1e6].map(figure));
        row.extend(<[f64; 2]>::from(line.switches(0).unwrap_or_default()).map(figure));
        row.push(optional(counted.and_then(|counts| counts.client_calls)));
        row.push(optional(counted.and_then(|counts| counts.server_calls)));
        row.push(optional(counted.and_then(super::counters::Counts::all_requests)));
        row.push(growth(cost.client_growth));
        row
    };
    Grid {
        header: header.map(str::to_owned).to_vec(),
        words: 2,
        rows: lines.iter().map(row).collect(),
    }
}

/// A unit, with a mark where less is better.
fn unit(scenario: Scenario) -> String {
    let unit = scenario.unit();
    if unit.better() == "lower" {
        format!("{} (less)", unit.name())
    } else {
        unit.name().to_owned()
    }
}

fn growth(bytes: f64) -> String {
    let sign = if bytes < 0.0 { "-" } else { "" };
    format!("{sign}{}", show::bytes(bytes.abs() as u64))
}

/// Tables for a terminal.
pub fn tables(lines: &[ScenarioRow], uncounted: Option<&str>) -> String {
    let why = uncounted.map_or_else(String::new, |why| {
        format!("\nsystem calls and FUSE requests: not available, {why}")
    });
    format!("{}\n\n{}{why}", rates(lines).table(), costs(lines).table())
}

/// The setup of a measurement.
pub struct Circumstances<'a> {
    /// The machine.
    pub machine: &'a Machine,
    /// The amounts of work, and the disk.
    pub how: &'a str,
    /// Why system calls were not counted.
    pub uncounted: Option<&'a str>,
    /// Sides that were left out of a scenario, and why.
    pub left_out: &'a [String],
    /// Why results are missing.
    pub ended: Option<&'a str>,
}

/// Adds prose in lines of at most 100 columns; those of a list's item are indented.
fn paragraph(page: &mut String, prose: &str) {
    let indent = if prose.starts_with("- ") { "  " } else { "" };
    for line in prose.split('\n') {
        let mut width = 0;
        for word in line.split(' ') {
            let length = word.chars().count();
            if width > 0 && width + 1 + length > 100 {
                let _ = write!(page, "\n{indent}{word}");
                width = indent.len() + length;
            } else {
                let between = if width > 0 { " " } else { "" };
                let _ = write!(page, "{between}{word}");
                width += between.len() + length;
            }
        }
        page.push('\n');
    }
}

/// The page `bench/RESULTS.md`.
pub fn markdown(lines: &[ScenarioRow], around: &Circumstances<'_>) -> String {
    let mut text = format!("# Measured\n\n{}.\n", around.machine.line());
    paragraph(&mut text, &format!("{}\n", around.how));
    paragraph(
        &mut text,
        "Figures are medians. More is better, except where the unit says (less). A ratio is \
         Rialto's figure divided by the other's; the spread is the largest of all sides, \
         (largest - smallest) / median.\n",
    );
    if let Some(why) = around.ended {
        paragraph(&mut text, &format!("**Not all of it:** {why}.\n"));
    }
    text.push_str(&rates(lines).markdown());
    text.push_str("\n## What it costs\n\n");
    paragraph(
        &mut text,
        "Rialto's mount (client) and server, for each GiB of a large file or for each operation. \
         System calls and FUSE requests were counted in a round of their own.\n",
    );
    text.push_str(&costs(lines).markdown());
    if let Some(why) = around.uncounted {
        text.push('\n');
        paragraph(&mut text, &format!("System calls and FUSE requests are not available: {why}."));
    }
    text.push_str("\n## Scenarios\n\n");
    for line in lines {
        let about = format!("- `{}`: {}", line.scenario.name(), line.scenario.about());
        paragraph(&mut text, &about);
    }
    if !around.left_out.is_empty() {
        text.push_str("\n## Left out\n\n");
        around.left_out.iter().for_each(|what| paragraph(&mut text, &format!("- {what}")));
    }
    text
}

/// One line for each scenario: `rialto bench --list`.
pub fn list() -> Table {
    let row = |scenario: Scenario| {
        vec![scenario.name().to_owned(), unit(scenario), scenario.about().to_owned()]
    };
    show::table(&["scenario", "unit", "what"], &[], Scenario::ALL.into_iter().map(row).collect())
}

/// The amounts of work, in a sentence.
pub fn sizes(size: Size) -> String {
    let Size { files, archive_files, .. } = size;
    format!(
        "A large file is {}, small files are {files}, the tree has {archive_files}",
        show::bytes(size.file_bytes)
    )
}

/// Formats three significant figures, with thousands set apart.
fn figure(value: f64) -> String {
    match value.abs() {
        small if small < 0.995 => return format!("{value:.3}"),
        small if small < 9.95 => return format!("{value:.2}"),
        small if small < 100.0 => return format!("{value:.1}"),
        _ => {}
    }
    let digits = format!("{value:.0}");
    let mut out = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::super::cost::Cost;
    use super::*;

    #[test]
    fn figures_have_three_digits_that_count() {
        assert_eq!(figure(1_234_567.8), "1,234,568");
        assert_eq!(figure(99.94), "99.9");
        assert_eq!(figure(123.4), "123");
        assert_eq!(figure(1.234), "1.23");
        assert_eq!(figure(0.0123), "0.012");
        assert_eq!(growth(-2048.0), "-2.0 KiB");
    }

    #[test]
    fn sides_that_took_no_part_have_no_column() {
        let mut line = ScenarioRow::new(
            Scenario::DuCold,
            ["rialto", "native", "tcp", "gluster", "openafs"].into_iter(),
        );
        line.add(0, 2.0, Cost::default());
        line.add(1, 1.0, Cost::default());
        line.add(3, 4.0, Cost::default());
        line.put_over_limit(4);
        let grid = rates(std::slice::from_ref(&line));
        assert_eq!(
            grid.header,
            [
                "scenario", "unit", "rialto", "native", "ratio", "gluster", "ratio", "openafs",
                "ratio", "spread"
            ]
        );
        assert_eq!(
            grid.rows,
            [[
                "du-cold",
                "s (less)",
                "2.00",
                "1.00",
                "2.00",
                "4.00",
                "0.50",
                "over limit",
                "",
                "0 %"
            ]]
        );
        assert!(tables(&[line.clone()], Some("no perf")).contains("not available, no perf"));
        let machine = Machine::here(std::path::Path::new("/"));
        let around = Circumstances {
            machine: &machine,
            how: "how",
            uncounted: None,
            left_out: &[],
            ended: Some("interrupted"),
        };
        let page = markdown(&[line], &around);
        assert!(
            page.contains("| du-cold | s (less) |")
                && page.contains("**Not all of it:** interrupted.")
        );
    }

    #[test]
    fn prose_of_a_page_is_wrapped() {
        let mut page = String::new();
        paragraph(&mut page, &format!("- {}{}\n", "four ".repeat(19), "fives"));
        assert_eq!(page, format!("- {}four\n  fives\n\n", "four ".repeat(18)));
    }

    #[test]
    fn every_scenario_is_listed() {
        let text = list().to_string();
        assert!(Scenario::ALL.into_iter().all(|scenario| text.contains(scenario.name())), "{text}");
    }
}
