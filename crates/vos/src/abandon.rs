//! Incomplete restores and copies: they are listed, and given up on request.
//!
//! Steps: the server gives up what it received, and its state is as before; the database's entry of
//! a volume that was to be made is removed, or the claim of a restore over a volume. Claims of
//! other operations stay: the same operation finishes them.

use types::{Answer, Finish, IncomingTree, ServerId, TaskState, VolumeCall, VolumeId, WhichVolume};

use crate::claim::{Claim, need_free};
use crate::{Job, Servers, VosError, dump_read_only, examine};

/// Operations that make a volume of received data.
const MAKES: [&str; 3] = ["restore", "copy", dump_read_only::OPERATION];
/// How the claims of operations begin that bring a volume into another state.
const OVER: &str = "restore over ";

/// Data that a server is receiving for a tree, or that an interrupted operation left there.
///
/// # Errors
/// The server's error.
pub fn incoming(servers: &dyn Servers, server: ServerId) -> Result<Vec<IncomingTree>, VosError> {
    match servers.call(server, VolumeCall::Incoming { tree: None })? {
        Answer::Incoming { trees, .. } => Ok(trees),
        _ => Err(VosError::Odd(servers.name(server))),
    }
}

/// Whether a task of the server fetches for the tree now.
///
/// # Errors
/// The server's error.
pub fn is_fetched(
    servers: &dyn Servers,
    server: ServerId,
    tree: VolumeId,
) -> Result<bool, VosError> {
    match servers.call(server, VolumeCall::Tasks)? {
        Answer::Tasks(tasks) => {
            Ok(tasks.iter().any(|task| task.tree == tree && task.state == TaskState::Runs))
        }
        _ => Err(VosError::Odd(servers.name(server))),
    }
}

/// Gives up the data that a server received for a tree.
///
/// # Errors
/// `NoVolume` if there is no such data; `Busy` while another leader works on it; `Unfit` while the
/// server fetches it; errors of the server and of the database.
pub fn abandon(job: &Job<'_>, server: ServerId, tree: VolumeId) -> Result<(), VosError> {
    let begun = incoming(job.servers, server)?
        .into_iter()
        .find(|one| one.tree == tree)
        .ok_or(VosError::NoVolume)?;
    let seen = job.servers.db().group_of(tree)?;
    let operation =
        seen.as_ref().and_then(|seen| Some(seen.record.busy.as_ref()?.operation.clone()));
    if let Some(seen) = &seen {
        need_free(job, &seen.record, operation.as_deref())?;
    }
    if is_fetched(job.servers, server, tree)? {
        return Err(VosError::Unfit("it is being fetched now".to_owned()));
    }
    let finish = Finish::Nothing;
    job.call(
        "the received data is given up",
        server,
        VolumeCall::Finish { partition: begun.partition, tree, finish },
    )?;
    let (Some(seen), Some(operation)) = (seen, operation) else { return Ok(()) };
    let read_only = operation == dump_read_only::OPERATION && seen.record.released_epoch == 0;
    let site = if read_only { seen.record.sites.first() } else { seen.record.read_write_site() };
    let is_here = site.is_some_and(|site| site.server == server);
    let shows_what_it_had =
        operation == dump_read_only::OPERATION && seen.record.released_epoch != 0;
    if begun.over && operation.starts_with(OVER) || shows_what_it_had {
        return Claim::of(job, seen, &operation)?.done("the claim is removed", |_| {}).map(drop);
    }
    let was_to_be_made = is_here && MAKES.contains(&operation.as_str());
    if was_to_be_made && examine(job.servers, server, WhichVolume::Id(tree))?.is_none() {
        return Claim::of(job, seen, &operation)?.forget();
    }
    job.note(format_args!("the claim of '{operation}' stays: do it again, or 'vos unlock' it"));
    Ok(())
}
