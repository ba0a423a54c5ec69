//! From measured rates to medians, ratios, and how they are shown.

use std::fmt::Write as _;

use comfy_table::Table;
use serde_json::{Map, Value, json};

use super::{Machine, Scenario};
use crate::show;

/// Which side is which in [`Line`].
const RIALTO: usize = 0;
const NATIVE: usize = 1;
const PASSTHROUGH: usize = 2;

/// One scenario's rates on all sides.
#[derive(Clone, Debug)]
pub struct Line {
    /// What was measured.
    pub scenario: Scenario,
    rates: Vec<Vec<f64>>,
}

impl Line {
    /// Nothing measured yet.
    pub fn new(scenario: Scenario, sides: usize) -> Self {
        Line { scenario, rates: vec![Vec::new(); sides] }
    }

    /// One more rate of side `side`.
    pub fn add(&mut self, side: usize, rate: f64) {
        self.rates[side].push(rate);
    }

    fn median(&self, side: usize) -> Option<f64> {
        median(self.rates.get(side)?)
    }

    fn ratio_to(&self, side: usize) -> Option<f64> {
        Some(self.median(RIALTO)? / self.median(side)?)
    }

    /// One object: rates are medians; `ratio` is `rialto / native`; `spread` is (largest - smallest) / median.
    pub fn to_json(&self) -> Value {
        let mut object = Map::new();
        let mut put = |name: &str, value: Value| object.insert(name.to_owned(), value);
        put("scenario", json!(self.scenario.name()));
        put("unit", json!(self.scenario.unit()));
        put("better", json!("higher"));
        put("rialto", rounded(self.median(RIALTO)));
        put("native", rounded(self.median(NATIVE)));
        put("ratio", rounded(self.ratio_to(NATIVE)));
        put("runs", json!(self.rates[RIALTO].len()));
        if self.rates.len() > PASSTHROUGH {
            put("passthrough", rounded(self.median(PASSTHROUGH)));
            put("ratio_passthrough", rounded(self.ratio_to(PASSTHROUGH)));
        }
        let spreads: Vec<Value> = self.rates.iter().map(|rates| rounded(spread(rates))).collect();
        let names = ["rialto", "native", "passthrough"];
        put("spread", names.iter().zip(spreads).map(|(name, value)| (*name, value)).collect());
        Value::Object(object)
    }

    fn cells(&self) -> Vec<String> {
        let rate = |side| self.median(side).map_or_else(String::new, figure);
        let ratio = |side| self.ratio_to(side).map_or_else(String::new, |ratio| format!("{ratio:.2}"));
        let widest = self.rates.iter().filter_map(|rates| spread(rates)).fold(0.0, f64::max);
        let mut cells = vec![self.scenario.name().to_owned(), self.scenario.unit().to_owned()];
        cells.extend([rate(RIALTO), rate(NATIVE), ratio(NATIVE)]);
        if self.rates.len() > PASSTHROUGH {
            cells.extend([rate(PASSTHROUGH), ratio(PASSTHROUGH)]);
        }
        cells.push(format!("{:.0} %", widest * 100.0));
        cells
    }
}

fn header(lines: &[Line]) -> Vec<&'static str> {
    let mut header = vec!["scenario", "unit", "rialto", "native", "ratio"];
    if lines.first().is_some_and(|line| line.rates.len() > PASSTHROUGH) {
        header.extend(["passthrough", "ratio to it"]);
    }
    header.push("spread");
    header
}

/// For people at a terminal.
pub fn table(lines: &[Line]) -> Table {
    let header = header(lines);
    let numbers: Vec<usize> = (2..header.len()).collect();
    show::table(&header, &numbers, lines.iter().map(Line::cells).collect())
}

/// For `bench/RESULTS.md`.
pub fn markdown(lines: &[Line], machine: &Machine, how: &str) -> String {
    let header = header(lines);
    let mut text = format!(
        "# Measured\n\n{}.\n{how}\n\nRates are medians, higher is better; a ratio is Rialto's rate divided by the \
         other's; the spread is the largest of all sides, (largest - smallest) / median.\n\n",
        machine.line()
    );
    let rule = (0..header.len()).map(|column| if column < 2 { "---" } else { "---:" }).collect::<Vec<_>>();
    for row in [header.join(" | "), rule.join(" | ")].into_iter().chain(lines.iter().map(|l| l.cells().join(" | "))) {
        let _ = writeln!(text, "| {row} |");
    }
    text.push_str("\nScenarios:\n\n");
    for line in lines {
        let _ = writeln!(text, "- `{}`: {}", line.scenario.name(), line.scenario.about());
    }
    text
}

/// Three figures that count, with thousands set apart.
fn figure(rate: f64) -> String {
    if rate < 100.0 {
        return format!("{rate:.1}");
    }
    let digits = format!("{rate:.0}");
    let mut out = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

fn rounded(value: Option<f64>) -> Value {
    value.map_or(Value::Null, |value| json!((value * 1000.0).round() / 1000.0))
}

fn median(rates: &[f64]) -> Option<f64> {
    let mut sorted = rates.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => None,
        length if length % 2 == 1 => Some(sorted[middle]),
        _ => Some(f64::midpoint(sorted[middle - 1], sorted[middle])),
    }
}

fn spread(rates: &[f64]) -> Option<f64> {
    let smallest = rates.iter().copied().reduce(f64::min)?;
    let largest = rates.iter().copied().reduce(f64::max)?;
    Some((largest - smallest) / median(rates)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_and_spreads() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), Some(2.5));
        assert_eq!(spread(&[8.0, 10.0, 13.0]), Some(0.5));
        assert_eq!(figure(1_234_567.8), "1,234,568");
        assert_eq!(figure(99.94), "99.9");
        assert_eq!(figure(123.4), "123");
    }

    #[test]
    fn a_line_has_the_fields_that_readers_rely_on() {
        let mut line = Line::new(Scenario::Create4k, 3);
        for (side, rate) in [(0, 50.0), (1, 200.0), (2, 80.0), (0, 60.0), (1, 200.0), (2, 80.0)] {
            line.add(side, rate);
        }
        let expected = json!({
            "scenario": "create-4k", "unit": "files/s", "better": "higher",
            "rialto": 55.0, "native": 200.0, "ratio": 0.275, "runs": 2,
            "passthrough": 80.0, "ratio_passthrough": 0.688,
            "spread": { "rialto": 0.182, "native": 0.0, "passthrough": 0.0 },
        });
        assert_eq!(line.to_json(), expected);
        assert!(table(&[line.clone()]).to_string().contains("create-4k"));
        assert!(
            markdown(&[line], &Machine::here(std::path::Path::new("/")), "how").contains("| create-4k | files/s |")
        );
    }
}
