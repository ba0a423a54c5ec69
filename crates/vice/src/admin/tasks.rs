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
    all: Vec<(Pull, TaskInfo)>,
}

impl Tasks {
    /// Begins a task; or returns the running one of the same pull, with `false`.
    ///
    /// # Errors
    /// `Busy` if too many run, or one for the same tree, which it would disturb.
    pub fn begin(&mut self, pull: &Pull) -> Result<(TaskInfo, bool), Fault> {
        let runs = |task: &TaskInfo| task.state == TaskState::Runs;
        if let Some((_, task)) = self.all.iter().find(|(of, task)| of == pull && runs(task)) {
            return Ok((task.clone(), false));
        }
        let running = self.all.iter().filter(|(_, task)| runs(task)).count();
        if running >= RUNNING_MAX
            || self.all.iter().any(|(of, task)| of.tree == pull.tree && runs(task))
        {
            return Err(Fault::Busy);
        }
        while self.all.len() - running >= ENDED_MAX {
            let ended = self.all.iter().position(|(_, task)| !runs(task)).expect("that many ended");
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
        self.all.push((pull.clone(), task.clone()));
        Ok((task, true))
    }

    /// Stores the progress of a task.
    pub fn put(&mut self, now: &TaskInfo) {
        if let Some((_, task)) = self.all.iter_mut().find(|(_, task)| task.number == now.number) {
            task.clone_from(now);
        }
    }

    /// All tasks, running and ended.
    pub fn infos(&self) -> Vec<TaskInfo> {
        self.all.iter().map(|(_, task)| task.clone()).collect()
    }
}
