//! Ends a task of a server: the fetch of a volume that goes on there.
//!
//! The operation that ordered it is refused then, and undoes what it had begun, or is repeated.
//! Data that came stays until the same fetch goes on, or until it is given up (`abandon.rs`).

use std::time::Duration;

use types::{Answer, Fault, ServerId, TaskInfo, TaskState, VolumeCall};

use crate::{Job, VosError};

const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// A fetch notices its end after the step that it does.
const ENDED_WITHIN: Duration = Duration::from_secs(40);

/// Ends a running task, and returns it as it ended; `None` in a dry run. One that is over stays as
/// it is.
///
/// # Errors
/// `Unfit` if the server has no task of this number, or it does not end in time; errors of the
/// server.
pub fn end_task(
    job: &Job<'_>,
    server: ServerId,
    number: u64,
) -> Result<Option<TaskInfo>, VosError> {
    let unknown = || {
        let name = job.servers.name(server);
        VosError::Unfit(format!("{name} has no transaction {number}: 'vos status' lists them"))
    };
    let call = VolumeCall::EndTask { number };
    let mut answer = match job.call(format_args!("end the task {number}"), server, call) {
        Err(VosError::Refused { fault: Fault::NotFound, .. }) => return Err(unknown()),
        answer => match answer? {
            Some(answer) => answer,
            None => return Ok(None),
        },
    };
    let mut waited = Duration::ZERO;
    loop {
        let Answer::Tasks(tasks) = answer else {
            return Err(VosError::Odd(job.servers.name(server)));
        };
        let task = tasks.into_iter().find(|task| task.number == number).ok_or_else(unknown)?;
        if task.state != TaskState::Runs {
            return Ok(Some(task));
        }
        if waited > ENDED_WITHIN {
            return Err(VosError::Unfit("it has not ended yet".to_owned()));
        }
        job.servers.pause(POLL_INTERVAL);
        waited += POLL_INTERVAL;
        answer = job.servers.call(server, VolumeCall::Tasks)?;
    }
}
