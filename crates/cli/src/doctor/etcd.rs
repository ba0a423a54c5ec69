//! The members of etcd, where etcd has the cell's database.

use std::sync::Arc;

use celldb::{CellError, Etcd, EtcdMember};
use local::cell::CellDir;
use server::CellPlace;

use super::Finding;

const CHECK: &str = "etcd";
/// Bytes above which a database comes near the quota that etcd has by default, 2 GiB.
const BYTES_MAX: u64 = 3 << 29;

/// Asks each member, and all of them together.
pub(super) fn examine(cell: &CellDir) -> Vec<Finding> {
    let CellPlace::Etcd(config) = cell.database() else { return Vec::new() };
    let db = match Etcd::new(&config, &cell.config.name, Arc::default()) {
        Ok(db) => db,
        Err(error) => {
            let mend = "mend the part [etcd] of cell.toml, or that file";
            return vec![Finding::fail(CHECK, error.to_string(), mend)];
        }
    };
    let mut findings: Vec<Finding> = db.members().iter().map(member).collect();
    findings.push(together(&db));
    findings
}

fn together(db: &Etcd) -> Finding {
    match db.check() {
        Ok(()) => Finding::ok(CHECK, "it has a quorum, and the database of this cell"),
        Err(error @ CellError::NoQuorum(_)) => Finding::fail(
            CHECK,
            error.to_string(),
            "start the members that are down: more than half of them must run; 'etcdctl endpoint \
             status --cluster' shows them",
        ),
        Err(error) => {
            let mend = "'rialto cell migrate --help' says how a database comes to etcd and back";
            Finding::fail(CHECK, error.to_string(), mend)
        }
    }
}

fn member(member: &EtcdMember) -> Finding {
    let address = &member.address;
    match &member.state {
        Err(why) => Finding::warn(
            CHECK,
            format!("{address} does not answer: {why}"),
            "start that member; the others do its work while more than half of them run",
        ),
        Ok(state) if !state.has_leader => Finding::warn(
            CHECK,
            format!("{address} knows no leader"),
            "check its connections to the other members",
        ),
        Ok(state) if state.is_full => Finding::fail(
            CHECK,
            format!("{address} has no space: it refuses changes"),
            "compact and defragment it, then 'etcdctl alarm disarm' (docs/operations/etcd.md)",
        ),
        Ok(state) if state.bytes > BYTES_MAX => Finding::warn(
            CHECK,
            format!("{address} has {} MiB", state.bytes >> 20),
            "its quota is 2048 MiB if --quota-backend-bytes says nothing else: let it compact \
             (docs/operations/etcd.md)",
        ),
        Ok(state) => {
            let (version, size) = (&state.version, state.bytes >> 10);
            Finding::ok(CHECK, format!("{address} answers: version {version}, {size} KiB"))
        }
    }
}
