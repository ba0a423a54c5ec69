//! What can be wrong with a machine or a cell, each with how to mend it. Checks only look; they
//! change nothing.

mod cell;
mod machine;
mod port;

use local::cell::CellDir;
use serde::Serialize;

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// As it should be.
    Ok,
    /// Works, but will not for long, or not as well as it could.
    Warn,
    /// Keeps Rialto from working here.
    Fail,
}

/// What one check found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// What was checked.
    pub check: &'static str,
    /// How bad it is.
    pub level: Severity,
    /// What was found.
    pub found: String,
    /// What to do about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mend: Option<String>,
}

impl Finding {
    /// All is well.
    pub fn ok(check: &'static str, found: impl Into<String>) -> Self {
        Finding { check, level: Severity::Ok, found: found.into(), mend: None }
    }

    /// Something to keep an eye on.
    pub fn warn(check: &'static str, found: impl Into<String>, mend: impl Into<String>) -> Self {
        Finding { check, level: Severity::Warn, found: found.into(), mend: Some(mend.into()) }
    }

    /// Something that must be mended.
    pub fn fail(check: &'static str, found: impl Into<String>, mend: impl Into<String>) -> Self {
        Finding { check, level: Severity::Fail, found: found.into(), mend: Some(mend.into()) }
    }
}

/// Everything that can be looked at on this machine, and in `cell` if there is one.
pub fn examine(cell: Option<&CellDir>) -> Vec<Finding> {
    let mut findings = machine::examine();
    if let Some(cell) = cell {
        findings.extend(cell::examine(cell));
    }
    findings
}
