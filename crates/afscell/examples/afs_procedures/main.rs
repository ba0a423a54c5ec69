//! The same calls to the servers of any cell of AFS, and a line for each answer, so that two cells
//! can be compared: `afs_procedures ADDRESS KEYTAB CELL PARTITION [TABLE]`.
//!
//! Model: every procedure of the five services is called, with ordinary arguments and with those
//! at and beyond limits, by a caller without a token and then by the holder of the cell's key. A
//! line has the procedure, the caller, the case, and the code or the results. Times, sizes of
//! disks and other values that differ between any two cells are left out (`shown.rs`). All
//! volumes and users are made by the calls, in a cell that has none of them; PARTITION is the
//! number of a partition.
//!
//! TABLE is `docs/spec/afs3-procedures.md`, whose rows say of each procedure how Rialto's ports
//! answer it: the program ends with 1 if a row is not true.

#![allow(clippy::unwrap_used, clippy::print_stdout)]

mod asking;
mod bos;
mod files;
mod locations;
mod protection;
mod shown;
mod table;
mod volumes;

use std::process::ExitCode;

use asking::Asker;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [address, keytab, cell, partition, table @ ..] = &arguments[..] else {
        println!("usage: afs_procedures ADDRESS KEYTAB CELL PARTITION [TABLE]");
        return ExitCode::from(2);
    };
    let keys = rx::rxkad::read_keytab(&std::fs::read(keytab).unwrap(), cell).unwrap();
    let mut asker = Asker::open(address.parse().unwrap(), keys, cell, partition.parse().unwrap());
    protection::ask(&mut asker);
    let first = locations::ask(&mut asker);
    let volume = volumes::ask(&mut asker, first);
    files::ask(&mut asker, volume);
    bos::ask(&mut asker);
    let wrong = match table {
        [] => Vec::new(),
        [table, ..] => table::check(&std::fs::read_to_string(table).unwrap(), asker.heard()),
    };
    for line in &wrong {
        println!("{line}");
    }
    if wrong.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
