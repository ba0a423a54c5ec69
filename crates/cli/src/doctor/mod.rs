//! Faults of a machine or a cell, each with its remedy. Checks change nothing.

mod afs;
mod cell;
mod etcd;
mod machine;
pub mod network;
mod port;
mod space;

use std::path::Path;

use local::cell::CellDir;
use serde::Serialize;

/// Severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// As it should be.
    Ok,
    /// Works, but not for long, or not as well as it could.
    Warn,
    /// Prevents Rialto from working here.
    Fail,
}

/// Result of one check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The checked subject.
    pub check: &'static str,
    /// Its severity.
    pub level: Severity,
    /// The observed state.
    pub found: String,
    /// The remedy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mend: Option<String>,
}

impl Finding {
    /// A good state.
    pub fn ok(check: &'static str, found: impl Into<String>) -> Self {
        Finding { check, level: Severity::Ok, found: found.into(), mend: None }
    }

    /// A state to watch, with a remedy.
    pub fn warn(check: &'static str, found: impl Into<String>, mend: impl Into<String>) -> Self {
        Finding { check, level: Severity::Warn, found: found.into(), mend: Some(mend.into()) }
    }

    /// A fault, with its remedy.
    pub fn fail(check: &'static str, found: impl Into<String>, mend: impl Into<String>) -> Self {
        Finding { check, level: Severity::Fail, found: found.into(), mend: Some(mend.into()) }
    }
}

/// Runs all checks of this machine, of the mounts that `dir` records, and of `cell` if there is
/// one.
pub fn examine(dir: &Path, cell: Option<&CellDir>) -> Vec<Finding> {
    let mut findings = machine::examine();
    findings.extend(space::examine(dir, cell));
    if let Some(cell) = cell {
        findings.extend(cell::examine(cell));
    }
    findings
}
