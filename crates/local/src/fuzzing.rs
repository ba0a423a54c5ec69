//! Checks of the fuzz targets on files that people or the kernel write, which plain tests run too
//! (feature `fuzzing`).

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use crate::cell::{self, CellConfig};
use crate::mounts;

/// An accepted `cell.toml` has the same meaning when it is written again, and its name can be
/// shown.
pub fn config(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let Ok(config) = CellConfig::parse(text) else { return };
    assert!(config.name.chars().all(|letter| letter.is_ascii_graphic()));
    assert_eq!(CellConfig::parse(&config.text()), Ok(config));
}

/// Any mount point has a file name, and is read back from the kernel's table of mounts.
pub fn mount_point(bytes: &[u8]) {
    let bytes: Vec<u8> = bytes.iter().copied().filter(|byte| *byte != 0).collect();
    let path = Path::new(std::ffi::OsStr::from_bytes(&bytes));
    let name = cell::file_name(path);
    assert!(!name.contains('/'));
    assert_eq!(cell::mount_point(&name).as_os_str(), path.as_os_str(), "{name}");
    if !bytes.is_empty() {
        let line = [
            b"36 35 0:44 / ",
            &as_the_kernel_writes(&bytes)[..],
            b" rw,noatime - fuse.rialto unix:/s rw",
        ]
        .concat();
        let found = mounts::parse(&line).expect("a line of mountinfo");
        assert_eq!(found.at.as_os_str(), path.as_os_str());
        assert!(found.is_rialto());
    }
}

/// Any line of the kernel's table of mounts is parsed or skipped.
pub fn mountinfo(bytes: &[u8]) {
    if let Some(found) = mounts::parse(bytes) {
        assert!(found.at.as_os_str().len() <= bytes.len());
    }
}

fn as_the_kernel_writes(path: &[u8]) -> Vec<u8> {
    let escape = |byte: &u8| match byte {
        b' ' | b'\t' | b'\n' | b'\\' => format!("\\{byte:03o}").into_bytes(),
        other => vec![*other],
    };
    path.iter().flat_map(escape).collect()
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    const GOOD: &str = "# A cell\nname = \"some.cell\"\nlisten = \"127.0.0.1:7620\"\npartition = \
        \"vicep\"\nsocket = \"s\"\n";

    proptest! {
        #[test]
        fn a_changed_configuration(
            at in any::<prop::sample::Index>(),
            cut in 0usize..4,
            put in "[ -~\n]{0,4}",
        ) {
            let at = at.index(GOOD.len());
            config([&GOOD[..at], &put, &GOOD[(at + cut).min(GOOD.len())..]].concat().as_bytes());
        }

        #[test]
        fn any_name_of_a_cell(name in any::<String>()) {
            let name = toml::Value::String(name);
            config(GOOD.replace("\"some.cell\"", &name.to_string()).as_bytes());
        }

        #[test]
        fn any_mount_point(bytes in vec(
            prop_oneof![any::<u8>(), prop::sample::select(b"/-%+ \\07aF\n".to_vec())],
            0..20,
        )) {
            mount_point(&bytes);
        }

        #[test]
        fn any_line_of_mountinfo(words in vec("[ -~]{0,6}", 0..12)) {
            mountinfo(words.join(" ").as_bytes());
        }
    }

    #[test]
    fn what_a_new_cell_gets_is_taken() {
        assert!(CellConfig::parse(GOOD).is_ok());
        config(GOOD.as_bytes());
    }
}
