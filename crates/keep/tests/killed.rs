//! A process that writes records is killed at any moment: its successor finds each record whole,
//! and at least as new as what the process said that it had put.
#![allow(missing_docs, clippy::unwrap_used)]

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::process::{Command, Stdio};
use std::sync::Arc;

use keep::{Keep, Key};
use rand::Rng;

/// Set in the process that is killed: the number of the descriptor of its records.
const CHILD: &str = "RIALTO_KEEP_TEST_FD";
const KEYS: u64 = 20;
const ROUNDS: u32 = 40;

fn key(major: u64) -> Key {
    Key { kind: 1, major, minor: 0 }
}

/// A record of some length whose bytes follow from its number.
fn value(number: u64) -> Vec<u8> {
    let length = 8 + number as usize * 37 % 5000;
    let mut bytes = number.to_le_bytes().to_vec();
    bytes.resize(length, number as u8);
    bytes
}

fn number_of(value: &[u8]) -> u64 {
    u64::from_le_bytes(value[..8].try_into().unwrap())
}

/// Puts record after record, and says each number that it has put.
fn put_for_ever(keep: &Keep) {
    let mut number = keep.all(1).iter().map(|(_, value)| number_of(value)).max().unwrap_or(0);
    let mut out = std::io::stdout().lock();
    loop {
        number += 1;
        keep.put(key(number % KEYS), &[&value(number)]).unwrap();
        if number.is_multiple_of(3) {
            keep.remove(key((number + 5) % KEYS));
        }
        writeln!(out, "put {number}").unwrap();
    }
}

#[test]
fn a_killed_process_leaves_whole_and_new_records() {
    if let Ok(path) = std::env::var(CHILD) {
        let file: OwnedFd = File::options().read(true).write(true).open(path).unwrap().into();
        return put_for_ever(&Keep::open(file).unwrap());
    }
    let keep = Keep::create().unwrap();
    let file = keep.file().try_clone().unwrap();
    drop(keep);
    let path = format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd());
    let mut last = 0;
    for _ in 0..ROUNDS {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--nocapture", "--exact", "a_killed_process_leaves_whole_and_new_records"])
            .env(CHILD, &path)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let wanted = rand::rng().random_range(1..400);
        let mut said = last;
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        for line in lines.by_ref().map_while(Result::ok) {
            if let Some(number) = line.strip_prefix("put ").and_then(|text| text.parse().ok()) {
                said = number;
            }
            if said >= last + wanted {
                break;
            }
        }
        child.kill().unwrap();
        child.wait().unwrap();
        said = lines
            .map_while(Result::ok)
            .filter_map(|line| line.strip_prefix("put ")?.parse().ok())
            .max()
            .unwrap_or(said)
            .max(said);
        let keep: Arc<Keep> = Keep::open(file.try_clone().unwrap()).unwrap();
        let all = keep.all(1);
        for (key, bytes) in &all {
            let number = number_of(bytes);
            assert_eq!(number % KEYS, key.major);
            assert_eq!(*bytes, value(number), "a record is whole");
        }
        let newest = all.iter().map(|(_, value)| number_of(value)).max().unwrap();
        assert!(newest >= said, "{newest} is the newest, and {said} was put");
        assert!(said > last, "each process puts some");
        last = newest;
    }
}
