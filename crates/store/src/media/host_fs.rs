//! The file system below a partition: whether it compresses files, so that the store does not
//! compress them twice.

use std::path::Path;

/// The component that compresses bodies that only sealed epochs show.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Compression {
    /// None.
    #[default]
    None,
    /// The file system below: its kind, and the method if known.
    Below(String),
    /// The partition itself (`pack.rs`).
    Packed,
}

impl std::fmt::Display for Compression {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Compression::None => f.write_str("none"),
            Compression::Below(how) => f.write_str(how),
            Compression::Packed => f.write_str("zstd"),
        }
    }
}

impl Compression {
    /// The compression of a partition at this path, if it was asked to compress.
    pub fn at(path: &Path, asked: bool) -> Compression {
        let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap_or_default();
        let real = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        match below(&mounts, &real) {
            Some(how) => Compression::Below(how),
            None if asked => Compression::Packed,
            None => Compression::None,
        }
    }
}

/// The compression of the file system with the path, according to the kernel's table of mounts.
fn below(mounts: &str, path: &Path) -> Option<String> {
    let fields = mounts.lines().filter_map(|line| {
        let mut fields = line.split(' ').skip(1);
        Some((fields.next()?, fields.next()?, fields.next()?))
    });
    // Of two mounts at one path the later one is on top.
    let (_, kind, options) = fields
        .filter(|(at, ..)| path.starts_with(at))
        .max_by_key(|(at, ..)| Path::new(at).components().count())?;
    let how = options.split(',').find_map(|option| {
        option.strip_prefix("compress").map(|how| how.trim_start_matches("-force"))
    });
    match (kind, how) {
        ("btrfs", Some(how)) => {
            Some(format!("btrfs {}", how.trim_start_matches('=')).trim_end().to_owned())
        }
        // A property of the data set, which the table does not show; it is on by default.
        ("zfs", _) => Some("zfs".to_owned()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_system_that_has_the_path_decides() {
        let mounts = "/dev/a / ext4 rw 0 0\n\
                      /dev/b /srv btrfs rw,compress=zstd:3,space_cache 0 0\n\
                      /dev/c /srv/plain btrfs rw 0 0\n\
                      tank/x /tank zfs rw,xattr 0 0\n\
                      /dev/d /forced btrfs rw,compress-force=lzo 0 0\n";
        let of = |path: &str| below(mounts, Path::new(path));
        assert_eq!(of("/vicepa"), None);
        assert_eq!(of("/srv/vicepb"), Some("btrfs zstd:3".to_owned()));
        assert_eq!(of("/srv/plain/vicepb"), None);
        assert_eq!(of("/srvx"), None);
        assert_eq!(of("/tank/vicepc"), Some("zfs".to_owned()));
        assert_eq!(of("/forced/v"), Some("btrfs lzo".to_owned()));
    }
}
