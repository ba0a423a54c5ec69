//! Makes files and runs programs on them: what fixtures, sides and scenarios have in common.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::interrupts;

/// Length of large reads and writes, as fast programs use it.
pub(super) const CHUNK: usize = 1 << 20;
/// Length of small files and random reads.
pub(super) const SMALL: usize = 4096;

/// Bytes that do not compress, the same in every run.
fn noise(length: usize, seed: u64) -> Vec<u8> {
    let mut bytes = vec![0; length];
    SmallRng::seed_from_u64(seed).fill(bytes.as_mut_slice());
    bytes
}

/// Lines of letters, the same in every run.
pub(super) fn text(length: usize, seed: u64) -> Vec<u8> {
    const LINE: usize = 72;
    let mut bytes = noise(length, seed);
    for (index, byte) in bytes.iter_mut().enumerate() {
        *byte = if index % LINE == LINE - 1 { b'\n' } else { b'a' + *byte % 26 };
    }
    bytes
}

/// A new file, for writing only, as `cp`, `tar`, `dd` and shells open what they make.
/// (`File::create_new` would open it for reading too.)
fn create(path: &Path) -> io::Result<File> {
    File::options().write(true).create_new(true).open(path)
}

pub(super) fn write_file(path: &Path, bytes: u64, sync: bool) -> io::Result<u64> {
    let chunk = noise(CHUNK, 1);
    let mut file = create(path)?;
    let mut left = bytes;
    while left > 0 {
        interrupts::check()?;
        let now = left.min(CHUNK as u64);
        file.write_all(&chunk[..now as usize])?;
        left -= now;
    }
    if sync {
        file.sync_all()?;
    }
    Ok(bytes)
}

/// Makes `count` 4 KiB files in `dir`.
pub(super) fn create_in(dir: &Path, count: usize) -> io::Result<f64> {
    let content = noise(SMALL, 2);
    (0..count).try_for_each(|number| {
        interrupts::check()?;
        create(&dir.join(format!("file-{number:06}")))?.write_all(&content)
    })?;
    Ok(count as f64)
}

/// Makes `count` empty files in `dir`, which does not exist.
pub(super) fn create_empty(dir: &Path, count: usize) -> io::Result<()> {
    fs::create_dir(dir)?;
    (0..count).try_for_each(|number| {
        interrupts::check()?;
        File::create_new(dir.join(empty_name(number))).map(drop)
    })
}

/// The name of an empty file.
pub(super) fn empty_name(number: usize) -> String {
    format!("entry-{number:07}")
}

/// Unpacks `archive` into `into`, which does not exist.
pub(super) fn unpack(archive: &Path, into: &Path) -> io::Result<()> {
    fs::create_dir(into)?;
    quietly(Command::new("tar").arg("-xf").arg(archive).arg("-C").arg(into), &[0])
}

/// Runs `command` without its output, and expects one of `codes`.
pub(super) fn quietly(command: &mut Command, codes: &[i32]) -> io::Result<()> {
    let output = command.env("LC_ALL", "C").stdin(Stdio::null()).stdout(Stdio::null()).output()?;
    if output.status.code().is_some_and(|code| codes.contains(&code)) {
        return Ok(());
    }
    let message = String::from_utf8_lossy(&output.stderr);
    let message = message.lines().next().map_or_else(|| output.status.to_string(), str::to_owned);
    Err(io::Error::other(format!("{}: {message}", command.get_program().to_string_lossy())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_lines_of_letters_and_the_same_each_time() {
        let made = text(200, 9);
        assert_eq!(made, text(200, 9));
        assert_ne!(made, text(200, 10));
        assert_eq!((made[71], made.len()), (b'\n', 200));
        assert!(made.iter().all(|byte| byte.is_ascii_lowercase() || *byte == b'\n'));
    }

    #[test]
    fn an_exit_code_that_is_not_expected_is_an_error() {
        quietly(Command::new("sh").args(["-c", "exit 1"]), &[0, 1]).unwrap();
        let error = quietly(Command::new("sh").args(["-c", "exit 2"]), &[0, 1]).unwrap_err();
        assert!(error.to_string().starts_with("sh: "), "{error}");
    }
}
