//! The expected contents of volumes: a model of each tree, and the image of each of its sealed
//! epochs.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use model::{Content, ModelTree};
use types::{
    Answer, Call, Caller, Cookie, Fid, Kind, Name, SessionId, Status, Timestamp, Uniquifier,
    VnodeNo, VolumeId,
};

/// All visible contents of a volume, without its number and without the store's private fields.
pub type VolumeImage = BTreeMap<(VnodeNo, Uniquifier), ImageFile>;

/// One file of the image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageFile {
    status: Status,
    data: Bytes,
    entries: BTreeMap<Name, (VnodeNo, Uniquifier)>,
    xattrs: BTreeMap<Bytes, Bytes>,
}

/// The expected state of a read-write volume.
pub struct Reference {
    /// The present contents.
    pub tree: ModelTree,
    /// Its contents since all data was last known to be on disk, the oldest first: a loss of power
    /// may bring back any of them.
    pub unsynced: Vec<ModelTree>,
}

impl Reference {
    /// A volume with the model's contents, all on disk.
    pub fn new(tree: ModelTree) -> Self {
        Reference { tree, unsynced: Vec::new() }
    }

    /// Applies an answered call to the model, at the time in the answer.
    ///
    /// # Errors
    /// If the model's answer differs.
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

    /// All changes are on disk.
    pub fn synced(&mut self) {
        self.unsynced.clear();
    }

    /// A loss of power left this: it must be one of the states since all data was last on disk.
    ///
    /// # Errors
    /// If it is none of them.
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

/// The image of a model.
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

/// The image of a volume of a store.
///
/// # Errors
/// If the store cannot read a record or a body.
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
                for entry in volume.read_dir(no, Cookie::START, usize::MAX).map_err(say)?.0 {
                    entries.insert(entry.name, (entry.target.vnode, entry.target.unique));
                }
            }
            _ => {
                let reader = volume.reader_of(&vnode).map_err(say)?;
                data = reader.read(0, usize::MAX).map_err(say)?;
            }
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

/// The model with the versions of `found`, the volume over which it was restored; `None` if they
/// differ otherwise.
pub fn came(tree: &ModelTree, found: &VolumeImage) -> Option<ModelTree> {
    let root = key(Fid::root(VolumeId(0)));
    let (is, was) = (
        found.get(&root)?.status,
        tree.nodes().iter().find(|(fid, _)| key(**fid) == root)?.1.status,
    );
    let mut tree = tree.clone();
    tree.shift_versions(is.status_version.0.checked_sub(was.status_version.0)?);
    (image(&tree) == *found).then_some(tree)
}

/// Where two of them differ, for messages.
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

/// The contents of a sealed epoch.
pub struct Sealed {
    /// As a model, for volumes that begin with it.
    pub tree: ModelTree,
    /// As an image, for comparison.
    pub image: VolumeImage,
}

impl Sealed {
    /// The model's present contents.
    pub fn of(tree: &ModelTree) -> Arc<Self> {
        Arc::new(Sealed { tree: tree.clone(), image: image(tree) })
    }
}
