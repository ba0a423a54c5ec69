//! Files that have the cell's keys: `KeyFile`, `KeyFileExt`, and Kerberos keytabs.
//!
//! Source: OpenAFS `src/auth/keys.c`; MIT Kerberos, "The keytab file format", for version 0x502.

use super::RxkadKeys;

/// Kinds of keys in `KeyFileExt`.
const KIND_KRB5: u32 = 2;
/// The fixed part of a record in `KeyFileExt`.
const EXT_FIXED_BYTES: u32 = 16;
const KEY_BYTES_MAX: u32 = 1 << 16;
const KEYTAB_VERSION: u16 = 0x502;

/// Why a key file cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyFileError {
    /// It ends within a key.
    #[error("the key file ends within a key")]
    Short,
    /// It has no key file's form.
    #[error("this is no key file of the kind that was expected")]
    Form,
}

struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn take(&mut self, bytes: usize) -> Result<&'a [u8], KeyFileError> {
        let (taken, rest) = self.0.split_at_checked(bytes).ok_or(KeyFileError::Short)?;
        self.0 = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], KeyFileError> {
        self.take(N)?.try_into().map_err(|_| KeyFileError::Short)
    }

    fn word(&mut self) -> Result<u32, KeyFileError> {
        Ok(u32::from_be_bytes(self.array()?))
    }

    fn half(&mut self) -> Result<u16, KeyFileError> {
        Ok(u16::from_be_bytes(self.array()?))
    }

    fn counted(&mut self) -> Result<&'a [u8], KeyFileError> {
        let bytes = self.half()?;
        self.take(usize::from(bytes))
    }
}

/// Reads `KeyFile`: DES keys.
///
/// # Errors
/// [`KeyFileError::Short`] if it ends within a key.
pub fn read_key_file(bytes: &[u8]) -> Result<RxkadKeys, KeyFileError> {
    let (mut fields, mut keys) = (Fields(bytes), RxkadKeys::new());
    for _ in 0..fields.word()? {
        let kvno = fields.word()?;
        keys.add_des(kvno, fields.array()?);
    }
    Ok(keys)
}

/// Reads `KeyFileExt`: Kerberos 5 keys. Keys of other classes are left out.
///
/// # Errors
/// [`KeyFileError`] if it ends within a key, or has no such form.
pub fn read_key_file_ext(bytes: &[u8]) -> Result<RxkadKeys, KeyFileError> {
    let (mut fields, mut keys) = (Fields(bytes), RxkadKeys::new());
    for _ in 0..fields.word()? {
        let fixed_bytes = fields.word()?;
        let (class, kvno, kind) = (fields.word()?, fields.word()?, fields.word()?);
        let more = fixed_bytes.checked_sub(EXT_FIXED_BYTES).ok_or(KeyFileError::Form)?;
        fields.take(more as usize)?;
        let key_bytes = fields.word()?;
        if key_bytes > KEY_BYTES_MAX {
            return Err(KeyFileError::Form);
        }
        let key = fields.take(key_bytes as usize)?;
        if class == KIND_KRB5 {
            keys.add_krb5(kvno, kind as i32, key);
        }
    }
    Ok(keys)
}

/// Reads the keys of `afs/cell` and `afs` from a Kerberos keytab.
///
/// # Errors
/// [`KeyFileError`] if it ends within a key, or has no such form.
pub fn read_keytab(bytes: &[u8], cell: &str) -> Result<RxkadKeys, KeyFileError> {
    let (mut fields, mut keys) = (Fields(bytes), RxkadKeys::new());
    if fields.half()? != KEYTAB_VERSION {
        return Err(KeyFileError::Form);
    }
    while !fields.0.is_empty() {
        let size = fields.word()? as i32;
        let entry = fields.take(size.unsigned_abs() as usize)?;
        // A negative size is a hole where an entry was.
        if size > 0 {
            read_keytab_entry(Fields(entry), cell, &mut keys)?;
        }
    }
    Ok(keys)
}

fn read_keytab_entry(
    mut entry: Fields<'_>,
    cell: &str,
    keys: &mut RxkadKeys,
) -> Result<(), KeyFileError> {
    let count = entry.half()?;
    entry.counted()?;
    let parts: Vec<&[u8]> = (0..count).map(|_| entry.counted()).collect::<Result<_, _>>()?;
    entry.take(8)?; // The kind of the name, and the time.
    let [kvno_short] = entry.array()?;
    let kind = i32::from(entry.half()?);
    let key = entry.counted()?;
    // A later addition: the whole number, if it is not zero.
    let kvno = entry.word().ok().filter(|kvno| *kvno != 0).unwrap_or(u32::from(kvno_short));
    let is_ours = match parts.as_slice() {
        [name] => *name == b"afs",
        [name, of] => *name == b"afs" && *of == cell.as_bytes(),
        _ => false,
    };
    if is_ours {
        match (kind, key.try_into()) {
            (1..=3, Ok(key)) => keys.add_des(kvno, key),
            _ => keys.add_krb5(kvno, kind, key),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_files_have_numbered_keys() {
        let mut bytes = b"\0\0\0\x02\0\0\0\x03abcdefgh\0\0\0\x04ijklmnop".to_vec();
        bytes.resize(100, 0); // Old writers filled the file up.
        let keys = read_key_file(&bytes).unwrap();
        assert_eq!((keys.des(3), keys.des(4)), (Some(*b"abcdefgh"), Some(*b"ijklmnop")));
        assert_eq!(keys.newest_des(), Some((4, *b"ijklmnop")));
        assert_eq!(read_key_file(&bytes[..20]).unwrap_err(), KeyFileError::Short);
    }

    #[test]
    fn extended_key_files_have_keys_by_type() {
        let bytes = b"\0\0\0\x02\
            \0\0\0\x10\0\0\0\x01\0\0\0\x01\0\0\0\x12\0\0\0\x02no\
            \0\0\0\x14\0\0\0\x02\0\0\0\x05\0\0\0\x11more\0\0\0\x10abcdefghijklmnop";
        let keys = read_key_file_ext(bytes).unwrap();
        assert_eq!(keys.krb5(5, 17), Some(&b"abcdefghijklmnop"[..]));
        assert_eq!(keys.krb5(1, 18), None);
        assert_eq!(read_key_file_ext(&bytes[..30]).unwrap_err(), KeyFileError::Short);
        assert_eq!(read_key_file_ext(b"\0\0\0\x01\0\0\0\x08").unwrap_err(), KeyFileError::Short);
    }

    #[test]
    fn a_keytab_has_the_keys_of_the_cell() {
        let entry = |name: &[u8], kind: u8, key: &[u8]| {
            let mut entry = b"\0\x02\0\x01R\0\x03afs".to_vec();
            entry.extend_from_slice(&(name.len() as u16).to_be_bytes());
            entry.extend_from_slice(name);
            entry.extend_from_slice(&[0, 0, 0, 1, 0, 0, 0, 9, 6, 0, kind]);
            entry.extend_from_slice(&(key.len() as u16).to_be_bytes());
            entry.extend_from_slice(key);
            entry.extend_from_slice(&[0, 0, 1, 6]);
            [&(entry.len() as u32).to_be_bytes()[..], &entry].concat()
        };
        let bytes = [
            &b"\x05\x02"[..],
            &entry(b"cell", 18, &[1; 32]),
            &(-3i32).to_be_bytes(),
            b"old",
            &entry(b"other", 17, &[2; 16]),
            &entry(b"cell", 1, &[3; 8]),
        ]
        .concat();
        let keys = read_keytab(&bytes, "cell").unwrap();
        assert_eq!(keys.krb5(0x106, 18), Some(&[1; 32][..]));
        assert_eq!(keys.krb5(0x106, 17), None);
        assert_eq!(keys.des(0x106), Some([3; 8]));
        assert_eq!(read_keytab(b"\x05\x01", "cell").unwrap_err(), KeyFileError::Form);
        assert_eq!(read_keytab(&bytes[..30], "cell").unwrap_err(), KeyFileError::Short);
    }
}
