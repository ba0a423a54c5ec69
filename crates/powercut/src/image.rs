//! The bytes of a drive, sparse, and cheap to copy.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use rustix::fs::SeekFrom;
use rustix::io::Errno;

const PAGE_BYTES: usize = 4096;

type Page = [u8; PAGE_BYTES];

/// The contents of a drive. Copies share the pages that neither of them changed.
#[derive(Clone)]
pub struct DriveImage {
    /// `None` is a page of zeros that was never written.
    pages: Vec<Option<Arc<Page>>>,
}

impl DriveImage {
    /// An image of zeros.
    ///
    /// # Panics
    /// If `bytes` is no multiple of 4096.
    pub fn new(bytes: u64) -> DriveImage {
        assert!(
            bytes.is_multiple_of(PAGE_BYTES as u64),
            "a drive of {bytes} bytes has no whole pages"
        );
        DriveImage { pages: vec![None; (bytes / PAGE_BYTES as u64) as usize] }
    }

    /// An empty ext4 file system of so many bytes. Its file is in the directory `scratch`
    /// meanwhile.
    ///
    /// # Errors
    /// If `mkfs.ext4` is missing or fails, or its file cannot be written or read.
    pub fn ext4(bytes: u64, scratch: &Path) -> io::Result<DriveImage> {
        let path = scratch.join("mkfs");
        File::create(&path)?.set_len(bytes)?;
        // Fixed numbers, and no work that the kernel would do later in the background.
        let fixed = "nodiscard,lazy_itable_init=0,lazy_journal_init=1,\
        hash_seed=6b1d0c3e-8f52-4f5a-9d60-0a5b7c1e2f34";
        let mut command = Command::new("mkfs.ext4");
        command
            .args(["-q", "-F", "-b", "4096", "-N", "8192", "-J", "size=16", "-E", fixed])
            .arg(&path);
        let output = command.output()?;
        if !output.status.success() {
            return Err(io::Error::other(
                String::from_utf8_lossy(&output.stderr).trim().to_owned(),
            ));
        }
        let image = DriveImage::load(&path)?;
        std::fs::remove_file(&path)?;
        Ok(image)
    }

    /// The image in a file.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn load(path: &Path) -> io::Result<DriveImage> {
        let file = File::open(path)?;
        let bytes = file.metadata()?.len();
        let mut image = DriveImage::new(bytes);
        let mut at = 0;
        loop {
            let start = match rustix::fs::seek(&file, SeekFrom::Data(at)) {
                Ok(start) => start,
                Err(Errno::NXIO) => return Ok(image),
                Err(error) => return Err(error.into()),
            };
            let end = rustix::fs::seek(&file, SeekFrom::Hole(start))?;
            let mut data = vec![0; (end - start) as usize];
            file.read_exact_at(&mut data, start)?;
            image.write(start, &data);
            at = end;
        }
    }

    /// Writes the image into a file, for tools that read files.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn save(&self, path: &Path) -> io::Result<()> {
        let file = File::create(path)?;
        file.set_len(self.bytes())?;
        for (at, page) in self.pages.iter().enumerate() {
            if let Some(page) = page {
                file.write_all_at(&page[..], (at * PAGE_BYTES) as u64)?;
            }
        }
        Ok(())
    }

    /// Its length in bytes.
    pub fn bytes(&self) -> u64 {
        (self.pages.len() * PAGE_BYTES) as u64
    }

    /// Fills `into`; bytes behind the end are zeros.
    pub(crate) fn read(&self, offset: u64, into: &mut [u8]) {
        each_page(offset, into.len(), |page, within, range| {
            let part = &mut into[range];
            match self.pages.get(page) {
                Some(Some(page)) => part.copy_from_slice(&page[within..within + part.len()]),
                _ => part.fill(0),
            }
        });
    }

    /// Writes `data` at `offset`; bytes behind the end are dropped.
    pub(crate) fn write(&mut self, offset: u64, data: &[u8]) {
        each_page(offset, data.len(), |page, within, range| {
            let Some(page) = self.pages.get_mut(page) else { return };
            let page = page.get_or_insert_with(|| Arc::new([0; PAGE_BYTES]));
            let part = &data[range];
            Arc::make_mut(page)[within..within + part.len()].copy_from_slice(part);
        });
    }
}

/// Calls `visit` with the number of each page, where in the page it begins, and the part of the
/// range.
fn each_page(
    offset: u64,
    length: usize,
    mut visit: impl FnMut(usize, usize, std::ops::Range<usize>),
) {
    let mut done = 0;
    while done < length {
        let at = offset as usize + done;
        let within = at % PAGE_BYTES;
        let count = (PAGE_BYTES - within).min(length - done);
        visit(at / PAGE_BYTES, within, done..done + count);
        done += count;
    }
}
