//! Medians, ratios and costs of the measured figures.

use serde_json::{Map, Value, json};

use super::Scenario;
use super::cost::Cost;
use super::counters::Counts;

/// Index of the side that others are compared with, and of the disk itself.
const RIALTO: usize = 0;
const NATIVE: usize = 1;

/// One scenario's figures on all sides.
#[derive(Clone, Debug)]
pub struct ScenarioRow {
    /// The scenario of the figures.
    pub scenario: Scenario,
    sides: Vec<Figures>,
    /// Sides that exceeded their time limit.
    over_limit: Vec<usize>,
}

/// One side's figures.
#[derive(Clone, Debug)]
struct Figures {
    name: String,
    values: Vec<f64>,
    costs: Vec<Cost>,
    counts: Option<Counts>,
}

impl ScenarioRow {
    /// Makes an empty row. The first side is Rialto whatever its name is, the second the native
    /// directory.
    pub fn new<'a>(scenario: Scenario, names: impl Iterator<Item = &'a str>) -> Self {
        let figures = |name: &str| Figures {
            name: name.to_owned(),
            values: Vec::new(),
            costs: Vec::new(),
            counts: None,
        };
        ScenarioRow { scenario, sides: names.map(figures).collect(), over_limit: Vec::new() }
    }

    /// Adds a figure of side `side`, and its cost for each GiB or operation.
    pub fn add(&mut self, side: usize, value: f64, cost: Cost) {
        self.sides[side].values.push(value);
        self.sides[side].costs.push(cost);
    }

    /// Marks side `side` as over its time limit.
    pub fn put_over_limit(&mut self, side: usize) {
        self.over_limit.push(side);
    }

    /// Whether side `side` is over its time limit.
    pub fn is_over_limit(&self, side: usize) -> bool {
        self.over_limit.contains(&side)
    }

    /// Whether the row has any figure.
    pub fn is_measured(&self) -> bool {
        self.sides.iter().any(|side| !side.values.is_empty())
    }

    /// Adds the counts of side `side` for each GiB or operation.
    pub fn count(&mut self, side: usize, counts: Counts) {
        self.sides[side].counts = Some(counts);
    }

    /// The names of the sides.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.sides.iter().map(|side| side.name.as_str())
    }

    /// The median of side `side`.
    pub fn value(&self, side: usize) -> Option<f64> {
        median(&self.sides.get(side)?.values)
    }

    /// Rialto's median divided by that of `side`.
    pub fn ratio_to(&self, side: usize) -> Option<f64> {
        Some(self.value(RIALTO)? / self.value(side)?)
    }

    /// The largest spread of all sides.
    pub fn spread(&self) -> f64 {
        self.sides.iter().filter_map(|side| spread(&side.values)).fold(0.0, f64::max)
    }

    /// Costs of the processes behind `side` for each GiB or operation: medians. `None` if it has
    /// none.
    pub fn cost(&self, side: usize) -> Option<Cost> {
        let costs = &self.sides.get(side)?.costs;
        let of = |field: fn(&Cost) -> f64| median(&costs.iter().map(field).collect::<Vec<_>>());
        let cost = Cost {
            client_cpu: of(|cost| cost.client_cpu)?,
            server_cpu: of(|cost| cost.server_cpu)?,
            application_cpu: of(|cost| cost.application_cpu)?,
            client_switches: of(|cost| cost.client_switches)?,
            server_switches: of(|cost| cost.server_switches)?,
            client_growth: of(|cost| cost.client_growth)?,
            client_rss: of(|cost| cost.client_rss)?,
        };
        Some(cost)
    }

    /// Context switches of client and server for each GiB or operation: as the kernel counted them,
    /// otherwise as `/proc` shows them.
    pub fn switches(&self, side: usize) -> Option<(f64, f64)> {
        let (cost, counts) = (self.cost(side)?, self.counts(side));
        let client =
            counts.and_then(|counts| counts.client_switches).unwrap_or(cost.client_switches);
        let server =
            counts.and_then(|counts| counts.server_switches).unwrap_or(cost.server_switches);
        Some((client, server))
    }

    /// The counts of `side`.
    pub fn counts(&self, side: usize) -> Option<&Counts> {
        self.sides.get(side)?.counts.as_ref()
    }

    /// One object: figures are medians; `ratio` is `rialto / native`; `spread` is (largest -
    /// smallest) / median.
    pub fn to_json(&self) -> Value {
        let mut object = Map::new();
        let mut put = |name: &str, value: Value| object.insert(name.to_owned(), value);
        put("scenario", json!(self.scenario.name()));
        put("unit", json!(self.scenario.unit().name()));
        put("better", json!(self.scenario.unit().better()));
        put("rialto", rounded(self.value(RIALTO)));
        put("native", rounded(self.value(NATIVE)));
        put("ratio", rounded(self.ratio_to(NATIVE)));
        put("runs", json!(self.sides[RIALTO].values.len()));
        for (index, side) in self
            .sides
            .iter()
            .enumerate()
            .skip(NATIVE + 1)
            .filter(|(_, side)| !side.values.is_empty())
        {
            let name = side.name.replace('-', "_");
            put(&name, rounded(self.value(index)));
            put(&format!("ratio_{name}"), rounded(self.ratio_to(index)));
        }
        let keyed = |index: usize, side: &Figures| {
            if index == RIALTO { "rialto".to_owned() } else { side.name.replace('-', "_") }
        };
        let measured = || self.sides.iter().enumerate().filter(|(_, side)| !side.values.is_empty());
        let spreads =
            measured().map(|(index, side)| (keyed(index, side), rounded(spread(&side.values))));
        put("spread", Value::Object(spreads.collect()));
        let over: Vec<&str> =
            self.over_limit.iter().map(|side| self.sides[*side].name.as_str()).collect();
        if !over.is_empty() {
            put("over_limit", json!(over));
        }
        put("per", json!(self.scenario.unit().per()));
        let costs = measured()
            .filter_map(|(index, side)| Some((keyed(index, side), self.cost_json(index)?)));
        put("cost", Value::Object(costs.collect()));
        Value::Object(object)
    }

    fn cost_json(&self, side: usize) -> Option<Value> {
        let (cost, counts, switches) = (self.cost(side)?, self.counts(side), self.switches(side)?);
        let mut object = Map::new();
        let mut put = |name: &str, value: Value| object.insert(name.to_owned(), value);
        // Microseconds of one operation, with a few digits.
        let micro = |secs: f64| json!((secs * 1e8).round() / 1e2);
        put("application_cpu_us", micro(cost.application_cpu));
        // A side without a process of its own has no costs.
        if cost.client_rss > 0.0 || cost.server_cpu > 0.0 {
            put("client_cpu_us", micro(cost.client_cpu));
            put("server_cpu_us", micro(cost.server_cpu));
            put("client_switches", rounded(Some(switches.0)));
            put("server_switches", rounded(Some(switches.1)));
            put("client_rss_bytes", json!(cost.client_rss));
            put("client_growth_bytes", json!(cost.client_growth));
            put("client_syscalls", rounded(counts.and_then(|counts| counts.client_calls)));
            put("server_syscalls", rounded(counts.and_then(|counts| counts.server_calls)));
            put("fuse_requests", rounded(counts.and_then(Counts::all_requests)));
            let kinds = counts.and_then(|counts| counts.requests.as_ref()).into_iter().flatten();
            put(
                "fuse",
                Value::Object(
                    kinds
                        .map(|(kind, count)| ((*kind).to_owned(), rounded(Some(*count))))
                        .collect(),
                ),
            );
        }
        Some(Value::Object(object))
    }
}

/// Rounds to thousandths, or millionths if the result would be 0: a measured value is not shown as
/// nothing.
fn rounded(value: Option<f64>) -> Value {
    let parts = |value: f64| if value.abs() < 0.1 { 1e6 } else { 1e3 };
    value.map_or(Value::Null, |value| json!((value * parts(value)).round() / parts(value)))
}

fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => None,
        length if length % 2 == 1 => Some(sorted[middle]),
        _ => Some(f64::midpoint(sorted[middle - 1], sorted[middle])),
    }
}

fn spread(values: &[f64]) -> Option<f64> {
    let smallest = values.iter().copied().reduce(f64::min)?;
    let largest = values.iter().copied().reduce(f64::max)?;
    Some((largest - smallest) / median(values)?)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn medians_and_spreads() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), Some(2.5));
        assert_eq!(spread(&[8.0, 10.0, 13.0]), Some(0.5));
        assert_eq!(spread(&[]), None);
    }

    #[test]
    fn little_is_not_nothing() {
        assert_eq!(
            [0.958_73, 12.3456, 0.000_412_6].map(|value| rounded(Some(value))),
            [0.959, 12.346, 0.000_413]
        );
        assert_eq!(rounded(None), Value::Null);
    }

    #[test]
    fn a_line_has_the_fields_that_readers_rely_on() {
        let mut line = ScenarioRow::new(
            Scenario::Create4k,
            ["given", "native", "passthrough", "null-mount"].into_iter(),
        );
        let cost = Cost {
            client_cpu: 1.5e-6,
            client_switches: 4.0,
            client_rss: 4096.0,
            ..Cost::default()
        };
        for (side, rate) in [(0, 50.0), (1, 200.0), (2, 80.0), (0, 60.0), (1, 200.0), (2, 80.0)] {
            line.add(side, rate, if side == 1 { Cost::default() } else { cost });
        }
        let requests = Some(BTreeMap::from([("CREATE", 1.0), ("WRITE", 1.0)]));
        line.count(0, Counts { client_calls: Some(7.0), requests, ..Counts::default() });
        let value = line.to_json();
        let expected = json!({
            "scenario": "create-4k", "unit": "files/s", "better": "higher",
            "rialto": 55.0, "native": 200.0, "ratio": 0.275, "runs": 2,
            "passthrough": 80.0, "ratio_passthrough": 0.688,
            "spread": { "rialto": 0.182, "native": 0.0, "passthrough": 0.0 },
            "per": "op",
        });
        for (name, expected) in expected.as_object().unwrap() {
            assert_eq!(&value[name], expected, "{name}");
        }
        assert!(
            value.get("null_mount").is_none() && value.get("over_limit").is_none(),
            "it took no part"
        );
        line.put_over_limit(3);
        assert_eq!(line.to_json()["over_limit"], json!(["null-mount"]));
        let cost = &value["cost"]["rialto"];
        assert_eq!((&cost["client_cpu_us"], &cost["client_switches"]), (&json!(1.5), &json!(4.0)));
        assert_eq!((&cost["client_syscalls"], &cost["fuse_requests"]), (&json!(7.0), &json!(2.0)));
        assert_eq!(cost["fuse"], json!({ "CREATE": 1.0, "WRITE": 1.0 }));
        assert_eq!(cost["server_syscalls"], Value::Null);
        assert_eq!(value["cost"]["native"], json!({ "application_cpu_us": 0.0 }));
    }
}
