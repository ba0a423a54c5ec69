//! The transport of the kernel's requests to a mount: the requested one, and the one that a running
//! mount uses.

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use clap::ValueEnum;
use local::failure::Failure;
use serde::{Deserialize, Serialize};

/// The transport set in the environment, for scripts that start many cells.
const VARIABLE: &str = "RIALTO_TRANSPORT";

/// A requested transport.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Transport {
    /// By io_uring where the kernel offers it to mounts, otherwise through the device.
    Auto,
    /// By io_uring, or no mount.
    Uring,
    /// Through /dev/fuse.
    Dev,
}

impl Transport {
    /// Returns the command line's choice, otherwise the environment's, otherwise `auto`.
    ///
    /// # Errors
    /// If the environment's value is no transport.
    pub fn choose(asked: Option<Self>) -> Result<Self, Failure> {
        let text = match (asked, std::env::var(VARIABLE)) {
            (Some(asked), _) => return Ok(asked),
            (None, Err(_)) => return Ok(Transport::Auto),
            (None, Ok(text)) => text,
        };
        Self::from_str(&text, false).map_err(|_| {
            Failure::new(
                format!("reading {VARIABLE}"),
                format!("'{text}' is not auto, uring or dev"),
            )
        })
    }

    /// The value as it is written on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Transport::Auto => "auto",
            Transport::Uring => "uring",
            Transport::Dev => "dev",
        }
    }
}

impl From<Transport> for mount::KernelTransport {
    fn from(transport: Transport) -> Self {
        match transport {
            Transport::Auto => mount::KernelTransport::Auto,
            Transport::Uring => mount::KernelTransport::Uring,
            Transport::Dev => mount::KernelTransport::Device,
        }
    }
}

impl From<mount::KernelTransport> for Transport {
    fn from(transport: mount::KernelTransport) -> Self {
        match transport {
            mount::KernelTransport::Auto => Transport::Auto,
            mount::KernelTransport::Uring => Transport::Uring,
            mount::KernelTransport::Device => Transport::Dev,
        }
    }
}

/// Facts that a running mount publishes in a file beside its pid file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MountFacts {
    /// The transport in use.
    pub transport: Transport,
    /// Why the kernel does not read and write large files itself; `None`: it does.
    #[serde(default)]
    pub no_passthrough: Option<String>,
    /// All volumes are shown in this one mount.
    #[serde(default)]
    pub flat: bool,
    /// The keeper that holds the mount for a successor of its process.
    #[serde(default)]
    pub kept: Kept,
    /// The directory of its disk cache.
    #[serde(default)]
    pub cache: Option<PathBuf>,
}

/// The keeper that holds a mount for a successor of its process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kept {
    /// Nothing: it ends with its process.
    #[default]
    No,
    /// A keeper of its own, which starts the successor.
    OwnKeeper,
    /// The keeper at this socket; a supervisor starts the successor.
    KeeperAt(PathBuf),
}

impl MountFacts {
    /// The facts of the mount behind `file`, if it published them.
    pub fn read(file: &Path) -> Option<MountFacts> {
        serde_json::from_slice(&fs::read(file).ok()?).ok()
    }

    /// Publishes the facts until the returned value is dropped.
    pub(crate) fn publish(self, file: &Path) -> io::Result<MountFactsFile> {
        // A mount that was killed may have left the file with another mode.
        let _ = fs::remove_file(file);
        let mut written =
            fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(file)?;
        written.write_all(&serde_json::to_vec(&self)?)?;
        Ok(MountFactsFile(file.to_owned()))
    }
}

/// Removes the file when dropped.
pub struct MountFactsFile(PathBuf);

impl Drop for MountFactsFile {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_mount_tells_is_read_until_it_ends() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("facts");
        assert_eq!(MountFacts::read(&file), None);
        let facts = MountFacts {
            transport: Transport::Uring,
            no_passthrough: Some("it is not root's".into()),
            flat: true,
            kept: Kept::KeeperAt("/run/keeper".into()),
            cache: Some("/cache".into()),
        };
        let published = facts.clone().publish(&file).unwrap();
        assert_eq!(MountFacts::read(&file), Some(facts));
        drop(published);
        assert_eq!(MountFacts::read(&file), None);
    }

    #[test]
    fn names_are_those_of_the_command_line() {
        for transport in Transport::value_variants() {
            assert_eq!(transport.to_possible_value().unwrap().get_name(), transport.name());
            assert_eq!(Transport::choose(Some(*transport)).ok(), Some(*transport));
        }
    }
}
