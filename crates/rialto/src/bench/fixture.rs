//! The files that scenarios find on a side: made once, the same on every side.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::scenario::{create_in, noise, write_file};
use super::{Scenario, Size};

/// Files a directory holds where there are many.
const FILES_A_DIRECTORY: usize = 100;

/// What one side has.
pub struct Fixture {
    /// How much there is of each.
    pub size: Size,
    /// A large file.
    pub large: PathBuf,
    /// 4 KiB files.
    pub small: Vec<PathBuf>,
    /// A directory with many entries.
    pub listed: PathBuf,
    /// An archive, outside the side.
    pub archive: PathBuf,
    /// A path that does not exist: for what a scenario makes.
    pub fresh: PathBuf,
}

impl Fixture {
    /// Makes what `scenarios` need below `root`.
    pub fn make(root: &Path, size: Size, scenarios: &[Scenario], archive: &Path) -> io::Result<Fixture> {
        let needs = |wanted: &[Scenario]| scenarios.iter().any(|scenario| wanted.contains(scenario));
        let mut fixture = Fixture {
            size,
            large: root.join("large"),
            small: Vec::new(),
            listed: root.join("listed"),
            archive: archive.to_owned(),
            fresh: root.join("fresh"),
        };
        use Scenario::{ListCold, MmapReadWarm, RandReadWarm, ReadSmallCold, ReadSmallWarm, SeqReadCold, SeqReadWarm};
        if needs(&[SeqReadWarm, SeqReadCold, MmapReadWarm, RandReadWarm]) {
            write_file(&fixture.large, size.file_bytes)?;
        }
        if needs(&[ReadSmallWarm, ReadSmallCold, Scenario::StatWarm, Scenario::StatFirst]) {
            fixture.small = small_files(&root.join("small"), size.files)?;
        }
        if needs(&[ListCold]) {
            fs::create_dir(&fixture.listed)?;
            create_in(&fixture.listed, size.entries)?;
        }
        Ok(fixture)
    }
}

fn small_files(root: &Path, count: usize) -> io::Result<Vec<PathBuf>> {
    let mut paths = Vec::with_capacity(count);
    for first in (0..count).step_by(FILES_A_DIRECTORY) {
        let dir = root.join(format!("dir-{first:06}"));
        fs::create_dir_all(&dir)?;
        let here = FILES_A_DIRECTORY.min(count - first);
        create_in(&dir, here)?;
        paths.extend((0..here).map(|number| dir.join(format!("file-{number:06}"))));
    }
    Ok(paths)
}

/// An archive shaped like a source tree: most files small, a few long, several levels of directories.
pub fn archive(scratch: &Path, files: usize) -> io::Result<PathBuf> {
    let tree = scratch.join("archive-tree");
    let mut random = SmallRng::seed_from_u64(3);
    for number in 0..files {
        let dir = tree.join(format!("part-{:02}/sub-{:02}", number % 17, number % 5));
        fs::create_dir_all(&dir)?;
        // Between 256 bytes and 256 KiB, evenly on a logarithmic scale: a median of 8 KiB, as in real source trees.
        let length = 2f64.powf(random.random_range(8.0..18.0)) as usize;
        fs::write(dir.join(format!("source-{number:05}.c")), noise(length, number as u64))?;
    }
    let archive = scratch.join("archive.tar");
    let status = Command::new("tar").arg("-cf").arg(&archive).arg("-C").arg(&tree).arg(".").status()?;
    if !status.success() {
        return Err(io::Error::other(format!("tar: {status}")));
    }
    fs::remove_dir_all(tree)?;
    Ok(archive)
}
