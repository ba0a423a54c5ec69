//! Checks for every moment, and checks for the end of a run.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use celldb::CellDb;
use store::{Partition, ScrubFinding, VolumeFacts};
use types::{Name, SiteKind, VolumeGroup, VolumeId, VolumeKind};

use super::house::partition_name;
use super::reference::{Reference, Sealed, difference, shown};
use super::world::World;

/// Endings of the names of temporary volumes.
const FLEETING: [&[u8]; 4] = [b".releasing", b".moving", b".moving2", b".dumping"];

/// One check in so many reads all contents.
const CONTENT_ONE_IN: u32 = 6;

/// A volume at a server.
struct There {
    no: usize,
    /// The name of its partition.
    called: String,
    partition: Partition,
    info: VolumeFacts,
}

impl There {
    fn is_online(&self) -> bool {
        let VolumeFacts { kind, held, arriving, offline, .. } = &self.info;
        *kind == VolumeKind::ReadWrite && !held && !arriving && !offline
    }

    fn name(&self) -> String {
        format!("{} ({}) at server {}", text(&self.info.name), self.info.id.0, self.no)
    }
}

pub(super) fn text(name: &Name) -> String {
    String::from_utf8_lossy(name.as_bytes()).into_owned()
}

impl World {
    /// All volumes of servers that are up.
    fn volumes(&mut self) -> Vec<There> {
        let mut all = Vec::new();
        for no in 0..self.houses.len() {
            for (at, partition) in self.partitions(no).into_iter().enumerate() {
                match partition.volumes().list(VolumeId(0), usize::MAX) {
                    Ok(found) => {
                        all.extend(found.into_iter().map(|info| There {
                            no,
                            called: partition_name(at),
                            partition: partition.clone(),
                            info,
                        }));
                    }
                    Err(error) => {
                        self.violate(format!("server {no} cannot list its volumes: {error}"));
                    }
                }
            }
        }
        all
    }

    /// Whether a server that is up has the read-write volume and may serve it.
    pub fn is_served(&mut self, id: VolumeId) -> bool {
        self.volumes().iter().any(|there| there.info.id == id && there.is_online())
    }

    /// The groups of snapshots that dumps left.
    pub fn left_by_dumps(&mut self) -> Vec<Name> {
        let all = self.volumes();
        let left = all.iter().filter(|there| there.info.name.as_bytes().ends_with(b".dumping"));
        let group = |there: &There| self.database.group_of(there.info.tree).ok().flatten();
        left.filter_map(group).map(|seen| seen.record.name).collect()
    }

    /// Checks the rules that hold at every moment.
    pub fn judge(&mut self) {
        let all = self.volumes();
        let mut online: BTreeMap<VolumeId, usize> = BTreeMap::new();
        for there in all.iter().filter(|there| there.is_online()) {
            if let Some(other) = online.insert(there.info.id, there.no) {
                self.violate(format!("VO-6: {} is served by server {other} too", there.name()));
            }
            self.take_in(there);
        }
        if self.one_in(CONTENT_ONE_IN) {
            all.iter().for_each(|there| self.judge_content(there));
        }
    }

    fn judge_content(&mut self, there: &There) {
        let VolumeFacts { id, tree, epoch, kind, .. } = there.info;
        let volume = match there.partition.volumes().volume(id) {
            Ok(Some(volume)) => volume,
            Ok(None) => return self.violate(format!("{} is listed and not there", there.name())),
            Err(error) => return self.violate(format!("{}: {error}", there.name())),
        };
        let found = match shown(&volume) {
            Ok(found) => found,
            Err(why) => return self.violate(format!("{}: {why}", there.name())),
        };
        let wrong = if kind == VolumeKind::ReadWrite {
            if !there.is_online() {
                return;
            }
            self.trees.get(&tree).map(|reference| super::reference::image(&reference.tree))
        } else {
            let sealed = self.sealed.get(&(tree, epoch)).map(Arc::clone);
            // Of a volume that may be removed no model is kept.
            if sealed.is_none() && !self.gone.contains(&tree) {
                self.violate(format!(
                    "{} shows epoch {epoch}, which was never sealed",
                    there.name()
                ));
            }
            sealed.map(|sealed| sealed.image.clone())
        };
        if let Some(wanted) = wrong.filter(|wanted| *wanted != found) {
            self.violate(format!(
                "VO-1: {} epoch {epoch}: {}",
                there.name(),
                difference(&found, &wanted)
            ));
        }
    }

    /// The first check of a read-write volume takes its contents as the model: they must be those
    /// with which it may begin.
    fn take_in(&mut self, there: &There) {
        let VolumeFacts { id, name, .. } = &there.info;
        if self.trees.contains_key(id) || self.gone.contains(id) {
            return;
        }
        let volume = there.partition.volumes().volume(*id).ok().flatten();
        let Some(found) = volume.and_then(|volume| shown(&volume).ok()) else { return };
        let candidates: Vec<Arc<Sealed>> = self.coming.get(name).cloned().unwrap_or_default();
        let as_this = candidates
            .iter()
            .find(|one| one.image == found)
            .map(|one| one.tree.as_volume(name.clone(), *id));
        let empty = || {
            let volume = there.partition.volumes().volume(*id).ok().flatten()?;
            let root = volume.vnode(types::Fid::root(*id).vnode).ok().flatten()?;
            (found.len() == 1 && candidates.is_empty())
                .then(|| model::ModelTree::new(name.clone(), root.status))
        };
        match as_this.or_else(empty) {
            Some(tree) => drop(self.trees.insert(*id, Reference::new(tree))),
            None => self.violate(format!("{} begins with unknown contents", there.name())),
        }
    }

    /// Checks the rules that hold when all operations have ended.
    pub fn judge_end(&mut self) {
        self.judge();
        self.volumes().iter().for_each(|there| self.judge_content(there));
        let groups = self.database.groups(VolumeId(0), usize::MAX).unwrap_or_default();
        let groups: BTreeMap<VolumeId, VolumeGroup> =
            groups.into_iter().map(|seen| (seen.record.read_write, seen.record)).collect();
        let all = self.volumes();
        for group in groups.values() {
            self.judge_group(group, &all);
        }
        for there in &all {
            if self.forced && !there.is_online() {
                continue;
            }
            let name = there.info.name.as_bytes();
            // A site that was taken off while its server did not answer keeps its volumes, also the
            // temporary one of a release for which it lagged.
            let sites = groups.get(&there.info.tree).map_or(&[][..], |group| &group.sites);
            let was_site = sites.iter().all(|site| site.server != self.houses[there.no].info.id);
            // So does one that did not answer when the read-write volume was removed.
            let is_read_only =
                !sites.is_empty() && sites.iter().all(|site| site.kind == SiteKind::ReadOnly);
            let may_stay = (was_site || is_read_only) && name.ends_with(b".releasing");
            if FLEETING.iter().any(|ending| name.ends_with(ending)) && !may_stay
                || name.starts_with(b"copying.")
            {
                self.violate(format!("VO-3: {} is left over", there.name()));
            }
            let here = (self.houses[there.no].info.id, &there.called);
            let is_known = |group: &VolumeGroup| {
                group.read_write_site().is_some_and(|site| (site.server, &site.partition) == here)
            };
            if there.info.kind == VolumeKind::ReadWrite
                && !groups.get(&there.info.tree).is_some_and(is_known)
            {
                self.violate(format!("VO-6: {} is at no site of the database", there.name()));
            }
        }
        for id in self.trees.keys().copied().collect::<Vec<_>>() {
            if !all.iter().any(|there| there.info.id == id && there.is_online()) {
                self.violate(format!("VO-6: volume {} is lost", id.0));
            }
        }
        for no in 0..self.houses.len() {
            self.scrub(no);
        }
    }

    fn judge_group(&mut self, group: &VolumeGroup, all: &[There]) {
        let name = text(&group.name);
        if let Some(busy) = &group.busy {
            self.violate(format!("{name} stays claimed: {}", busy.operation));
        }
        for site in &group.sites {
            let no = self.number_of(site.server);
            let is_there = |there: &&There| there.no == no && there.called == site.partition;
            let here = |id: Option<VolumeId>| {
                all.iter().filter(is_there).find(move |there| Some(there.info.id) == id)
            };
            match site.kind {
                SiteKind::ReadWrite => {
                    if !here(Some(group.read_write)).is_some_and(There::is_online) {
                        self.violate(format!(
                            "VO-6: {name} is not served by server {no}, which has it"
                        ));
                    }
                }
                SiteKind::ReadOnly if site.epoch != 0 => {
                    let shows = here(group.read_only).map(|there| there.info.epoch);
                    if shows != Some(site.epoch) {
                        self.violate(format!(
                            "{name}: server {no} shows {shows:?}, and not epoch {}",
                            site.epoch
                        ));
                    }
                }
                SiteKind::ReadOnly | SiteKind::Standby | SiteKind::AsyncStandby => {}
            }
        }
    }

    /// Checks that all removed bodies are swept, and that a scrub finds nothing.
    fn scrub(&mut self, no: usize) {
        for partition in self.partitions(no) {
            while partition.sweep(1000).unwrap_or(0) > 0 {}
            match partition.scrub(&mut |_| {}, &AtomicBool::new(false)) {
                Ok(report) => {
                    let spares = self.powerless_once[no];
                    let stray =
                        |finding: &ScrubFinding| matches!(finding, ScrubFinding::StrayBody { .. });
                    for finding in
                        report.findings.into_iter().filter(|finding| !(spares && stray(finding)))
                    {
                        self.violate(format!("ST-2: server {no}: {finding}"));
                    }
                }
                Err(error) => self.violate(format!("server {no}: {error}")),
            }
        }
    }
}
