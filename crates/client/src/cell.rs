//! The cell as a client sees it: servers with a session for each, and where volumes are.

use std::sync::Arc;

use types::{Answer, Call, Caller, Fault, Name, VolumeCall, VolumeInfo, WhichVolume};

use crate::line::Line;
use crate::volume::Volume;
use crate::{CallError, Cancel, Remote};

/// See the head of the file.
pub struct Cell {
    home: Arc<Line>,
}

impl Cell {
    /// The cell that this server is of. Takes over what its session tells.
    pub fn new(home: Arc<dyn Remote>) -> Cell {
        Cell { home: Line::new(home) }
    }

    /// The session with the server that the cell was reached by.
    pub fn home(&self) -> &Arc<dyn Remote> {
        &self.home.remote
    }

    /// The volume of this name.
    ///
    /// # Errors
    /// `NoVolume` if there is none; otherwise as the servers say.
    pub fn find(&self, name: &Name, cancel: Option<&Cancel>) -> Result<Arc<Volume>, CallError> {
        let info = examine(&self.home, WhichVolume::Name(name.clone()), cancel)?;
        Ok(Arc::new(Volume::new(info.id, info.name, info.kind, Arc::clone(&self.home))))
    }

    /// Ends all sessions in good order.
    pub fn detach(&self) {
        self.home.remote.detach();
    }
}

/// What a server says about a volume.
fn examine(line: &Line, volume: WhichVolume, cancel: Option<&Cancel>) -> Result<VolumeInfo, CallError> {
    let call = Call::Volume(VolumeCall::Examine { volume });
    match line.remote.call(&Caller::ROOT, call, cancel)?.answer {
        // The others of its group are behind it.
        Answer::Volumes { volumes, .. } => volumes.into_iter().next().ok_or(CallError::Fault(Fault::NoVolume)),
        _ => Err(CallError::Fault(Fault::Invalid)),
    }
}
