//! The check of the fuzz target for backups, also run by a plain test (feature `fuzzing`).

use aws_lc_rs::digest::{SHA256, digest};

use crate::FORMAT_VERSION;
use crate::backup::{BACKUP_MAGIC, BACKUP_VERSION, BackupItem, BackupWriter, read_backup};

/// A reader refuses the bytes, or a writer makes the same ones of what it read. Accidental changes
/// fail the sum of the file. So a second attempt has a right head and a right sum.
pub fn backup(bytes: &[u8]) {
    same_or_refused(bytes);
    let head = [&BACKUP_MAGIC[..], &BACKUP_VERSION.to_le_bytes(), &FORMAT_VERSION.to_le_bytes()];
    let content = [&head.concat(), bytes].concat();
    let sum = digest(&SHA256, &content);
    same_or_refused(&[&content, sum.as_ref()].concat());
}

/// An answer of etcd: its body is a part of the bytes, and what follows it changes nothing.
pub fn etcd_answer(bytes: &[u8]) {
    let Ok((status, body)) = crate::etcd::whole(bytes) else { return };
    assert!(body.len() <= bytes.len(), "more than there was");
    let again = crate::etcd::whole(&[bytes, b"HTTP/1.1 200 OK"].concat());
    assert_eq!(again.ok(), Some((status, body)), "read beyond its end");
}

fn same_or_refused(bytes: &[u8]) {
    type Owned = (bool, Vec<u8>, Vec<u8>);
    let mut items: Vec<Owned> = Vec::new();
    let read = read_backup(bytes, &mut |_| Ok(()), &mut |item| {
        items.push(match item {
            BackupItem::Record { key, value, .. } => (true, key.to_vec(), value.to_vec()),
            BackupItem::File { path, bytes } => (false, path.into(), bytes.to_vec()),
        });
        Ok(())
    });
    let Ok((head, counts)) = read else { return };
    assert_eq!(counts.records + counts.files, items.len() as u64);
    let mut writer = BackupWriter::new(Vec::new(), &head).expect("a head that was read");
    for (is_record, name, value) in &items {
        let written = match std::str::from_utf8(name) {
            Ok(path) if !is_record => writer.file(path, value),
            _ => writer.record(name, value),
        };
        written.expect("an item that was read");
    }
    let again = writer.end().expect("a vector takes everything");
    assert_eq!(again, bytes, "accepted, and written in another way");
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Behind the versions: revision, time, the name of the cell, a file, the end.
    fn tail() -> Vec<u8> {
        let head = [&[7, 0, 0, 0, 0, 0, 0, 0][..], &[0; 8], &[1, 0], b"c"].concat();
        let file = [&[2, 1, 0, 0, 0, 2, 0, 0, 0][..], b"f", b"xy"].concat();
        [head, file, [&[0, 1][..], &[0; 7]].concat()].concat()
    }

    #[test]
    fn ac14_a_backup_is_written_again_as_it_was() {
        backup(&tail());
        let accepted = std::panic::catch_unwind(|| {
            let content = [&BACKUP_MAGIC[..], &[1, 0, 0, 0, 1, 0, 0, 0], &tail()].concat();
            let sum = digest(&SHA256, &content);
            read_backup(&[&content, sum.as_ref()].concat()[..], &mut |_| Ok(()), &mut |_| Ok(()))
                .is_ok()
        });
        assert!(accepted.unwrap(), "the check reaches what follows the sum");
    }

    proptest! {
        #[test]
        fn random_bytes_are_no_backup_or_the_same(
            bytes in proptest::collection::vec(any::<u8>(), 0..200),
            at in any::<proptest::sample::Index>(),
            byte in any::<u8>(),
        ) {
            backup(&bytes);
            let mut changed = tail();
            let at = at.index(changed.len());
            changed[at] = byte;
            backup(&changed);
            let head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
            let mut answer = [&head[..], b"2\r\n{}\r\n0\r\n\r\n"].concat();
            etcd_answer(&answer);
            let at = at % answer.len();
            answer[at] = byte;
            etcd_answer(&answer);
            etcd_answer(&bytes);
        }
    }
}
