//! A command whose output has no reader ends without a word, as the tools of the system do.
#![allow(missing_docs, clippy::unwrap_used)]

use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Output, Stdio};

/// SIGPIPE, which ends a process that writes to a pipe without a reader.
const PIPE_SIGNAL: i32 = 13;

/// Runs the program with an output that its reader has left already.
fn without_reader(arguments: &[&str]) -> Output {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let dir = tempfile::tempdir().unwrap();
    Command::new(env!("CARGO_BIN_EXE_rialto"))
        .args(arguments)
        .env("RIALTO_HOME", dir.path().join("none"))
        .env("HOME", dir.path())
        .env_remove("XDG_CACHE_HOME")
        .stdin(Stdio::null())
        .stdout(writer)
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
        .wait_with_output()
        .unwrap()
}

#[test]
fn commands_end_quietly_when_their_reader_has_left() {
    let commands: [&[&str]; 10] = [
        &["--help"],
        &["--version"],
        &["vos", "--help"],
        &["help", "fs"],
        &["completions", "bash"],
        &["completions", "fish"],
        &["man"],
        &["doctor"],
        &["doctor", "--json"],
        &["bench", "--list"],
    ];
    for arguments in commands {
        let Output { status, stderr, .. } = without_reader(arguments);
        assert_eq!(String::from_utf8_lossy(&stderr), "", "{arguments:?}");
        // The help ends with 0.
        let is_quiet = status.code() == Some(0) || status.signal() == Some(PIPE_SIGNAL);
        assert!(is_quiet, "{arguments:?}: {status}");
    }
}
