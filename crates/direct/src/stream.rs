//! Files as streams: reading ahead, and writing behind.
//!
//! A reader has some reads in flight and hands their bytes out in order; a writer sends each full
//! buffer at once and waits only when all its buffers are on their way. An error of a write is
//! reported by a later call, at the latest by [`FileWriter::finish`].

use std::collections::BTreeMap;
use std::io::{self, Read, Write};

use mem::arena::Buffer;
use types::limits::PAYLOAD_BYTES_MAX;

use crate::{Completion, DirectCell, DirectError, DirectFile, Group, Memory};

/// Bytes of one operation: the most that one can move, for each costs a round trip.
const CHUNK: usize = PAYLOAD_BYTES_MAX;
/// Operations in flight: enough for 1 Gbit/s over 60 ms.
const DEPTH: usize = 8;

impl From<DirectError> for io::Error {
    fn from(error: DirectError) -> io::Error {
        io::Error::other(error)
    }
}

/// Reads a file from its begin to its end.
pub struct FileReader {
    file: DirectFile,
    group: Group,
    /// Chunks that came before the one that is next.
    early: BTreeMap<u64, Completion>,
    /// The chunk that is handed out, and how much of it was.
    current: Option<(Buffer, usize)>,
    /// Numbers of the next chunk to hand out, and to ask for.
    next: u64,
    asked: u64,
    /// The file ends with the chunk that was handed out last.
    is_over: bool,
}

/// Writes a file from its begin on.
pub struct FileWriter {
    file: DirectFile,
    group: Group,
    idle: Vec<Buffer>,
    current: Option<(Buffer, usize)>,
    offset: u64,
}

impl FileReader {
    /// Begins to read.
    ///
    /// # Errors
    /// `Memory`; errors of the first reads.
    pub fn new(cell: &DirectCell, file: DirectFile) -> Result<FileReader, DirectError> {
        let memory = cell.memory(DEPTH * CHUNK)?;
        let mut reader = FileReader {
            file,
            group: Group::new(),
            early: BTreeMap::new(),
            current: None,
            next: 0,
            asked: 0,
            is_over: false,
        };
        for buffer in buffers(&memory) {
            reader.ask(buffer)?;
        }
        Ok(reader)
    }

    fn ask(&mut self, mut buffer: Buffer) -> Result<(), DirectError> {
        buffer.resize(CHUNK);
        let chunk = self.asked;
        self.asked += 1;
        let begun = self.file.read(&self.group, buffer, chunk * CHUNK as u64, chunk);
        begun.map_err(|refused| refused.error)
    }

    /// The next bytes, as many as there are at once; none at the end.
    ///
    /// # Errors
    /// Those of the read.
    pub fn chunk(&mut self) -> Result<&[u8], DirectError> {
        let is_used_up = self.current.as_ref().is_none_or(|(buffer, used)| *used >= buffer.len());
        if is_used_up && !self.is_over {
            if let Some((buffer, _)) = self.current.take() {
                self.ask(buffer)?;
            }
            let mut completion = self.take_next();
            self.next += 1;
            let moved = completion.result?;
            self.is_over = moved.bytes < CHUNK;
            completion.buffer.truncate(moved.bytes);
            self.current = Some((completion.buffer, 0));
        }
        Ok(self.current.as_ref().map_or(&[], |(buffer, used)| &buffer[*used..]))
    }

    /// So many of the bytes that [`FileReader::chunk`] returned were used.
    pub fn consume(&mut self, bytes: usize) {
        if let Some((buffer, used)) = &mut self.current {
            *used = (*used + bytes).min(buffer.len());
        }
    }

    fn take_next(&mut self) -> Completion {
        loop {
            if let Some(completion) = self.early.remove(&self.next) {
                return completion;
            }
            let came = self.group.wait(1, None);
            self.early.extend(came.into_iter().map(|completion| (completion.tag, completion)));
        }
    }
}

impl Read for FileReader {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let chunk = self.chunk()?;
        let bytes = chunk.len().min(into.len());
        into[..bytes].copy_from_slice(&chunk[..bytes]);
        self.consume(bytes);
        Ok(bytes)
    }
}

/// As many buffers as operations are in flight.
fn buffers(memory: &Memory) -> Vec<Buffer> {
    (0..DEPTH).map_while(|_| memory.buffer(CHUNK)).collect()
}

impl FileWriter {
    /// Begins to write at the begin of the file, which keeps the bytes that are not written over.
    ///
    /// # Errors
    /// `Memory`.
    pub fn new(cell: &DirectCell, file: DirectFile) -> Result<FileWriter, DirectError> {
        let idle = buffers(&cell.memory(DEPTH * CHUNK)?);
        Ok(FileWriter { file, group: Group::new(), idle, current: None, offset: 0 })
    }

    /// Sends what was written, and waits until all of it is stable.
    ///
    /// # Errors
    /// The first error of a write that was not reported; those of the commit.
    pub fn finish(mut self) -> Result<(), DirectError> {
        self.send()?;
        while !self.group.is_empty() {
            self.collect()?;
        }
        self.file.commit()
    }

    /// Begins to write the current buffer.
    fn send(&mut self) -> Result<(), DirectError> {
        let Some((mut buffer, used)) = self.current.take().filter(|(_, used)| *used > 0) else {
            return Ok(());
        };
        buffer.truncate(used);
        let begun = self.file.write(&self.group, buffer, self.offset, self.offset);
        self.offset += used as u64;
        begun.map_err(|refused| refused.error)
    }

    /// Waits for one write at least.
    fn collect(&mut self) -> Result<(), DirectError> {
        for Completion { mut buffer, result, .. } in self.group.wait(1, None) {
            buffer.resize(CHUNK);
            self.idle.push(buffer);
            result?;
        }
        Ok(())
    }
}

impl Write for FileWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.current.is_none() {
            while self.idle.is_empty() {
                self.collect()?;
            }
            self.current = self.idle.pop().map(|buffer| (buffer, 0));
        }
        let (buffer, used) = self.current.as_mut().expect("there is an idle buffer");
        let room = (buffer.len() - *used).min(bytes.len());
        buffer[*used..*used + room].copy_from_slice(&bytes[..room]);
        *used += room;
        if *used == buffer.len() {
            self.send()?;
        }
        Ok(room)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.send()?;
        while !self.group.is_empty() {
            self.collect()?;
        }
        Ok(())
    }
}
