//! The rows of the call table with their arguments: which caller may make which call. The matches
//! have no default arm, so a call without a row does not build.
//!
//! A row says what a caller must be before anything else of the call is checked. Rows of *file* and
//! *record* leave the decision to where the file or the record is: the access model of the volume,
//! or owner and flags of the principal.

use types::{Call, CallAccess, CellCall, LevelAct, Name, PartitionNo, VolumeCall, VolumeId};

/// The callers that may make a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Row {
    /// Every caller.
    Anybody,
    /// Every caller that proved its identity, at any level.
    Proved,
    /// The access model of the file's volume decides.
    File,
    /// Owner and flags of the user or group decide ([`crate::perform`]).
    Record,
    /// An administrator, or one who administers all of these places; if empty: any place.
    Delegated(Vec<AdminScope>),
    /// An administrator.
    Administrator,
    /// An administrator; or a server whose key is not listed, to enter it ([`crate::may_enrol`]).
    Enrolment,
    /// A server of the cell.
    Server,
}

/// A place that a principal may administer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AdminScope {
    /// A volume of this server, by its name, or the partition that it is on.
    Volume(VolumeId),
    /// A volume of the cell, by the name of its group.
    Group(VolumeId),
    /// A volume that will have this name.
    Named(Name),
    /// A partition of this server; `None`: any.
    Partition(Option<PartitionNo>),
    /// This server.
    Server,
}

/// The standing of a caller, on which a row decides.
pub struct AdminStanding<'a> {
    /// The caller proved its identity.
    pub proved: bool,
    /// The superuser of a trusted connection, or a server by its certificate.
    pub server: bool,
    /// A certificate of the cell's own authority for a server whose key is not listed.
    pub enrolling: bool,
    /// In `system:administrators`.
    pub administrator: bool,
    /// Whether the caller administers a place; `None`: any place at all.
    pub covers: &'a dyn Fn(Option<&AdminScope>) -> bool,
}

impl Row {
    /// Whether a caller of this standing may make the call, as far as the table decides.
    pub fn allows(&self, standing: &AdminStanding<'_>) -> bool {
        let administrator = standing.administrator || standing.server;
        match self {
            Row::Anybody | Row::File | Row::Record => true,
            Row::Proved => standing.proved || administrator,
            Row::Delegated(places) if places.is_empty() => administrator || (standing.covers)(None),
            Row::Delegated(places) => {
                administrator || places.iter().all(|place| (standing.covers)(Some(place)))
            }
            Row::Administrator => administrator,
            Row::Enrolment => administrator || standing.enrolling,
            Row::Server => standing.server,
        }
    }

    /// Whether the call needs no check of its caller.
    pub fn is_open(&self) -> bool {
        matches!(self, Row::Anybody | Row::File | Row::Record)
    }
}

/// The row of a call: the rule in the call table, with the arguments.
pub fn row(call: &Call) -> Row {
    if call.is_on_behalf() {
        return Row::Server;
    }
    match call.traits().access {
        CallAccess::Anybody => Row::Anybody,
        CallAccess::File => Row::File,
        CallAccess::Proved => Row::Proved,
        CallAccess::Record => Row::Record,
        CallAccess::Admin => Row::Administrator,
        CallAccess::Enrolment => Row::Enrolment,
        CallAccess::Server => Row::Server,
        CallAccess::Scopes => match call {
            // Any user may read the progress of a check.
            Call::Scrub { start: false } => Row::Proved,
            // Any user may read the format of a partition.
            Call::Volume(VolumeCall::Format { raise: false, .. }) => Row::Proved,
            Call::Cell(CellCall::Level { act }) => match act {
                LevelAct::Ask => Row::Proved,
                LevelAct::Tell(_) => Row::Server,
                LevelAct::Raise(_) => Row::Administrator,
            },
            // Without known scopes only administrators may make the call.
            call => scopes(call).map_or(Row::Administrator, Row::Delegated),
        },
    }
}

/// The places that the caller must administer; `None`: the call has no scopes.
fn scopes(call: &Call) -> Option<Vec<AdminScope>> {
    match call {
        Call::SetQuota { fid, .. } => Some(vec![AdminScope::Volume(fid.volume)]),
        Call::Scrub { .. } => Some(vec![AdminScope::Server]),
        Call::Volume(call) => scopes_of_volume(call),
        Call::Cell(CellCall::PutGroup { group, .. }) => {
            Some(vec![AdminScope::Group(group.read_write), AdminScope::Named(group.name.clone())])
        }
        Call::Cell(CellCall::RemoveGroup { read_write, .. }) => {
            Some(vec![AdminScope::Group(*read_write)])
        }
        // Any place suffices.
        Call::Cell(CellCall::TakeNumbers { .. }) => Some(Vec::new()),
        _ => None,
    }
}

fn scopes_of_volume(call: &VolumeCall) -> Option<Vec<AdminScope>> {
    let scopes = match call {
        VolumeCall::List { .. }
        | VolumeCall::Examine { .. }
        | VolumeCall::Partitions
        | VolumeCall::Loads { .. }
        | VolumeCall::Standbys { .. }
        | VolumeCall::Inherit { .. } => return None,
        // The cell assigns the number, so it may know the volume.
        VolumeCall::Create { id, partition, name, .. } => {
            let places = [AdminScope::Named(name.clone()), AdminScope::Partition(*partition)];
            id.map(AdminScope::Group).into_iter().chain(places).collect()
        }
        // A stream is read without a check of rights to files.
        VolumeCall::Remove { id }
        | VolumeCall::SetFields { id, .. }
        | VolumeCall::Changes { id, .. }
        | VolumeCall::Hold { id, .. }
        | VolumeCall::Serve { id }
        | VolumeCall::Feed { id, .. } => vec![AdminScope::Volume(*id)],
        VolumeCall::Follow(follow) => vec![AdminScope::Volume(follow.id)],
        VolumeCall::FailOver { id, .. } => vec![AdminScope::Server, AdminScope::Group(*id)],
        VolumeCall::Format { partition, .. } | VolumeCall::Trust { partition } => {
            vec![AdminScope::Partition(Some(*partition))]
        }
        VolumeCall::StandBy { partition, tree } => {
            vec![AdminScope::Group(*tree), AdminScope::Partition(Some(*partition))]
        }
        VolumeCall::Rename { id, name }
        | VolumeCall::Clone { of: id, name, .. }
        | VolumeCall::TakeOver { copy: id, name, .. } => {
            vec![AdminScope::Volume(*id), AdminScope::Named(name.clone())]
        }
        VolumeCall::Apply { partition, .. } | VolumeCall::Finish { partition, .. } => {
            vec![AdminScope::Partition(Some(*partition)), AdminScope::Server]
        }
        VolumeCall::Beside { id, partition, .. } => {
            vec![AdminScope::Volume(*id), AdminScope::Partition(Some(*partition))]
        }
        // The owner of what comes is checked when the other server has sent its name.
        VolumeCall::Pull(pull) => vec![AdminScope::Server, AdminScope::Group(pull.tree)],
        VolumeCall::Tasks | VolumeCall::EndTask { .. } | VolumeCall::Incoming { .. } => {
            vec![AdminScope::Server]
        }
    };
    Some(scopes)
}
