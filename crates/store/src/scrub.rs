//! Scrub: checks records, bodies, and their consistency while the partition is in use.
//!
//! A scan checks records, and bodies under their gates. Facts that span several records (links,
//! counts, usage) can be in the middle of a change when they are checked; so a mismatch is checked
//! again, and counts only if it repeats exactly. Scrub repairs nothing.

use std::collections::HashMap;
use std::fmt;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use types::{Fid, Kind, Name, VnodeNo, VolumeId};

use crate::body::files::sums_found;
use crate::body::orphans;
use crate::error::Result;
use crate::format::header::{TreeHeader, Usage, ViewHeader};
use crate::format::key::{self, kind};
use crate::format::names::{BodyName, file_name};
use crate::format::record::{self, count};
use crate::format::vnode::initial_used;
use crate::media::engine::Engine;
use crate::partition::Partition;
use crate::stream::get_progress;
use crate::volume::Volume;
use crate::{BLOCK_BYTES, BodyLocation, StoreError, Vnode};

/// The progress of a scrub.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ScrubProgress {
    /// Records checked.
    pub records: u64,
    /// Bodies checked.
    pub bodies: u64,
    /// Bytes of body files read.
    pub bytes: u64,
}

/// A fault that a scrub found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ScrubFinding {
    /// A record fails its checksum.
    DamagedRecord {
        /// The key of the record, escaped.
        key: String,
    },
    /// A block of a body fails its checksum.
    DamagedBlock {
        /// The file.
        fid: Fid,
        /// The number of the block.
        block: u64,
    },
    /// The body is not where its vnode says.
    LostBody {
        /// The file.
        fid: Fid,
    },
    /// A body file without a record; it only takes room.
    StrayBody {
        /// The volume of the directory in which it is.
        volume: VolumeId,
        /// Its name below the volume's directory.
        file: String,
    },
    /// An entry names no vnode, or one of another kind.
    DanglingEntry {
        /// The directory.
        dir: Fid,
        /// The name of the entry.
        name: Name,
    },
    /// Entries of a vnode that is not a directory, or no longer.
    StrayEntries {
        /// The volume.
        volume: VolumeId,
        /// The vnode.
        dir: VnodeNo,
    },
    /// The link count of a vnode is wrong.
    WrongLinks {
        /// The file.
        fid: Fid,
        /// The stored count.
        stored: u64,
        /// The actual count.
        counted: u64,
    },
    /// The entry count of a directory is wrong.
    WrongEntries {
        /// The directory.
        fid: Fid,
        /// The stored count.
        stored: u64,
        /// The actual count.
        counted: u64,
    },
    /// The charge of a vnode is wrong.
    WrongUsed {
        /// The file.
        fid: Fid,
        /// The stored charge in bytes.
        stored: u64,
        /// The actual charge in bytes.
        counted: u64,
    },
    /// The volume's usage is not the sum over its vnodes (ST-2).
    WrongUsage {
        /// The volume.
        volume: VolumeId,
        /// The stored usage.
        stored: Usage,
        /// The actual usage.
        counted: Usage,
    },
}

impl fmt::Display for ScrubFinding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ScrubFinding::DamagedRecord { key } => write!(f, "record {key} is damaged"),
            ScrubFinding::DamagedBlock { fid, block } => {
                write!(f, "block {block} of {fid} is damaged")
            }
            ScrubFinding::LostBody { fid } => write!(f, "the body of {fid} is lost"),
            ScrubFinding::StrayBody { volume, file } => {
                write!(f, "body file {file} of volume {} has no record", volume.0)
            }
            ScrubFinding::DanglingEntry { dir, name } => {
                write!(f, "entry {name:?} of {dir} names no file")
            }
            ScrubFinding::StrayEntries { volume, dir } => {
                write!(f, "entries below {}.{}, which is not a directory", volume.0, dir.0)
            }
            ScrubFinding::WrongLinks { fid, stored, counted } => {
                write!(f, "{fid} has {counted} links, not {stored}")
            }
            ScrubFinding::WrongEntries { fid, stored, counted } => {
                write!(f, "{fid} has {counted} entries, not {stored}")
            }
            ScrubFinding::WrongUsed { fid, stored, counted } => {
                write!(f, "{fid} uses {counted} bytes, not {stored}")
            }
            ScrubFinding::WrongUsage { volume, stored, counted } => {
                write!(f, "volume {} uses {counted:?}, not {stored:?}", volume.0)
            }
        }
    }
}

/// The result of a scrub.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScrubReport {
    /// The number of records, bodies and bytes that were checked.
    pub checked: ScrubProgress,
    /// The faults in the order found; at most [`FINDINGS_MAX`].
    pub findings: Vec<ScrubFinding>,
    /// The scrub was cancelled before its end.
    pub cancelled: bool,
}

/// The most findings that a scrub lists: a broken disk has any number of them.
pub const FINDINGS_MAX: usize = 10_000;
/// How often a mismatch is checked while clients change it.
const POLLS_MAX: u32 = 4;

impl Partition {
    /// Checks every record and every block of every body, and their consistency, beside normal
    /// work.
    ///
    /// # Errors
    /// `Medium`. Damage is a finding, not an error.
    pub fn scrub(
        &self,
        progress: &mut dyn FnMut(ScrubProgress),
        cancel: &AtomicBool,
    ) -> Result<ScrubReport> {
        let mut scrub = Scrub { partition: self, report: ScrubReport::default(), progress, cancel };
        scrub.records()?;
        scrub.volumes()?;
        scrub.all_strays()?;
        scrub.report.cancelled = cancel.load(Ordering::Relaxed);
        Ok(scrub.report)
    }
}

struct Scrub<'a> {
    partition: &'a Partition,
    report: ScrubReport,
    progress: &'a mut dyn FnMut(ScrubProgress),
    cancel: &'a AtomicBool,
}

/// The number of volumes that one call lists.
const VOLUMES_AT_ONCE: usize = 256;
/// The number of records or bodies between two reports of progress.
const PROGRESS_EVERY: u64 = 1024;

impl Scrub<'_> {
    fn go_on(&self) -> ControlFlow<()> {
        if self.cancel.load(Ordering::Relaxed) {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    }

    fn found(&mut self, finding: ScrubFinding) {
        if self.report.findings.len() < FINDINGS_MAX && !self.report.findings.contains(&finding) {
            tracing::warn!(%finding, "scrub found a fault");
            self.report.findings.push(finding);
        }
    }

    fn records(&mut self) -> Result<()> {
        let engine = &self.partition.0.media.engine;
        // All kinds of records, in two ranges: inline bodies are stored apart.
        let inline = [kind::INLINE];
        let behind = [kind::INLINE + 1];
        for (from, end) in [(&[0_u8][..], &inline[..]), (&inline, &behind), (&behind, &[0xff])] {
            engine.scan(from, end, &mut |key, value| {
                if !checks(key, value) {
                    self.found(ScrubFinding::DamagedRecord { key: key.escape_ascii().to_string() });
                }
                self.report.checked.records += 1;
                if self.report.checked.records.is_multiple_of(PROGRESS_EVERY) {
                    (self.progress)(self.report.checked);
                }
                self.go_on()
            })?;
        }
        Ok(())
    }

    fn volumes(&mut self) -> Result<()> {
        let mut after = VolumeId(0);
        loop {
            let volumes = self.partition.volumes().list(after, VOLUMES_AT_ONCE)?;
            let Some(last) = volumes.last() else { return Ok(()) };
            after = last.id;
            for volume in volumes {
                if self.go_on().is_break() {
                    return Ok(());
                }
                // A volume that was removed meanwhile is not checked; the scan reported a damaged
                // header.
                if let Ok(Some(volume)) = self.partition.volumes().volume(volume.id) {
                    self.bodies(&volume)?;
                    self.tree(&volume)?;
                }
            }
        }
    }

    /// Checks every tree, including those whose read-write volume was removed.
    fn all_strays(&mut self) -> Result<()> {
        let mut from = 0;
        loop {
            let mut trees = Vec::new();
            self.partition.volumes().trees().each_tree(from, VOLUMES_AT_ONCE, &mut |id, _| {
                trees.push(id);
                true
            })?;
            let Some(last) = trees.last() else { return Ok(()) };
            from = last.0 + 1;
            trees.into_iter().try_for_each(|tree| self.strays(tree))?;
        }
    }

    /// Numbers of a volume's vnodes.
    fn vnodes(&self, volume: &Volume) -> Result<Vec<VnodeNo>> {
        let mut vnodes: Vec<VnodeNo> = Vec::new();
        volume.tree().each_vnode_no(VnodeNo(0), &mut |no| {
            vnodes.push(no);
            self.go_on()
        })?;
        Ok(vnodes)
    }

    fn bodies(&mut self, volume: &Arc<Volume>) -> Result<()> {
        for no in self.vnodes(volume)? {
            if self.go_on().is_break() {
                break;
            }
            self.body(volume, no).or_else(damage_is_known)?;
            self.report.checked.bodies += 1;
            (self.progress)(self.report.checked);
        }
        Ok(())
    }

    fn body(&mut self, volume: &Arc<Volume>, no: VnodeNo) -> Result<()> {
        let mut groups = Vec::new();
        {
            let Some(reader) = volume.reader(no)? else { return Ok(()) };
            let status = &reader.vnode().status;
            let mut blocks = 0;
            volume.tree().each_group(no, 0, &mut |group, sums| {
                blocks += count(&sums);
                groups.push(group);
                ControlFlow::Continue(())
            })?;
            let counted = match reader.vnode().place {
                BodyLocation::File { .. } | BodyLocation::Origin => blocks * BLOCK_BYTES,
                BodyLocation::Inline => status.size,
                BodyLocation::None => initial_used(status.kind),
            };
            if counted != status.used {
                self.found(ScrubFinding::WrongUsed {
                    fid: status.fid,
                    stored: status.used,
                    counted,
                });
            }
            let readable = match reader.vnode().place {
                BodyLocation::File { .. } | BodyLocation::Origin => reader.file().map(drop),
                BodyLocation::Inline | BodyLocation::None if status.kind == Kind::Directory => {
                    Ok(())
                }
                BodyLocation::Inline | BodyLocation::None => reader.read(0, 1).map(drop),
            };
            if let Err(error) = readable {
                damage_is_known(error)?;
                self.found(ScrubFinding::LostBody { fid: status.fid });
                return Ok(());
            }
        }
        for group in groups {
            self.group(volume, no, group)?;
        }
        Ok(())
    }

    fn group(&mut self, volume: &Arc<Volume>, no: VnodeNo, group: u64) -> Result<()> {
        let Some(reader) = volume.reader(no)? else { return Ok(()) };
        if !reader.vnode().place.is_file() {
            return Ok(());
        }
        let stored = volume.tree().sums(no, group)?;
        let file = reader.file()?;
        let found = sums_found(&*file, reader.vnode(), group, &stored)?;
        self.report.checked.bytes += count(&stored) * BLOCK_BYTES;
        for (at, (stored, found)) in stored.iter().zip(found).enumerate() {
            if *stored != found && !reader.is_suspect() {
                let block = group * record::GROUP_BLOCKS + at as u64;
                self.found(ScrubFinding::DamagedBlock { fid: reader.vnode().status.fid, block });
            }
        }
        Ok(())
    }

    /// Body files without a vnode, garbage record or mark.
    fn strays(&mut self, tree: VolumeId) -> Result<()> {
        let media = &self.partition.0.media;
        let mut names = Vec::new();
        media
            .disk
            .list(tree, &mut |name| names.push(name))
            .map_err(|e| StoreError::from_io("list of bodies", &e))?;
        for name in names {
            let stray = match name {
                Ok(name) => (!self.belongs(name)?).then(|| file_name(name)),
                Err(text) => Some(text),
            };
            if let Some(file) = stray {
                self.found(ScrubFinding::StrayBody { volume: tree, file });
            }
        }
        Ok(())
    }

    fn belongs(&self, name: BodyName) -> Result<bool> {
        let media = &self.partition.0.media;
        if orphans::belongs(media, name)? {
            return Ok(true);
        }
        // A file that was swept meanwhile no longer exists.
        let there = media.disk.open(name).map_err(|e| StoreError::from_io("open of a body", &e))?;
        Ok(there.is_none())
    }

    /// Compares entries with vnodes, links and counts, and usage.
    fn tree(&mut self, volume: &Volume) -> Result<()> {
        let mut findings = self.check_tree_once(volume)?;
        for _ in 1..POLLS_MAX {
            if findings.is_empty() {
                break;
            }
            let again = self.check_tree_once(volume)?;
            let quiet = findings == again;
            findings.retain(|finding| again.contains(finding));
            if quiet {
                break;
            }
        }
        findings.into_iter().for_each(|finding| self.found(finding));
        Ok(())
    }

    fn check_tree_once(&self, volume: &Volume) -> Result<Vec<ScrubFinding>> {
        let mut check = TreeCheck::default();
        let mut damage = false;
        for no in self.vnodes(volume)? {
            match volume.vnode(no) {
                Ok(Some(vnode)) => drop(check.vnodes.insert(no, Seen::of(&vnode))),
                Ok(None) => {}
                Err(error) => {
                    damage_is_known(error)?;
                    damage = true;
                }
            }
        }
        self.check_entries(volume, &mut check)?;
        if damage || self.go_on().is_break() {
            // Faults below an unreadable vnode are reported with that vnode.
            return Ok(Vec::new());
        }
        check.add_up(volume);
        Ok(check.findings)
    }

    fn check_entries(&self, volume: &Volume, check: &mut TreeCheck) -> Result<()> {
        let prefix = key::of_volume(kind::ENTRIES, volume.tree_id());
        volume.tree().each_newest(&prefix, &[], &mut |_, key, value| {
            let dir = key::number_at(key, 1).map(VnodeNo);
            if let (Some(dir), Ok(entries)) = (dir, record::decode_bucket(key, value)) {
                entries.iter().for_each(|entry| check.entry(volume, dir, entry));
            }
            self.go_on()
        })
    }
}

/// The facts of a vnode that the comparison needs.
struct Seen {
    fid: Fid,
    kind: Kind,
    links: u64,
    entries: u64,
    used: u64,
    names_counted: u64,
    entries_counted: u64,
    subdirs_counted: u64,
}

impl Seen {
    fn of(vnode: &Vnode) -> Seen {
        let status = &vnode.status;
        Seen {
            fid: status.fid,
            kind: status.kind,
            links: u64::from(status.links),
            entries: vnode.entries,
            used: status.used,
            names_counted: 0,
            entries_counted: 0,
            subdirs_counted: 0,
        }
    }
}

#[derive(Default)]
struct TreeCheck {
    vnodes: HashMap<VnodeNo, Seen>,
    findings: Vec<ScrubFinding>,
}

impl TreeCheck {
    fn entry(&mut self, volume: &Volume, dir: VnodeNo, entry: &record::BucketEntry) {
        let Some(parent) = self.vnodes.get_mut(&dir).filter(|seen| seen.kind == Kind::Directory)
        else {
            let finding = ScrubFinding::StrayEntries { volume: volume.id(), dir };
            if !self.findings.contains(&finding) {
                self.findings.push(finding);
            }
            return;
        };
        parent.entries_counted += 1;
        parent.subdirs_counted += u64::from(entry.target.kind == Kind::Directory);
        let parent = parent.fid;
        let target = &entry.target;
        match self.vnodes.get_mut(&target.vnode) {
            Some(seen) if seen.fid.unique == target.unique && seen.kind == target.kind => {
                seen.names_counted += 1;
            }
            _ => self
                .findings
                .push(ScrubFinding::DanglingEntry { dir: parent, name: entry.name.clone() }),
        }
    }

    fn add_up(&mut self, volume: &Volume) {
        let mut counted = Usage::default();
        for seen in self.vnodes.values() {
            counted.bytes += seen.used;
            counted.files += 1;
            if seen.entries != seen.entries_counted {
                let (stored, counted) = (seen.entries, seen.entries_counted);
                self.findings.push(ScrubFinding::WrongEntries { fid: seen.fid, stored, counted });
            }
            // A removed directory that is still held has no links; the root has no name.
            let counted = match seen.kind {
                Kind::Directory if seen.names_counted == 0 && seen.fid.vnode != VnodeNo::ROOT => 0,
                Kind::Directory => 2 + seen.subdirs_counted,
                _ => seen.names_counted,
            };
            if counted != seen.links {
                self.findings.push(ScrubFinding::WrongLinks {
                    fid: seen.fid,
                    stored: seen.links,
                    counted,
                });
            }
        }
        let stored = volume.usage();
        if stored != counted {
            self.findings.push(ScrubFinding::WrongUsage { volume: volume.id(), stored, counted });
        }
        self.findings.sort_by_key(|finding| format!("{finding:?}"));
    }
}

/// Whether a record matches its key.
pub(crate) fn checks(key: &[u8], value: &[u8]) -> bool {
    let number = |at| key::number_at(key, at).unwrap_or_default();
    match key.first() {
        Some(&kind::VNODE) => {
            record::decode_vnode(key, VolumeId(number(0)), VnodeNo(number(1)), value).is_ok()
        }
        Some(&kind::ENTRIES) => record::decode_bucket(key, value).is_ok(),
        Some(&kind::SUMS) => {
            record::decode_sums(key, value).is_ok()
                || record::decode_sealed_sums(key, value).is_ok()
        }
        Some(&kind::CIPHER) => record::TreeKeyRecord::decode(key, value).is_ok(),
        Some(&kind::VOLUME) => TreeHeader::decode(key, value).is_ok(),
        Some(&kind::VIEW) => ViewHeader::decode(key, value).is_ok(),
        Some(&kind::USAGE) => record::decode_usage(key, value).is_ok(),
        Some(&kind::PROGRESS) => get_progress(key, value).is_ok(),
        _ => record::is_sealed(key, value),
    }
}

/// Ignores damage, which the scan of records reported.
fn damage_is_known(error: StoreError) -> Result<()> {
    if matches!(error, StoreError::Damaged(_)) { Ok(()) } else { Err(error) }
}
