//! The pulls of one server instance: those that run, and the results of recent ones.

use types::{Fault, Pull, TaskInfo, TaskState};

/// Pulls that run or wait for their turn.
const RUNNING_MAX: usize = 256;
/// Ended tasks that reports still contain.
const ENDED_MAX: usize = 64;

/// See the head of the file.
#[derive(Default)]
pub struct Tasks {
    last: u64,
    all: Vec<KnownTask>,
}

struct KnownTask {
    pull: Pull,
    task: TaskInfo,
    /// An administrator ended it, and its driver has not seen that yet.
    is_to_end: bool,
}

impl KnownTask {
    fn runs(&self) -> bool {
        self.task.state == TaskState::Runs
    }
}

impl Tasks {
    /// Begins a task; or returns the running one of the same pull, with `false`.
    ///
    /// # Errors
    /// `Busy` if too many run, or one for the same tree, which it would disturb.
    pub fn begin(&mut self, pull: &Pull) -> Result<(TaskInfo, bool), Fault> {
        if let Some(known) = self.all.iter().find(|known| known.pull == *pull && known.runs()) {
            return Ok((known.task.clone(), false));
        }
        let running = self.all.iter().filter(|known| known.runs()).count();
        if running >= RUNNING_MAX
            || self.all.iter().any(|known| known.pull.tree == pull.tree && known.runs())
        {
            return Err(Fault::Busy);
        }
        while self.all.len() - running >= ENDED_MAX {
            let ended = self.all.iter().position(|known| !known.runs()).expect("that many ended");
            self.all.remove(ended);
        }
        self.last += 1;
        let task = TaskInfo {
            number: self.last,
            tree: pull.tree,
            state: TaskState::Runs,
            since: 0,
            epoch: 0,
            bytes: 0,
            total_bytes: 0,
            text: format!("pull of volume {}", pull.id.0),
        };
        self.all.push(KnownTask { pull: pull.clone(), task: task.clone(), is_to_end: false });
        Ok((task, true))
    }

    /// Stores the progress of a task.
    pub fn put(&mut self, now: &TaskInfo) {
        if let Some(known) = self.all.iter_mut().find(|known| known.task.number == now.number) {
            known.task.clone_from(now);
        }
    }

    /// Marks a running task, so that its driver ends it; one that is over stays as it is.
    ///
    /// # Errors
    /// `NotFound` if there is none of this number.
    pub fn end(&mut self, number: u64) -> Result<TaskInfo, Fault> {
        let known = self.all.iter_mut().find(|known| known.task.number == number);
        let known = known.ok_or(Fault::NotFound)?;
        known.is_to_end = known.runs();
        Ok(known.task.clone())
    }

    /// Whether the driver of this task has to end it.
    pub fn is_to_end(&self, number: u64) -> bool {
        self.all.iter().any(|known| known.task.number == number && known.is_to_end && known.runs())
    }

    /// All tasks, running and ended.
    pub fn infos(&self) -> Vec<TaskInfo> {
        self.all.iter().map(|known| known.task.clone()).collect()
    }
}
