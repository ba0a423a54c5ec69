//! The sizes of the source for which the project has goals.
//!
//! Model: a line that is not blank counts once, as source or as test ([`FileKind`]). Assertions are
//! `assert…!` and `debug_assert…!` outside of tests.

use crate::items::{Items, methods_of_types};
use crate::{FileKind, RULES, Tree};

/// One size and its goal.
#[derive(Clone, Debug)]
pub struct Figure {
    /// The counted items, as shown.
    pub name: String,
    /// The present value, as shown.
    pub now: String,
    /// The goal; empty: there is none.
    pub bar: &'static str,
}

struct Lines {
    source: usize,
    test: usize,
    assertions: usize,
}

fn lines(tree: &Tree, of: impl Fn(&str) -> bool) -> Lines {
    let mut lines = Lines { source: 0, test: 0, assertions: 0 };
    for file in tree.rust.iter().filter(|file| of(&file.place)) {
        for (no, line) in file.text.lines().enumerate() {
            if line.trim().is_empty() {
                continue;
            }
            if file.is_test_line(no + 1) { lines.test += 1 } else { lines.source += 1 }
        }
        if file.kind == FileKind::Source {
            lines.assertions += Items::of(file).assertions;
        }
    }
    lines
}

#[allow(clippy::cast_precision_loss, reason = "numbers of lines, shown with two digits")]
fn ratio(part: usize, whole: usize) -> f64 {
    part as f64 / whole.max(1) as f64
}

/// All figures, in the order in which they are shown.
pub fn figures(tree: &Tree) -> Vec<Figure> {
    let all = lines(tree, |_| true);
    let client = lines(tree, |place| place == "client");
    let figure = |name: &str, now: String, bar| Figure { name: name.to_owned(), now, bar };
    let largest = methods_of_types(tree).into_iter().max_by_key(|(_, (number, _))| *number);
    let largest = largest.map_or(String::new(), |((place, name), (number, _))| {
        format!("{number} ({place}::{name})")
    });
    let mut shown = vec![
        figure("source lines", all.source.to_string(), ""),
        figure("test lines", all.test.to_string(), ""),
        figure("test lines / source lines", format!("{:.2}", ratio(all.test, all.source)), "0.60"),
        figure(
            "the same, crate client",
            format!("{:.2}", ratio(client.test, client.source)),
            "0.50",
        ),
        figure(
            "assertions / 1,000 source lines",
            format!("{:.1}", 1000.0 * ratio(all.assertions, all.source)),
            "2.5",
        ),
        figure("methods of the largest type", largest, "40"),
    ];
    shown.extend(RULES.iter().map(|rule| {
        figure(&format!("findings: {}", rule.name), (rule.find)(tree).len().to_string(), "0")
    }));
    shown
}
