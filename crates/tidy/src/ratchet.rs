//! The permitted findings of each rule, by crate: `ratchet.toml`.
//!
//! Model: a table for each rule, with a number for each crate or folder. More findings than that
//! are an error; fewer are one too, until the file has the lower number. `tidy --lower` writes it.

use std::collections::BTreeMap;
use std::path::Path;
use std::{fmt, fs, io};

use crate::{RULES, TidyFinding, Tree};

/// Numbers of findings by rule and place.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Deserialize, serde::Serialize)]
#[serde(transparent)]
pub struct Ratchet(BTreeMap<String, BTreeMap<String, usize>>);

/// A number of findings that differs from the one in the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The name of the rule.
    pub rule: &'static str,
    /// The crate or folder.
    pub place: String,
    /// The number in the file.
    pub allowed: usize,
    /// The findings in the tree.
    pub found: Vec<TidyFinding>,
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (rule, place, found) = (self.rule, &self.place, self.found.len());
        if found < self.allowed {
            return write!(
                f,
                "{rule} in {place}: {found} findings instead of {}: run 'cargo run -p tidy -- \
                    --lower'",
                self.allowed
            );
        }
        write!(f, "{rule} in {place}: {found} findings, {} are allowed:", self.allowed)?;
        self.found.iter().try_for_each(|one| write!(f, "\n  {one}"))
    }
}

impl Ratchet {
    /// Reads the numbers of a file.
    ///
    /// # Errors
    /// Those of the file system; `InvalidData` if the file is not a table of tables of numbers.
    pub fn read(path: &Path) -> io::Result<Ratchet> {
        let text = fs::read_to_string(path)?;
        toml::from_str(&text).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
    }

    /// Counts the findings in the tree.
    pub fn of(tree: &Tree) -> Ratchet {
        let mut numbers = BTreeMap::new();
        for rule in RULES {
            let mut by_place: BTreeMap<String, usize> = BTreeMap::new();
            for finding in (rule.find)(tree) {
                *by_place.entry(finding.place).or_default() += 1;
            }
            if !by_place.is_empty() {
                numbers.insert(rule.name.to_owned(), by_place);
            }
        }
        Ratchet(numbers)
    }

    /// The file's text.
    pub fn text(&self) -> String {
        let numbers = toml::to_string(self).unwrap_or_default();
        format!(
            "# Findings that are still allowed, by rule and crate. They may only fall.\n\n{numbers}"
        )
    }

    /// The differences between the tree and the file.
    pub fn changes(&self, tree: &Tree) -> Vec<Change> {
        let mut changes = Vec::new();
        for rule in RULES {
            let mut by_place: BTreeMap<String, Vec<TidyFinding>> = BTreeMap::new();
            for finding in (rule.find)(tree) {
                by_place.entry(finding.place.clone()).or_default().push(finding);
            }
            let allowed = self.0.get(rule.name).cloned().unwrap_or_default();
            for place in allowed.keys() {
                by_place.entry(place.clone()).or_default();
            }
            for (place, found) in by_place {
                let allowed = allowed.get(&place).copied().unwrap_or_default();
                if allowed != found.len() {
                    changes.push(Change { rule: rule.name, place, allowed, found });
                }
            }
        }
        changes
    }
}
