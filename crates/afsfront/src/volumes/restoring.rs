//! Dumps that come in, as `vos restore` and volume servers of AFS send them.
//!
//! Model: a dump has all vnodes of a volume. Those without attributes did not change since the dump
//! before, and are here already. The others come with their numbers and all that they have; a
//! directory's entries wait until the end (`Assembly`). The dump may say anything: what does not
//! fit together is left out.

use afs3::directory::{DirectoryReader, PAGE_BYTES, PAGES_MAX};
use afs3::dump::{DUMP_VERSION, DumpItem, DumpParser, VnodeAttributes, VolumeAttributes};
use afs3::errors::VOLSERREAD_DUMPERROR;
use afs3::rights::{STORED_ACL_BYTES, StoredAcl};
use bytes::Bytes;
use guard::{Acl, Rights};
use types::{
    Assembly, ComingEntry, ComingVnode, Kind, MountPoint, Name, PrincipalId, Timestamp, Uniquifier,
    VnodeNo,
};

use super::dumping::{DIRECTORY, FILE, SYMLINK};
use crate::{CallStream, Refusal};

/// The dump cannot be read.
const BAD_DUMP: Refusal = Refusal(VOLSERREAD_DUMPERROR);
/// Bytes that are read at once.
const PIECE_BYTES: usize = 64 << 10;
/// Bytes of a file that are written at once.
const WRITTEN_BYTES: usize = 1 << 20;
/// The longest target of a link.
const TARGET_BYTES_MAX: u64 = 4096;

/// The vnode whose contents come.
enum OpenVnode {
    /// None, or one without contents.
    None,
    /// A file, which is written from this offset on, and bytes that are not written yet.
    File {
        vnode: VnodeNo,
        offset: u64,
        unwritten: Vec<u8>,
    },
    Directory {
        vnode: VnodeNo,
        pages: Vec<u8>,
    },
    /// It is a mount point or not, which its target shows.
    Link {
        coming: ComingVnode,
        is_plain: bool,
        target: Vec<u8>,
    },
}

/// A dump that is being read.
pub(super) struct IncomingDump {
    assembly: Box<dyn Assembly>,
    open: OpenVnode,
    volume: VolumeAttributes,
}

impl IncomingDump {
    /// Reads a dump to its end; returns what it says of the volume.
    ///
    /// # Errors
    /// `VOLSERREAD_DUMPERROR`: it is none, ends early, or is of another volume's state than the one
    /// here; those of the assembly.
    pub fn read(
        assembly: Box<dyn Assembly>,
        stream: &mut dyn CallStream,
    ) -> Result<VolumeAttributes, Refusal> {
        let volume = VolumeAttributes::default();
        let mut dump = IncomingDump { assembly, open: OpenVnode::None, volume };
        let mut parser = DumpParser::new();
        loop {
            let piece = stream.take(PIECE_BYTES).map_err(|_| BAD_DUMP)?;
            let mut rest = &piece[..];
            while let Some(item) = parser.next(&mut rest).map_err(|_| BAD_DUMP)? {
                if dump.item(item)? {
                    let as_of = Timestamp::new(dump.volume.created.into(), 0);
                    dump.assembly.finish(as_of)?;
                    return Ok(dump.volume);
                }
            }
        }
    }

    /// Takes one item; says whether it was the last.
    fn item(&mut self, item: DumpItem<'_>) -> Result<bool, Refusal> {
        match item {
            DumpItem::Header { version: DUMP_VERSION, .. } => {}
            DumpItem::Header { .. } => return Err(BAD_DUMP),
            DumpItem::VolumeHeader { tags } => self.volume = VolumeAttributes::from_tags(&tags),
            DumpItem::Vnode { vnode, unique, tags } => {
                self.close()?;
                let (vnode, unique) = (VnodeNo(vnode.into()), Uniquifier(unique.into()));
                if tags.is_empty() {
                    self.assembly.stays(vnode, unique).map_err(|_| BAD_DUMP)?;
                } else {
                    self.begin(vnode, unique, &VnodeAttributes::from_tags(&tags))?;
                }
            }
            DumpItem::Contents { bytes, .. } => {
                let is_possible = match &self.open {
                    OpenVnode::None => bytes == 0,
                    OpenVnode::File { .. } => bytes <= types::limits::FILE_BYTES_MAX,
                    OpenVnode::Directory { .. } => bytes <= (PAGE_BYTES * PAGES_MAX) as u64,
                    OpenVnode::Link { .. } => bytes <= TARGET_BYTES_MAX,
                };
                if !is_possible {
                    return Err(BAD_DUMP);
                }
            }
            DumpItem::Piece(piece) => self.piece(piece)?,
            DumpItem::Further { .. } => {}
            DumpItem::End => {
                self.close()?;
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn begin(
        &mut self,
        vnode: VnodeNo,
        unique: Uniquifier,
        attributes: &VnodeAttributes,
    ) -> Result<(), Refusal> {
        let time = |secs: u32| Timestamp::new(secs.into(), 0);
        let kind = match attributes.kind {
            FILE => Kind::File,
            DIRECTORY => Kind::Directory,
            SYMLINK => Kind::Symlink,
            // A number that no vnode has.
            0 => return Ok(()),
            _ => return Err(BAD_DUMP),
        };
        let coming = ComingVnode {
            vnode,
            unique,
            kind,
            mode: attributes.mode,
            owner: (attributes.owner, attributes.group.unwrap_or(0)),
            data_version: attributes.data_version.into(),
            modified: time(attributes.client_mod_time),
            changed: time(attributes.server_mod_time),
            list: attributes.acl.as_deref().map(list_of).transpose()?,
        };
        if kind == Kind::Symlink {
            let is_plain = attributes.mode & 0o111 != 0;
            self.open = OpenVnode::Link { coming, is_plain, target: Vec::new() };
            return Ok(());
        }
        self.put(&coming)?;
        self.open = match kind {
            Kind::Directory => OpenVnode::Directory { vnode, pages: Vec::new() },
            _ => OpenVnode::File { vnode, offset: 0, unwritten: Vec::new() },
        };
        Ok(())
    }

    fn put(&mut self, coming: &ComingVnode) -> Result<(), Refusal> {
        self.assembly.put(coming).map_err(|fault| match fault {
            types::Fault::Invalid => BAD_DUMP,
            fault => fault.into(),
        })
    }

    fn piece(&mut self, piece: &[u8]) -> Result<(), Refusal> {
        match &mut self.open {
            OpenVnode::None => {}
            OpenVnode::File { vnode, offset, unwritten } => {
                unwritten.extend_from_slice(piece);
                if unwritten.len() >= WRITTEN_BYTES {
                    self.assembly.write(*vnode, *offset, unwritten)?;
                    *offset += unwritten.len() as u64;
                    unwritten.clear();
                }
            }
            OpenVnode::Directory { pages: bytes, .. } | OpenVnode::Link { target: bytes, .. } => {
                bytes.extend_from_slice(piece);
            }
        }
        Ok(())
    }

    /// The contents of the last vnode are there.
    fn close(&mut self) -> Result<(), Refusal> {
        match std::mem::replace(&mut self.open, OpenVnode::None) {
            OpenVnode::None => Ok(()),
            OpenVnode::File { unwritten, .. } if unwritten.is_empty() => Ok(()),
            OpenVnode::File { vnode, offset, unwritten } => {
                Ok(self.assembly.write(vnode, offset, &unwritten)?)
            }
            OpenVnode::Directory { vnode, pages } => {
                Ok(self.assembly.set_entries(vnode, entries_of(&pages)?)?)
            }
            OpenVnode::Link { coming, is_plain, target } => {
                let is_mount_point = !is_plain && MountPoint::parse(&target).is_ok();
                let kind = if is_mount_point { Kind::MountPoint } else { Kind::Symlink };
                let coming = ComingVnode { kind, ..coming };
                self.put(&coming)?;
                Ok(self.assembly.write(coming.vnode, 0, &target)?)
            }
        }
    }
}

/// The entries of a directory's pages, without itself and its parent.
fn entries_of(pages: &[u8]) -> Result<Vec<ComingEntry>, Refusal> {
    let reader = DirectoryReader::new(pages).map_err(|_| BAD_DUMP)?;
    let mut entries = Vec::new();
    for entry in reader.entries() {
        let entry = entry.map_err(|_| BAD_DUMP)?;
        if matches!(entry.name, b"." | b"..") {
            continue;
        }
        entries.push(ComingEntry {
            name: Name::new(entry.name).map_err(|_| BAD_DUMP)?,
            vnode: VnodeNo(entry.vnode.into()),
            unique: Uniquifier(entry.unique.into()),
        });
    }
    Ok(entries)
}

fn list_of(stored: &[u8; STORED_ACL_BYTES]) -> Result<Bytes, Refusal> {
    let stored = StoredAcl::from_bytes(stored).map_err(|_| BAD_DUMP)?;
    let mut list = Acl::new();
    for (entries, negative) in [(&stored.positive, false), (&stored.negative, true)] {
        for (who, rights) in entries {
            if !list.set(PrincipalId(*who), Rights(rights.0), negative) {
                return Err(BAD_DUMP);
            }
        }
    }
    Ok(Bytes::from(list.encode()))
}
