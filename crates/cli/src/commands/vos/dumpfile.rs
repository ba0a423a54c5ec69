//! The form of a dump: a line that identifies it, a header, the parts of a stream, and an end that
//! proves it complete.
//!
//! Each of them is a *frame*: its kind, its length, its bytes, and the crc32c of all that. Header
//! and end are JSON, so that people can read them and later programs can add fields; parts have a
//! form, and a checksum, of their own (`store::stream`). Frames are checked one by one, and a dump
//! is accepted only with its end: parts follow each other without a gap, and their count is that of
//! the end.

use std::io::{Read, Write};

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use store::{StreamHead, StreamPart};
use types::StreamCursor;
use types::limits::PAYLOAD_BYTES_MAX;
use vos::Part;

/// The first line; the number is that of the form.
const MAGIC: &[u8] = b"rialto dump 1\n";
/// The beginning of the first line, in any form.
const MAGIC_OF_ALL: &[u8] = b"rialto dump ";
const HEADER: u8 = 1;
const PART: u8 = 2;
const END: u8 = 3;
/// Limit of a frame that is read into memory.
const FRAME_BYTES_MAX: usize = PAYLOAD_BYTES_MAX;

/// The content of a dump.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    /// The cell of the dump.
    pub cell: String,
    /// The dumped volume's name; its number follows.
    pub name: String,
    pub id: u64,
    /// The number of its tree: that of the read-write volume.
    pub tree: u64,
    /// The epoch that it brings, and the one that it starts from; 0: none.
    pub epoch: u64,
    pub since: u64,
    /// The volume that showed that epoch.
    pub since_name: Option<String>,
    /// When the volume was sealed, in seconds since 1970.
    pub sealed: i64,
    /// When the read-write volume was made, in seconds since 1970. Older programs do not write it.
    #[serde(default)]
    pub created: Option<i64>,
    /// When the volume was last updated, as above.
    #[serde(default)]
    pub updated: Option<i64>,
    /// Quota of the read-write volume; 0: none.
    pub quota_bytes: u64,
    pub quota_files: u64,
    pub used_bytes: u64,
    pub used_files: u64,
}

#[derive(Serialize, Deserialize)]
struct End {
    parts: u64,
    bytes: u64,
}

/// Why a dump is rejected.
#[derive(Debug, thiserror::Error)]
pub enum DumpError {
    #[error("{0}")]
    Io(#[from] std::io::Error),
    #[error("it is {0}, no dump of this program")]
    Foreign(&'static str),
    #[error(
        "it has a form that this program does not know; use the program that wrote it, or a newer \
            one"
    )]
    Newer,
    #[error("it is cut off: its end is missing")]
    CutOff,
    #[error("it is damaged: {0}")]
    Damaged(&'static str),
}

type Result<T> = std::result::Result<T, DumpError>;

/// Writes a dump.
pub struct DumpWriter<W> {
    to: W,
    parts: u64,
    bytes: u64,
}

impl<W: Write> DumpWriter<W> {
    /// # Errors
    /// If the file cannot be read or written, or its beginning is not that of a dump.
    pub fn new(mut to: W, header: &Header) -> Result<Self> {
        to.write_all(MAGIC)?;
        let mut writer = DumpWriter { to, parts: 0, bytes: 0 };
        writer.frame(HEADER, &serde_json::to_vec(header).map_err(std::io::Error::from)?)?;
        Ok(writer)
    }

    pub(crate) fn part(&mut self, part: &[u8]) -> Result<()> {
        self.parts += 1;
        self.bytes += part.len() as u64;
        self.frame(PART, part)
    }

    /// Ends the dump; returns the writer, and the count of bytes of parts.
    pub(crate) fn end(mut self) -> Result<(W, u64)> {
        let end = End { parts: self.parts, bytes: self.bytes };
        self.frame(END, &serde_json::to_vec(&end).map_err(std::io::Error::from)?)?;
        self.to.flush()?;
        Ok((self.to, self.bytes))
    }

    fn frame(&mut self, kind: u8, bytes: &[u8]) -> Result<()> {
        let head = head(kind, bytes.len());
        self.to.write_all(&head)?;
        self.to.write_all(bytes)?;
        self.to.write_all(&sum(&head, bytes).to_le_bytes())?;
        Ok(())
    }
}

fn head(kind: u8, length: usize) -> [u8; 5] {
    let mut head = [kind, 0, 0, 0, 0];
    head[1..].copy_from_slice(&(length as u32).to_le_bytes());
    head
}

fn sum(head: &[u8], bytes: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(head), bytes)
}

/// Reads a dump.
pub struct DumpReader<R> {
    from: R,
    pub header: Header,
    parts: u64,
    bytes: u64,
    next: StreamCursor,
    head: Option<StreamHead>,
}

impl<R: Read> DumpReader<R> {
    /// # Errors
    /// If the file cannot be read or written, or its beginning is not that of a dump.
    pub fn new(mut from: R) -> Result<Self> {
        let mut magic = [0; MAGIC.len()];
        let had = fill(&mut from, &mut magic)?;
        if magic != MAGIC {
            return Err(what_else(&magic[..had], &mut from));
        }
        let (kind, bytes) = frame(&mut from)?;
        if kind != HEADER {
            return Err(DumpError::Damaged("its header is missing"));
        }
        let header = serde_json::from_slice(&bytes)
            .map_err(|_| DumpError::Damaged("its header cannot be read"))?;
        Ok(DumpReader { from, header, parts: 0, bytes: 0, next: StreamCursor::START, head: None })
    }

    /// Returns the next part; `None`: the dump is complete.
    ///
    /// # Errors
    /// If the file cannot be read, or a frame is damaged or missing.
    pub fn next(&mut self) -> Result<Option<Part>> {
        let (kind, bytes) = frame(&mut self.from)?;
        match kind {
            PART => self.part(bytes).map(Some),
            END => self.end(&bytes).map(|()| None),
            _ => Err(DumpError::Damaged("it has an unknown frame")),
        }
    }

    fn part(&mut self, bytes: Bytes) -> Result<Part> {
        let part = StreamPart::open(&bytes).and_then(|part| part.check().map(|()| part));
        let part = part.map_err(|_| DumpError::Damaged("a part of it cannot be read"))?;
        let head = *self.head.get_or_insert(part.head);
        let header = &self.header;
        let fits =
            (head.tree.0, head.epoch, head.since) == (header.tree, header.epoch, header.since);
        if !fits || head.usage != part.head.usage || head.hash_key != part.head.hash_key {
            return Err(DumpError::Damaged("its parts are of different volumes"));
        }
        if part.from != self.next {
            return Err(DumpError::Damaged("a part of it is missing"));
        }
        self.next = part.to;
        self.parts += 1;
        self.bytes += bytes.len() as u64;
        Ok(Part { from: part.from, to: part.to, bytes })
    }

    fn end(&mut self, bytes: &[u8]) -> Result<()> {
        let end: End = serde_json::from_slice(bytes)
            .map_err(|_| DumpError::Damaged("its end cannot be read"))?;
        if (end.parts, end.bytes) != (self.parts, self.bytes) || self.next != StreamCursor::END {
            return Err(DumpError::Damaged("a part of it is missing"));
        }
        match fill(&mut self.from, &mut [0])? {
            0 => Ok(()),
            _ => Err(DumpError::Damaged("bytes follow its end")),
        }
    }

    /// Reads and checks all of it; returns the bytes of its parts.
    ///
    /// # Errors
    /// If the file cannot be read, or a frame is damaged or missing.
    pub fn verify(mut self) -> Result<(Header, u64)> {
        while self.next()?.is_some() {}
        Ok((self.header, self.bytes))
    }
}

fn frame(from: &mut impl Read) -> Result<(u8, Bytes)> {
    let mut head = [0; 5];
    if fill(from, &mut head)? < head.len() {
        return Err(DumpError::CutOff);
    }
    let [kind, length @ ..] = head;
    let length = u32::from_le_bytes(length) as usize;
    if length > FRAME_BYTES_MAX {
        return Err(DumpError::Damaged("a length in it is wrong"));
    }
    let mut bytes = vec![0; length];
    let mut found = [0; 4];
    if fill(from, &mut bytes)? < length || fill(from, &mut found)? < found.len() {
        return Err(DumpError::CutOff);
    }
    if u32::from_le_bytes(found) != sum(&head, &bytes) {
        return Err(DumpError::Damaged("a checksum in it is wrong"));
    }
    Ok((kind, bytes.into()))
}

/// Fills the buffer as far as bytes come.
fn fill(from: &mut impl Read, buffer: &mut [u8]) -> Result<usize> {
    let mut had = 0;
    while had < buffer.len() {
        match from.read(&mut buffer[had..]) {
            Ok(0) => break,
            Ok(count) => had += count,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(had)
}

/// The error for a file with another beginning; it names the format if that is known.
fn what_else(begins: &[u8], from: &mut impl Read) -> DumpError {
    // Source: OpenAFS src/volser/dump.h, D_DUMPHEADER and DUMPBEGINMAGIC.
    const OPENAFS: [u8; 5] = [1, 0xb3, 0xa1, 0x13, 0x22];
    let known: [(&[u8], &str); 6] = [
        (&OPENAFS, "a dump of OpenAFS"),
        (b"\x1f\x8b", "compressed by gzip"),
        (b"\x28\xb5\x2f\xfd", "compressed by zstd"),
        (b"\xfd7zXZ", "compressed by xz"),
        (b"PK\x03\x04", "a zip archive"),
        (b"BZh", "compressed by bzip2"),
    ];
    if begins.starts_with(MAGIC_OF_ALL) {
        return DumpError::Newer;
    }
    if begins.is_empty() {
        return DumpError::Foreign("empty");
    }
    if MAGIC.starts_with(begins) {
        return DumpError::CutOff;
    }
    if let Some((_, what)) = known.iter().find(|(magic, _)| begins.starts_with(magic)) {
        return DumpError::Foreign(what);
    }
    // A tar archive has its magic from the 258th byte on.
    let mut rest = [0; 248];
    let had = fill(from, &mut rest).unwrap_or(0);
    let at = 257 - MAGIC.len();
    if rest[..had].get(at..at + 5) == Some(b"ustar") {
        return DumpError::Foreign("a tar archive");
    }
    DumpError::Foreign("something else")
}

#[cfg(test)]
mod tests {
    use store::{MemMachine, NewClone, NewRoot, OpenOptions, Partition, VolumeQuota};
    use types::{Name, Timestamp, VolumeKind};

    use super::*;

    /// A dump of an empty volume.
    fn dump() -> Vec<u8> {
        let partition = Partition::open_memory(&MemMachine::new(), OpenOptions::default()).unwrap();
        let name = |text: &str| Name::new(text.as_bytes()).unwrap();
        let now = Timestamp::new(1, 0);
        let root = NewRoot { mode: 0o755, uid: 0, gid: 0, now, quota: VolumeQuota::default() };
        let volume = partition.volumes().create_volume(&name("v"), &root).unwrap();
        let new =
            NewClone { id: None, name: name("s"), kind: VolumeKind::Snapshot, now, replaces: None };
        let sealed = partition.volumes().clone_volume(volume.id(), &new).unwrap();
        let header = Header {
            cell: "example.org".into(),
            name: "v".into(),
            id: sealed.id().0,
            tree: volume.id().0,
            epoch: sealed.epoch(),
            since: 0,
            since_name: None,
            sealed: 1,
            created: Some(5),
            updated: None,
            quota_bytes: 0,
            quota_files: 0,
            used_bytes: 4096,
            used_files: 1,
        };
        let mut writer = DumpWriter::new(Vec::new(), &header).unwrap();
        writer.part(&store::changes_part(&sealed, 0, StreamCursor::START, 0).unwrap()).unwrap();
        writer.end().unwrap().0
    }

    fn verify(bytes: &[u8]) -> Result<(Header, u64)> {
        DumpReader::new(bytes)?.verify()
    }

    #[test]
    fn a_whole_dump_is_taken_and_no_part_of_it() {
        let dump = dump();
        let (header, bytes) = verify(&dump).unwrap();
        assert_eq!((header.name.as_str(), header.used_files, bytes > 0), ("v", 1, true));
        for length in 0..dump.len() {
            assert!(verify(&dump[..length]).is_err(), "{length} bytes of it");
        }
        assert!(matches!(verify(&dump[..dump.len() - 1]), Err(DumpError::CutOff)));
        assert!(matches!(verify(&[&dump[..], b"x"].concat()), Err(DumpError::Damaged(_))));
    }

    #[test]
    fn a_damaged_byte_is_found_wherever_it_is() {
        let dump = dump();
        for at in 0..dump.len() {
            let mut bad = dump.clone();
            bad[at] ^= 0x20;
            assert!(verify(&bad).is_err(), "byte {at}");
        }
    }

    #[test]
    fn what_others_wrote_is_called_by_its_name() {
        let tar = [&[b'a'; 257][..], b"ustar\0", &[0; 300]].concat();
        for (bytes, what) in [
            (&b"\x01\xb3\xa1\x13\x22\0\0\0\x01v\0\0and more of it"[..], "OpenAFS"),
            (b"\x1f\x8b and so on, as gzip has it", "gzip"),
            (&tar, "tar"),
            (b"", "empty"),
            (b"Dear Sir or Madam, and so on", "something else"),
        ] {
            let error = verify(bytes).unwrap_err().to_string();
            assert!(error.contains(what), "{error}");
        }
        assert!(matches!(verify(b"rialto dump 9\nwhatever it holds"), Err(DumpError::Newer)));
    }
}
