//! The files that scenarios use on a side: made once, the same on every side.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::files::{create_in, text, unpack, write_file};
use super::side::Side;
use super::{MeasuredFrom, Scenario, Size};

/// Files per directory of large trees.
const FILES_A_DIRECTORY: usize = 100;

/// The files of one side.
#[derive(Clone)]
pub struct Fixture {
    /// Counts and sizes of the files.
    pub size: Size,
    root: PathBuf,
    /// 4 KiB files.
    pub small: Vec<PathBuf>,
    /// Missing names beside them.
    pub absent: Vec<PathBuf>,
    /// An archive, outside the side.
    pub archive: PathBuf,
}

impl Fixture {
    /// A large file.
    pub fn large(&self) -> PathBuf {
        self.root.join("large")
    }

    /// A directory with many entries.
    pub fn listed(&self) -> PathBuf {
        self.root.join("listed")
    }

    /// The unpacked archive.
    pub fn tree(&self) -> PathBuf {
        self.root.join("tree")
    }

    /// A path that does not exist: for files that a scenario makes.
    pub fn fresh(&self) -> PathBuf {
        self.root.join("fresh")
    }

    /// The directories of empty files that `scenario` needs.
    pub fn empty_files(&self, scenario: Scenario) -> impl Iterator<Item = PathBuf> {
        empty_directories(scenario).map(|(name, _)| self.root.join(name))
    }

    /// Count of its empty files.
    pub fn empty_count(&self, scenario: Scenario) -> f64 {
        scenario.empty_files().unwrap_or(0) as f64
    }

    /// No files, for a side that cannot have any.
    pub fn none(size: Size) -> Fixture {
        let nowhere = PathBuf::new();
        Fixture {
            size,
            root: nowhere.clone(),
            small: Vec::new(),
            absent: Vec::new(),
            archive: nowhere,
        }
    }

    /// The same files seen from elsewhere.
    pub fn seen_at(&self, root: &Path) -> Fixture {
        Fixture { root: root.to_owned(), ..self.clone() }
    }

    /// Makes on `side` the files for those of `scenarios` that it takes part in.
    ///
    /// # Errors
    /// If a file cannot be made, or the measurement is interrupted.
    pub fn make(
        side: &mut dyn Side,
        size: Size,
        scenarios: &[Scenario],
        archive: &Path,
    ) -> io::Result<Fixture> {
        let takes = |scenario: &Scenario| side.has_files() && side.takes(*scenario).is_ok();
        let taken: Vec<Scenario> = scenarios.iter().copied().filter(takes).collect();
        let needs = |wanted: &[Scenario]| taken.iter().any(|scenario| wanted.contains(scenario));
        let root = side.root(MeasuredFrom::Local).to_owned();
        let mut fixture = Fixture {
            size,
            root,
            small: Vec::new(),
            absent: Vec::new(),
            archive: archive.to_owned(),
        };
        use Scenario as S;
        let far = [
            S::RemoteSeqRead,
            S::RemoteSeqReadFirst,
            S::RemoteReadWarm,
            S::RemoteMmapWarm,
            S::RemoteRandWarm,
        ];
        if needs(&[S::SeqReadWarm, S::SeqReadCold, S::MmapReadWarm, S::RandReadWarm]) || needs(&far)
        {
            write_file(&fixture.large(), size.file_bytes, true)?;
        }
        let small = [
            S::ReadSmallWarm,
            S::ReadSmallFirst,
            S::ReadSmallCold,
            S::StatWarm,
            S::StatAbsent,
            S::StatFirst,
        ];
        if needs(&small) || needs(&[S::MemoryInode, S::Memory5m]) {
            fixture.make_small()?;
        }
        if needs(&[S::ListCold]) {
            fs::create_dir(fixture.listed())?;
            create_in(&fixture.listed(), size.entries)?;
        }
        if needs(&[S::DuCold, S::DuWarm, S::GrepCold, S::GrepWarm]) {
            unpack(archive, &fixture.tree())?;
        }
        let mut directories: Vec<(String, usize)> =
            taken.iter().flat_map(|scenario| empty_directories(*scenario)).collect();
        directories.sort_unstable();
        directories.dedup();
        directories.into_iter().try_for_each(|(name, count)| side.fill(&name, count))?;
        Ok(fixture)
    }

    fn make_small(&mut self) -> io::Result<()> {
        for first in (0..self.size.files).step_by(FILES_A_DIRECTORY) {
            let dir = self.root.join(format!("small/dir-{first:06}"));
            fs::create_dir_all(&dir)?;
            let here = FILES_A_DIRECTORY.min(self.size.files - first);
            create_in(&dir, here)?;
            self.small.extend((0..here).map(|number| dir.join(format!("file-{number:06}"))));
            self.absent.extend((0..here).map(|number| dir.join(format!("absent-{number:06}"))));
        }
        Ok(())
    }
}

/// The directories of empty files that `scenario` needs: their names, and the count of files in
/// each.
fn empty_directories(scenario: Scenario) -> impl Iterator<Item = (String, usize)> {
    let directories = scenario.empty_directories();
    let files = scenario.empty_files();
    files.into_iter().flat_map(move |files| {
        (0..directories)
            .map(move |number| (format!("empty-{files}-{number:03}"), files / directories))
    })
}

/// An archive shaped like a source tree: text, most files small, a few long, several levels of
/// directories.
///
/// # Errors
/// If a file cannot be made, or `tar` fails.
pub fn archive(scratch: &Path, files: usize) -> io::Result<PathBuf> {
    let tree = scratch.join("archive-tree");
    let mut random = SmallRng::seed_from_u64(3);
    for number in 0..files {
        let dir = tree.join(format!("part-{:02}/sub-{:02}", number % 17, number % 5));
        fs::create_dir_all(&dir)?;
        // Between 256 bytes and 256 KiB, evenly on a logarithmic scale: a median of 8 KiB, as in
        // real source trees.
        let length = 2f64.powf(random.random_range(8.0..18.0)) as usize;
        fs::write(dir.join(format!("source-{number:05}.c")), text(length, number as u64))?;
    }
    let archive = scratch.join("archive.tar");
    let status =
        Command::new("tar").arg("-cf").arg(&archive).arg("-C").arg(&tree).arg(".").status()?;
    if !status.success() {
        return Err(io::Error::other(format!("tar: {status}")));
    }
    fs::remove_dir_all(tree)?;
    Ok(archive)
}
