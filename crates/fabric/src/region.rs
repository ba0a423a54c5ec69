//! Regions: memory of a client that its server maps, by the handles that the client chose.

use std::collections::HashMap;
use std::sync::Arc;

use mem::shared::SharedMemory;
use rustix::fd::OwnedFd;

/// Regions of one connection.
pub const REGIONS_MAX: usize = 64;
/// Bytes of all regions of one connection: address space of the server.
pub const REGION_BYTES_MAX: usize = 16 << 30;

/// Why memory was not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RegionError {
    /// The handle is in use, or there are too many regions or bytes, of the connection or of its
    /// client's host.
    #[error("too many regions, or one handle for two")]
    TooMany,
    /// It ends, but a request that names it is not answered, or it is unknown.
    #[error("a region ends that is in use or unknown")]
    InUse,
    /// It is no sealed file in memory (RG-1), or cannot be mapped.
    #[error("no memory that a server can map safely")]
    Unsafe,
}

/// The regions of a connection, each with the share `S` of its host's limits that it takes.
#[derive(Debug)]
pub struct Regions<S>(HashMap<u32, (Arc<SharedMemory>, S)>);

impl<S> Default for Regions<S> {
    fn default() -> Self {
        Regions(HashMap::new())
    }
}

impl<S> Regions<S> {
    /// Maps a region, if `admit` has a share for so many bytes.
    ///
    /// # Errors
    /// See [`RegionError`]; nothing is mapped then.
    pub fn add(
        &mut self,
        handle: u32,
        file: OwnedFd,
        admit: impl FnOnce(usize) -> Option<S>,
    ) -> Result<(), RegionError> {
        if self.0.len() >= REGIONS_MAX || self.0.contains_key(&handle) {
            return Err(RegionError::TooMany);
        }
        let mapped: usize = self.0.values().map(|(memory, _)| memory.len()).sum();
        let left = REGION_BYTES_MAX.saturating_sub(mapped);
        let memory = SharedMemory::open_sealed(file, left).map_err(|_| RegionError::Unsafe)?;
        let share = admit(memory.len()).ok_or(RegionError::TooMany)?;
        self.0.insert(handle, (Arc::new(memory), share));
        Ok(())
    }

    /// Ends a region: nothing accesses its memory any more.
    ///
    /// # Errors
    /// There is no such region, or something refers to it.
    pub fn remove(&mut self, handle: u32) -> Result<(), RegionError> {
        let is_idle = self.0.get(&handle).is_some_and(|(memory, _)| Arc::strong_count(memory) == 1);
        if !is_idle {
            return Err(RegionError::InUse);
        }
        self.0.remove(&handle);
        Ok(())
    }

    /// The region's memory, if `bytes` bytes from `offset` on lie in it.
    pub fn find(&self, handle: u32, offset: u64, bytes: usize) -> Option<&Arc<SharedMemory>> {
        let (memory, _) = self.0.get(&handle)?;
        let end = usize::try_from(offset).ok()?.checked_add(bytes)?;
        (end <= memory.len()).then_some(memory)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(bytes: usize) -> OwnedFd {
        SharedMemory::create_sealed("region", bytes).unwrap().file().try_clone().unwrap()
    }

    fn any(_: usize) -> Option<()> {
        Some(())
    }

    #[test]
    fn a_range_is_found_only_inside_its_region() {
        let mut regions = Regions::default();
        regions.add(7, file(8192), any).unwrap();
        assert!(regions.find(7, 0, 8192).is_some());
        assert!(regions.find(7, 8192, 0).is_some());
        for (handle, offset, bytes) in
            [(8, 0, 1), (7, 0, 8193), (7, 8192, 1), (7, u64::MAX, 1), (7, 1, usize::MAX)]
        {
            assert!(regions.find(handle, offset, bytes).is_none(), "{handle} {offset} {bytes}");
        }
        let used = Arc::clone(regions.find(7, 0, 1).unwrap());
        assert_eq!(regions.remove(7), Err(RegionError::InUse));
        drop(used);
        assert_eq!([regions.remove(7), regions.remove(7)], [Ok(()), Err(RegionError::InUse)]);
        assert!(regions.find(7, 0, 1).is_none());
    }

    #[test]
    fn handles_and_numbers_of_regions_are_limited() {
        let mut regions = Regions::default();
        for handle in 0..REGIONS_MAX as u32 {
            regions.add(handle, file(4096), any).unwrap();
        }
        assert_eq!(regions.add(1 << 20, file(4096), any), Err(RegionError::TooMany));
        regions.remove(3).unwrap();
        assert_eq!(
            regions.add(4, file(4096), any),
            Err(RegionError::TooMany),
            "one handle, one region"
        );
        let unsealed = SharedMemory::create("region", 4096).unwrap().file().try_clone().unwrap();
        assert_eq!(regions.add(3, unsealed, any), Err(RegionError::Unsafe));
    }

    #[test]
    fn a_region_without_a_share_is_not_mapped() {
        let mut regions = Regions::default();
        let fits = |bytes| (bytes <= 8192).then_some(bytes);
        assert_eq!(regions.add(1, file(8192), fits), Ok(()));
        assert_eq!(regions.add(2, file(16_384), fits), Err(RegionError::TooMany));
        assert!(regions.find(1, 0, 1).is_some() && regions.find(2, 0, 1).is_none());
    }
}
