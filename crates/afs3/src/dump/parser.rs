//! Makes items of the bytes of a dump, in pieces as they arrive.
//!
//! Model: the parser collects the bytes of one attribute, or of the fixed front of a section, until
//! they are complete, and the attributes of one section until something else begins; then the
//! section is an item. Contents are handed out as they are, so memory is bounded by
//! [`SECTION_BYTES_MAX`].

use super::shape::{Shape, missing, shape, value};
use super::{BEGIN_MAGIC, DumpItem, DumpStreamError, DumpTag, END_MAGIC, section};

/// Most bytes of the attributes of a section: far more than any real ones have.
pub const SECTION_BYTES_MAX: usize = 1 << 16;

/// The section whose attributes are being collected.
#[derive(Debug)]
enum Open {
    /// The stream has not begun.
    Nothing,
    Header {
        version: u32,
    },
    VolumeHeader,
    Vnode {
        vnode: u32,
        unique: u32,
    },
    /// The rest of a vnode behind its contents.
    Behind,
    /// The end was read.
    End,
}

/// An item that is next, after the section that was closed for it.
#[derive(Debug)]
enum Next {
    Contents { bytes: u64, wide: bool },
    End,
}

/// Makes items of the bytes of a dump.
#[derive(Debug)]
pub struct DumpParser {
    open: Open,
    tags: Vec<DumpTag>,
    /// Bytes of the attributes in `tags`.
    tags_bytes: usize,
    /// The attribute or front of a section that is incomplete.
    partial: Vec<u8>,
    next: Option<Next>,
    contents_left: u64,
}

impl Default for DumpParser {
    fn default() -> Self {
        DumpParser::new()
    }
}

impl DumpParser {
    /// A parser at the front of a dump.
    pub fn new() -> DumpParser {
        DumpParser {
            open: Open::Nothing,
            tags: Vec::new(),
            tags_bytes: 0,
            partial: Vec::new(),
            next: None,
            contents_left: 0,
        }
    }

    /// The next item. Takes the bytes that it needs off the front of `input`. `None`: all bytes
    /// were taken, and more are needed; after the end, that there are none.
    ///
    /// # Errors
    /// [`DumpStreamError`]. The parser is of no more use.
    pub fn next<'a>(
        &mut self,
        input: &mut &'a [u8],
    ) -> Result<Option<DumpItem<'a>>, DumpStreamError> {
        match self.next.take() {
            Some(Next::End) => return Ok(Some(DumpItem::End)),
            Some(Next::Contents { bytes, wide }) => {
                self.contents_left = bytes;
                return Ok(Some(DumpItem::Contents { bytes, wide }));
            }
            None => {}
        }
        if self.contents_left > 0 {
            return Ok(self.piece(input));
        }
        while !input.is_empty() {
            if matches!(self.open, Open::End) {
                return Err(DumpStreamError::Trailing);
            }
            if !self.collect(input)? {
                continue;
            }
            let bytes = std::mem::take(&mut self.partial);
            if let Some(item) = self.take_in(&bytes)? {
                return Ok(Some(item));
            }
        }
        Ok(None)
    }

    /// Checks that the dump is complete.
    ///
    /// # Errors
    /// [`DumpStreamError::Truncated`].
    pub fn finish(&self) -> Result<(), DumpStreamError> {
        match (&self.open, &self.next) {
            (Open::End, None) => Ok(()),
            _ => Err(DumpStreamError::Truncated),
        }
    }

    fn piece<'a>(&mut self, input: &mut &'a [u8]) -> Option<DumpItem<'a>> {
        let left = usize::try_from(self.contents_left).unwrap_or(usize::MAX);
        let (piece, rest) = input.split_at(left.min(input.len()));
        *input = rest;
        self.contents_left -= piece.len() as u64;
        (!piece.is_empty()).then_some(DumpItem::Piece(piece))
    }

    /// The number of the open section.
    fn section(&self) -> u8 {
        match self.open {
            Open::Header { .. } => section::DUMP_HEADER,
            Open::VolumeHeader => section::VOLUME_HEADER,
            Open::Vnode { .. } | Open::Behind => section::VNODE,
            Open::Nothing | Open::End => section::END,
        }
    }

    fn shape(&self, tag: u8) -> Result<Shape, DumpStreamError> {
        shape(self.section(), tag).ok_or(match self.open {
            Open::Nothing => DumpStreamError::BadMagic,
            _ => DumpStreamError::BadTag(tag),
        })
    }

    /// Adds bytes to what is incomplete; whether it is complete.
    fn collect(&mut self, input: &mut &[u8]) -> Result<bool, DumpStreamError> {
        let wanted = match self.partial.first() {
            None => 1,
            Some(first @ ..=section::LAST) => front_bytes(*first)? - self.partial.len(),
            Some(tag) => {
                let wanted = missing(self.shape(*tag)?, &self.partial);
                let room = SECTION_BYTES_MAX.saturating_sub(self.tags_bytes + self.partial.len());
                if wanted > room {
                    return Err(DumpStreamError::TooLong);
                }
                wanted
            }
        };
        let (taken, rest) = input.split_at(wanted.min(input.len()));
        self.partial.extend_from_slice(taken);
        *input = rest;
        Ok(match self.partial[0] {
            first @ ..=section::LAST => self.partial.len() == front_bytes(first)?,
            tag => missing(self.shape(tag)?, &self.partial) == 0,
        })
    }

    /// Takes in an attribute, or the front of a section. The item is the section that it ends.
    fn take_in(&mut self, bytes: &[u8]) -> Result<Option<DumpItem<'static>>, DumpStreamError> {
        let first = bytes[0];
        if first <= section::LAST {
            return self.begin(first, &bytes[1..]);
        }
        let shape = self.shape(first)?;
        if let Some(tag) = value(shape, bytes) {
            self.tags.push(tag);
            self.tags_bytes += bytes.len();
            return Ok(None);
        }
        let length = bytes[1..].iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte));
        let (bytes, wide) = (length, shape == Shape::LargeContents);
        self.next = Some(Next::Contents { bytes, wide });
        match self.close(Open::Behind) {
            Some(item) => Ok(Some(item)),
            // The contents are the next item at once.
            None => {
                self.next = None;
                self.contents_left = bytes;
                Ok(Some(DumpItem::Contents { bytes, wide }))
            }
        }
    }

    /// Begins a section; the item is the one before it.
    fn begin(
        &mut self,
        first: u8,
        front: &[u8],
    ) -> Result<Option<DumpItem<'static>>, DumpStreamError> {
        let word = |at: usize| {
            front[at..at + 4].iter().fold(0, |sum: u32, byte| sum << 8 | u32::from(*byte))
        };
        let open = match (&self.open, first) {
            (Open::Nothing, section::DUMP_HEADER) if word(0) == BEGIN_MAGIC => {
                Open::Header { version: word(4) }
            }
            (Open::Nothing, _) => return Err(DumpStreamError::BadMagic),
            (_, section::VOLUME_HEADER) => Open::VolumeHeader,
            (Open::Header { .. }, _) | (_, section::DUMP_HEADER) => {
                return Err(DumpStreamError::BadSection(first));
            }
            (_, section::VNODE) => Open::Vnode { vnode: word(0), unique: word(4) },
            (_, section::END) if word(0) == END_MAGIC => {
                self.next = Some(Next::End);
                Open::End
            }
            (_, section::END) => return Err(DumpStreamError::BadMagic),
            _ => return Err(DumpStreamError::BadSection(first)),
        };
        let closed = self.close(open);
        if closed.is_none() && matches!(self.next, Some(Next::End)) {
            self.next = None;
            return Ok(Some(DumpItem::End));
        }
        Ok(closed)
    }

    /// Ends the open section and begins another.
    fn close(&mut self, next: Open) -> Option<DumpItem<'static>> {
        let tags = std::mem::take(&mut self.tags);
        self.tags_bytes = 0;
        match std::mem::replace(&mut self.open, next) {
            Open::Nothing | Open::End => None,
            Open::Header { version } => Some(DumpItem::Header { version, tags }),
            Open::VolumeHeader => Some(DumpItem::VolumeHeader { tags }),
            Open::Vnode { vnode, unique } => Some(DumpItem::Vnode { vnode, unique, tags }),
            Open::Behind if tags.is_empty() => None,
            Open::Behind => Some(DumpItem::Further { tags }),
        }
    }
}

/// The bytes of the fixed front of a section, its first byte included.
fn front_bytes(first: u8) -> Result<usize, DumpStreamError> {
    match first {
        section::DUMP_HEADER | section::VNODE => Ok(9),
        section::VOLUME_HEADER => Ok(1),
        section::END => Ok(5),
        _ => Err(DumpStreamError::BadSection(first)),
    }
}
