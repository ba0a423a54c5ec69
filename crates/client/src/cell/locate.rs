//! Finding volumes. The client asks the cell database first; if that does not know the volume or
//! cannot be asked, it asks the home server.

use std::sync::Arc;

use types::{Fault, Name, WhichVolume};

use super::Cell;
use super::sites::sites;
use super::volume::RemoteVolume;
use crate::{CallError, Cancel};

/// Suffixes of the names of a group's volumes, behind the base name. Source: AFS.
const READ_ONLY: &[u8] = b".readonly";
const BACKUP: &[u8] = b".backup";
/// `vos snapshot` makes up these names; such snapshots are on the server of their group.
const SNAPSHOT: &[u8] = b".snapshot.";

/// The base name of the group, if the name has a suffix.
fn base(name: &Name) -> Option<Name> {
    let bytes = name.as_bytes();
    let cut = bytes.strip_suffix(READ_ONLY).or_else(|| bytes.strip_suffix(BACKUP)).or_else(|| {
        let at = bytes.windows(SNAPSHOT.len()).position(|window| window == SNAPSHOT)?;
        Some(&bytes[..at])
    });
    Name::new(cut.unwrap_or(bytes)).ok()
}

impl Cell {
    /// Finds the volume of this name.
    ///
    /// # Errors
    /// `NoVolume` if there is none; otherwise the servers' errors.
    pub fn find(
        self: &Arc<Self>,
        name: &Name,
        cancel: Option<&Cancel>,
    ) -> Result<Arc<RemoteVolume>, CallError> {
        self.know_servers(cancel);
        let group = base(name).and_then(|base| self.group(WhichVolume::Name(base), cancel).ok());
        let which = WhichVolume::Name(name.clone());
        let mut there = Vec::new();
        if let Some(group) = group {
            there = sites(&group, name.as_bytes().ends_with(READ_ONLY));
            let epoch = if name.as_bytes().ends_with(READ_ONLY) { group.released_epoch } else { 0 };
            if let Some((connection, info)) = self.nearest(&there, &which, epoch, cancel) {
                return Ok(RemoteVolume::new(self, info, connection, Some(group)));
            }
        }
        match self.home.examine(which, cancel) {
            Ok(info) => Ok(RemoteVolume::new(self, info, Arc::clone(&self.home), None)),
            // The volume is known, but none of its servers can be reached.
            Err(CallError::Fault(Fault::NoVolume))
                if there.iter().any(|site| !self.is_home(*site)) =>
            {
                Err(CallError::TimedOut)
            }
            Err(error) => Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn volumes_of_a_group_are_known_by_their_endings() {
        let name = |text: &str| Name::new(text.as_bytes()).unwrap();
        for (volume, group) in [
            ("home.alice", "home.alice"),
            ("home.alice.readonly", "home.alice"),
            ("home.alice.backup", "home.alice"),
            ("home.alice.snapshot.20261122T100000Z", "home.alice"),
            ("readonly", "readonly"),
        ] {
            assert_eq!(base(&name(volume)), Some(name(group)), "{volume}");
        }
        assert_eq!(base(&name(".readonly")), None);
    }
}
