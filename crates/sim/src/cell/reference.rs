//! What volumes have to hold: a model of each tree, and what each of its sealed epochs shows.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use model::{Content, ModelTree};
use types::{
    Answer, Call, Caller, Fid, Kind, Name, SessionId, Status, Timestamp, Uniquifier, VnodeNo,
    VolumeId,
};

/// Everything that can be seen of a volume, without its number and without what the store alone
/// knows.
pub type VolumeImage = BTreeMap<(VnodeNo, Uniquifier), ImageFile>;

/// One file of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageFile {
    status: Status,
    data: Bytes,
    entries: BTreeMap<Name, (VnodeNo, Uniquifier)>,
    xattrs: BTreeMap<Bytes, Bytes>,
}

/// A read-write volume.
pub struct Reference {
    /// What it holds.
    pub tree: ModelTree,
    /// What it held since everything was last known to be on disk, the oldest first: after a loss
    /// of power it is one of these.
    pub unsynced: Vec<ModelTree>,
}

impl Reference {
    /// A volume that holds what the model does, on disk.
    pub fn new(tree: ModelTree) -> Self {
        Reference { tree, unsynced: Vec::new() }
    }

    /// A call was answered: the model does it too, at the time that the answer shows.
    ///
    /// # Errors
    /// If the model answers otherwise.
    pub fn apply(&mut self, call: &Call, answer: &Answer) -> Result<(), String> {
        let statuses = match answer {
            Answer::Status(status) | Answer::Written { status, .. } => vec![*status],
            Answer::Made { status, dir, .. } | Answer::Removed { status, dir } => {
                vec![*status, *dir]
            }
            Answer::Renamed { status, other, from_dir, to_dir } => {
                [*status, *from_dir, *to_dir].into_iter().chain(*other).collect()
            }
            other => return Err(format!("{call:?} was answered {other:?}")),
        };
        let wall = statuses
            .iter()
            .map(|status| status.changed)
            .max()
            .unwrap_or_else(|| Timestamp::new(0, 0));
        if let (Call::Make { .. }, Answer::Made { status, existed: false, .. }) = (call, answer) {
            self.tree.give(status.fid);
        }
        self.unsynced.push(self.tree.clone());
        let wanted = self.tree.apply(SessionId(1), wall, &Caller::ROOT, call);
        wanted
            .map(drop)
            .map_err(|fault| format!("{call:?} was answered {answer:?}, and not {fault:?}"))
    }

    /// Everything is on disk.
    pub fn synced(&mut self) {
        self.unsynced.clear();
    }

    /// After a loss of power it holds this: one of the moments since it was last on disk.
    ///
    /// # Errors
    /// If it never held this.
    pub fn goes_back_to(&mut self, found: &VolumeImage) -> Result<(), String> {
        let moments = self.unsynced.drain(..).chain([self.tree.clone()]).collect::<Vec<_>>();
        match moments.iter().rev().find(|tree| image(tree) == *found) {
            Some(tree) => {
                self.tree = tree.clone();
                Ok(())
            }
            None => Err(format!(
                "it holds what it never held: {}",
                difference(found, &image(&self.tree))
            )),
        }
    }
}

fn key(fid: Fid) -> (VnodeNo, Uniquifier) {
    (fid.vnode, fid.unique)
}

fn plain(status: Status) -> Status {
    Status { fid: Fid { volume: VolumeId(0), ..status.fid }, used: 0, ..status }
}

/// What a model holds.
pub fn image(tree: &ModelTree) -> VolumeImage {
    let mut image = VolumeImage::new();
    for (fid, node) in tree.nodes() {
        let (mut data, mut entries) = (Bytes::new(), BTreeMap::new());
        match &node.content {
            Content::File(body) => data = body.read(0, body.size()).into(),
            Content::Directory(names) => {
                entries = names.iter().map(|(name, fid)| (name.clone(), key(*fid))).collect();
            }
            Content::Target(target) => data = target.clone(),
            Content::Nothing => {}
        }
        image.insert(
            key(*fid),
            ImageFile { status: plain(node.status), data, entries, xattrs: node.xattrs.clone() },
        );
    }
    image
}

/// What a volume of a store shows.
///
/// # Errors
/// What cannot be read.
pub fn shown(volume: &store::Volume) -> Result<VolumeImage, String> {
    let (mut image, mut to_do) = (VolumeImage::new(), vec![Fid::root(volume.id()).vnode]);
    let say = |error: store::StoreError| error.to_string();
    while let Some(no) = to_do.pop() {
        let vnode = volume
            .vnode(no)
            .map_err(say)?
            .ok_or_else(|| format!("vnode {} is named and not there", no.0))?;
        let (mut data, mut entries, mut xattrs) = (Bytes::new(), BTreeMap::new(), BTreeMap::new());
        match vnode.status.kind {
            Kind::Directory => {
                for entry in volume.read_dir(no, 0, usize::MAX).map_err(say)?.0 {
                    entries.insert(entry.name, (entry.target.vnode, entry.target.unique));
                }
            }
            kind if kind.has_target() => data = volume.target(&vnode).map_err(say)?,
            _ => data = volume.read(&vnode, 0, vnode.status.size as usize).map_err(say)?,
        }
        for (name, _) in volume.xattrs(&vnode).map_err(say)? {
            let value = volume.xattr(&vnode, &name).map_err(say)?;
            xattrs.insert(name, value.unwrap_or_default());
        }
        to_do.extend(entries.values().map(|(no, _)| *no));
        image.insert(
            key(vnode.status.fid),
            ImageFile { status: plain(vnode.status), data, entries, xattrs },
        );
    }
    Ok(image)
}

/// The model, in the versions in which a volume shows it that it came over, if it does.
pub fn came(tree: &ModelTree, found: &VolumeImage) -> Option<ModelTree> {
    let root = key(Fid::root(VolumeId(0)));
    let (is, was) = (
        found.get(&root)?.status,
        tree.nodes().iter().find(|(fid, _)| key(**fid) == root)?.1.status,
    );
    let mut tree = tree.clone();
    tree.shift_versions(is.status_version.checked_sub(was.status_version)?);
    (image(&tree) == *found).then_some(tree)
}

/// Where two of them differ, for people.
pub fn difference(found: &VolumeImage, wanted: &VolumeImage) -> String {
    let keys = found.keys().chain(wanted.keys());
    let Some(at) = keys.into_iter().find(|key| found.get(key) != wanted.get(key)) else {
        return "nowhere".to_owned();
    };
    let brief = |seen: Option<&ImageFile>| match seen {
        None => "nothing".to_owned(),
        Some(seen) if seen.data.len() > 60 => {
            format!("{:?} and {} bytes", seen.status, seen.data.len())
        }
        Some(seen) => format!("{seen:?}"),
    };
    format!("at {at:?} {}, and not {}", brief(found.get(at)), brief(wanted.get(at)))
}

/// What a sealed epoch shows.
pub struct Sealed {
    /// As a model, for volumes that begin with it.
    pub tree: ModelTree,
    /// As it is seen.
    pub image: VolumeImage,
}

impl Sealed {
    /// What the model holds now.
    pub fn of(tree: &ModelTree) -> Arc<Self> {
        Arc::new(Sealed { tree: tree.clone(), image: image(tree) })
    }
}
