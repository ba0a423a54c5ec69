//! Checks of the ports for AFS's own clients: their keys, and what the old protocol cannot protect.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use local::cell::{AfsClients, CellDir};

use super::Finding;
use crate::security;

const KEYS: &str = "keys of AFS";

/// Checks the ports of `cell`, if it opens them.
pub fn examine(cell: &CellDir) -> Vec<Finding> {
    let Some(afs) = &cell.config.afs else { return Vec::new() };
    let mut findings = vec![keys(cell, afs)];
    findings.push(protection(afs));
    findings
}

fn keys(cell: &CellDir, afs: &AfsClients) -> Finding {
    let Some(file) = &afs.keys else {
        return Finding::ok(KEYS, "there are none, so all clients of AFS are anonymous");
    };
    let file = cell.dir().join(file);
    let has_des = match security::afs_keys(&file, &cell.config.name) {
        Ok(keys) => keys.has_des(),
        Err(failure) => {
            let mend = "the server does not start with such a file: mend it, or the line 'keys' \
                in cell.toml";
            return Finding::fail(KEYS, failure.to_string(), mend);
        }
    };
    match mode_for_others(&file) {
        Some(0) | None if has_des => Finding::warn(
            KEYS,
            format!(
                "{} has a key of DES: a user with a ticket finds such a key within a day by \
                 trying all, and is then the superuser of the cell",
                file.display()
            ),
            "give afs/CELL a key of AES ('kadmin -q \"cpw -randkey -e aes256-cts:normal \
             afs/CELL\"'), write it with ktadd, and remove the file's other keys when their \
             tickets have ended",
        ),
        Some(0) | None => Finding::ok(KEYS, file.display().to_string()),
        Some(mode) => Finding::fail(
            KEYS,
            format!(
                "other users of this machine can use {} (mode {mode:03o} for them): whoever has \
                 the key is the superuser of the cell",
                file.display()
            ),
            format!("run 'chmod go= {}', and make a new key", file.display()),
        ),
    }
}

/// The rights of a file's group and of all others.
fn mode_for_others(file: &Path) -> Option<u32> {
    Some(std::fs::metadata(file).ok()?.permissions().mode() & 0o077)
}

fn protection(afs: &AfsClients) -> Finding {
    const CHECK: &str = "protocol of AFS";
    let found = format!("clients of AFS are served at {}", afs.listen);
    if afs.listen.is_loopback() {
        return Finding::ok(CHECK, found);
    }
    Finding::warn(
        CHECK,
        format!(
            "{found}: their protocol encrypts with 56 bits or not at all, so who can read the \
             network can read, and with some effort change, what they do"
        ),
        "serve them in a network that you trust; 'rialto vos setfields NAME -afs off' keeps them \
         from a volume",
    )
}

#[cfg(test)]
mod tests {
    use std::fs;

    use local::cell::NewCell;

    use super::super::Severity;
    use super::*;

    fn cell(dir: &Path, listen: &str, keys: Option<&str>) -> CellDir {
        let mut cell = CellDir::create(dir, "test", NewCell::default()).unwrap();
        let (listen, keys) = (listen.parse().unwrap(), keys.map(Into::into));
        cell.config.afs = Some(AfsClients { listen, keys, realm: None, databases: Vec::new() });
        cell
    }

    fn levels(cell: &CellDir) -> Vec<Severity> {
        examine(cell).iter().map(|finding| finding.level).collect()
    }

    #[test]
    fn the_old_protocol_is_a_warning_in_a_network() {
        let dir = tempfile::tempdir().unwrap();
        let near = cell(&dir.path().join("near"), "127.0.0.1", None);
        assert_eq!(levels(&near), [Severity::Ok, Severity::Ok]);
        let far = cell(&dir.path().join("far"), "192.0.2.1", None);
        assert_eq!(levels(&far), [Severity::Ok, Severity::Warn]);
        let closed = CellDir::create(&dir.path().join("closed"), "test", NewCell::default());
        assert_eq!(levels(&closed.unwrap()), []);
    }

    #[test]
    fn a_key_that_others_can_read_or_find_is_no_secret() {
        let dir = tempfile::tempdir().unwrap();
        let mut cell = cell(&dir.path().join("cell"), "127.0.0.1", Some("KeyFile"));
        assert_eq!(levels(&cell)[0], Severity::Fail, "there is no file");
        let file = cell.dir().join("KeyFile");
        // One key, version 1; each of its bytes has odd parity.
        let mut bytes = vec![0, 0, 0, 1, 0, 0, 0, 1];
        bytes.extend([0x01, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd, 0xef]);
        fs::write(&file, bytes).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
        let finding = &examine(&cell)[0];
        assert_eq!(finding.level, Severity::Warn);
        assert!(finding.found.contains("a key of DES"), "{finding:?}");
        // One key of Kerberos 5, version 5, of AES with 256 bits.
        let words: [u32; 6] = [1, 16, 2, 5, 18, 32];
        let mut bytes: Vec<u8> = words.into_iter().flat_map(u32::to_be_bytes).collect();
        bytes.extend([7; 32]);
        let strong = cell.dir().join("KeyFileExt");
        fs::write(&strong, bytes).unwrap();
        fs::set_permissions(&strong, fs::Permissions::from_mode(0o600)).unwrap();
        cell.config.afs.as_mut().unwrap().keys = Some("KeyFileExt".into());
        assert_eq!(levels(&cell)[0], Severity::Ok, "{:?}", examine(&cell));
        cell.config.afs.as_mut().unwrap().keys = Some("KeyFile".into());
        fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).unwrap();
        let finding = &examine(&cell)[0];
        assert_eq!(finding.level, Severity::Fail);
        assert!(finding.found.contains("mode 040 for them"), "{finding:?}");
    }
}
