//! The machine that a result comes from.

use std::path::Path;

use local::mounts;
use local::show;
use serde::Serialize;

/// Properties of the machine that results depend on.
#[derive(Clone, Debug, Serialize)]
pub struct Machine {
    /// Count and model of the processors.
    pub processors: String,
    /// Memory in bytes.
    pub memory_bytes: u64,
    /// The kernel's release.
    pub kernel: String,
    /// Type of the file system below all sides.
    pub file_system: String,
    /// Processes that wanted a processor in the last minute, before the measurement.
    pub load: String,
}

impl Machine {
    /// Describes this machine, measuring below `dir`.
    pub fn here(dir: &Path) -> Machine {
        let count = std::thread::available_parallelism().map_or(1, usize::from);
        let model = field("/proc/cpuinfo", "model name")
            .unwrap_or_else(|| std::env::consts::ARCH.to_owned());
        let kib = field("/proc/meminfo", "MemTotal")
            .and_then(|text| text.split(' ').next()?.parse::<u64>().ok());
        let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
        Machine {
            processors: format!("{count} x {model}"),
            memory_bytes: kib.unwrap_or(0) << 10,
            kernel: rustix::system::uname().release().to_string_lossy().into_owned(),
            file_system: mounts::below(dir)
                .ok()
                .flatten()
                .map_or_else(|| "unknown".to_owned(), |mounted| mounted.kind),
            load: load.split(' ').next().unwrap_or_default().to_owned(),
        }
    }

    /// The description in one line.
    pub fn line(&self) -> String {
        let memory = show::bytes(self.memory_bytes);
        let (kernel, kind, load) = (&self.kernel, &self.file_system, &self.load);
        format!(
            "{}, {memory} of memory, Linux {kernel}, {kind}, load {load} before",
            self.processors
        )
    }
}

/// The first line of `file` that starts with `name`, after its colon.
fn field(file: &str, name: &str) -> Option<String> {
    let text = std::fs::read_to_string(file).ok()?;
    let line = text.lines().find(|line| line.starts_with(name))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_has_processors_memory_and_a_file_system() {
        let machine = Machine::here(Path::new("/"));
        assert!(machine.memory_bytes > 1 << 20 && machine.file_system != "unknown", "{machine:?}");
        assert!(machine.line().contains(" x "));
    }
}
