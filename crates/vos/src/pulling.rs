//! Orders one server to fetch a volume from another, and waits for it.

use std::net::SocketAddr;
use std::time::Duration;

use types::{
    Answer, Fault, Finish, PartitionNo, Pull, ServerId, TaskInfo, TaskState, VolumeCall, VolumeId,
};

use crate::{JobEvent, Servers, VosError};

/// Interval between queries about a fetch: short, since small volumes are done soon.
const POLL_INTERVAL: Duration = Duration::from_millis(2);
const LOOK_MAX: Duration = Duration::from_millis(500);
/// A fetch that receives nothing for this long has failed: its server would have reported an error.
const STALLED: Duration = Duration::from_secs(120);

/// An order to fetch.
pub(crate) struct PullOrder {
    pub by: ServerId,
    pub partition: Option<PartitionNo>,
    pub from: ServerId,
    /// The volume at the source.
    pub id: VolumeId,
    /// The tree at the destination.
    pub tree: VolumeId,
    pub finish: Finish,
}

/// Waits until the volume is fetched.
///
/// # Errors
/// Errors of the servers; `Unfit` with the reason that the fetching server reports.
pub(crate) fn pull(
    servers: &dyn Servers,
    order: PullOrder,
    tell: &(dyn Fn(JobEvent<'_>) + Sync),
) -> Result<TaskInfo, VosError> {
    // A server reads its own volumes without an address.
    let from = if order.from == order.by { Vec::new() } else { addresses(servers, order.from)? };
    let PullOrder { by, partition, id, tree, finish, .. } = order;
    finished(
        servers,
        by,
        &VolumeCall::Pull(Box::new(Pull { from, id, partition, tree, finish })),
        tell,
    )
}

/// Begins a task at a server, and waits until it is done.
///
/// # Errors
/// As [`pull`].
pub(crate) fn finished(
    servers: &dyn Servers,
    by: ServerId,
    call: &VolumeCall,
    tell: &(dyn Fn(JobEvent<'_>) + Sync),
) -> Result<TaskInfo, VosError> {
    let mut task = one_task(servers, by, begin(servers, by, call)?, None)?;
    let name = servers.name(by);
    let (mut pause, mut silent) = (POLL_INTERVAL, Duration::ZERO);
    loop {
        match task.state {
            TaskState::Done => return Ok(task),
            TaskState::Failed => return Err(VosError::Unfit(format!("{name}: {}", task.text))),
            TaskState::Runs if silent > STALLED => {
                return Err(VosError::Unfit(format!("{name} receives nothing")));
            }
            TaskState::Runs => {}
        }
        servers.pause(pause);
        let next = one_task(servers, by, servers.call(by, VolumeCall::Tasks)?, Some(task.number))?;
        silent = if next.bytes == task.bytes { silent + pause } else { Duration::ZERO };
        pause = (pause * 3 / 2).min(LOOK_MAX);
        task = next;
        tell(JobEvent::Progress {
            server: &name,
            bytes: task.bytes,
            total_bytes: task.total_bytes,
        });
    }
}

/// Waits until a server receives nothing for a tree: tasks of an interrupted operation end first.
pub(crate) fn wait_idle(
    servers: &dyn Servers,
    server: ServerId,
    tree: VolumeId,
) -> Result<(), VosError> {
    let (mut pause, mut waited) = (POLL_INTERVAL, Duration::ZERO);
    loop {
        let Answer::Tasks(tasks) = servers.call(server, VolumeCall::Tasks)? else {
            return Err(VosError::Odd(servers.name(server)));
        };
        let runs = tasks.iter().any(|task| task.tree == tree && task.state == TaskState::Runs);
        if !runs {
            return Ok(());
        }
        if waited > STALLED {
            return Err(VosError::Unfit(format!("{} fetches it still", servers.name(server))));
        }
        servers.pause(pause);
        waited += pause;
        pause = (pause * 3 / 2).min(LOOK_MAX);
    }
}

/// Begins a task once no task of an interrupted operation runs there.
fn begin(servers: &dyn Servers, by: ServerId, call: &VolumeCall) -> Result<Answer, VosError> {
    let (mut pause, mut waited) = (POLL_INTERVAL, Duration::ZERO);
    loop {
        match servers.call(by, call.clone()) {
            Err(VosError::Refused { fault: Fault::Busy, .. }) if waited < STALLED => {}
            answer => return answer,
        }
        servers.pause(pause);
        waited += pause;
        pause = (pause * 3 / 2).min(LOOK_MAX);
    }
}

fn one_task(
    servers: &dyn Servers,
    server: ServerId,
    answer: Answer,
    number: Option<u64>,
) -> Result<TaskInfo, VosError> {
    let Answer::Tasks(tasks) = answer else { return Err(VosError::Odd(servers.name(server))) };
    let found = tasks.into_iter().find(|task| number.is_none_or(|number| number == task.number));
    let away = || VosError::Away {
        server: servers.name(server),
        why: "it has lost the order to fetch".to_owned(),
    };
    found.ok_or_else(away)
}

/// The addresses at which other servers reach a server.
///
/// # Errors
/// `Unfit` if it has none.
pub(crate) fn addresses(
    servers: &dyn Servers,
    server: ServerId,
) -> Result<Vec<SocketAddr>, VosError> {
    let known = servers.db().servers()?.into_iter().find(|seen| seen.record.id == server);
    let addresses = known.map(|seen| seen.record.addresses).unwrap_or_default();
    if addresses.is_empty() {
        let name = servers.name(server);
        return Err(VosError::Unfit(format!(
            "{name} cannot be reached by other servers: it needs 'listen' in its cell.toml"
        )));
    }
    Ok(addresses)
}
