//! Partitions of the first format: brought to this one when they are opened.
//!
//! The first format had read-write volumes alone, and no records of their names. Whatever is interrupted here is done again at the next start,
//! since FORMAT is written last.

use types::VolumeId;

use crate::engine::{Batch, Engine};
use crate::key::{self, kind};
use crate::volume::Result;
use crate::{Partition, record};

impl Partition {
    /// Gives each volume the record of its name, and removes what a crash in the middle of making a volume left, which this format does not know.
    pub(crate) fn upgrade(&self) -> Result<()> {
        let engine = &self.0.media.engine;
        let mut batch = Batch::default();
        self.each(&[kind::VOLUME], &mut |key, value| {
            let Some(id) = key::number_at(key, 0).map(VolumeId) else { return Ok(()) };
            // A damaged header has no name; scrub finds it.
            let Ok(header) = crate::header::TreeHeader::decode(key, value) else { return Ok(()) };
            if engine.get(&key::usage(id))?.is_none() {
                batch.delete(key);
                return Ok(());
            }
            let name = key::name(header.name.as_bytes());
            batch.put(&name, &record::encode_numbers(&name, &[id.0]));
            Ok(())
        })?;
        if !batch.is_empty() {
            self.0.media.apply(&batch)?;
        }
        self.0.media.sync()
    }
}
