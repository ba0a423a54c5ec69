//! `copy SERVER FILE PATH`: copies a local file into a cell, with 8 operations in progress, and
//! reads it back to compare. `copy.c` and `copy.py` do the same.

use std::error::Error;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::process::ExitCode;

use rialto_client::{Buffer, Completion, DirectCell, DirectFile, DirectOptions, Group};

/// One operation moves at most 1 MiB.
const PART: u64 = 1 << 20;
const IN_PROGRESS: usize = 8;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("copy: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [server, local, path] = &arguments[..] else {
        return Err("copy SERVER FILE PATH".into());
    };
    let source = File::open(local)?;
    let size = source.metadata()?.len();

    let cell = DirectCell::connect(DirectOptions::new(server.parse()?))?;
    let file = DirectFile::create(&cell, path, 0o644)?;
    file.set_size(0)?;

    // Each operation has a buffer: the server fetches the bytes there, or places them there.
    let memory = cell.memory(IN_PROGRESS * PART as usize)?;
    let buffers = || (0..IN_PROGRESS).map(|_| memory.buffer(PART as usize).expect("room for all"));

    for_each_part(
        size,
        buffers().collect(),
        |group, mut buffer, offset| {
            source.read_exact_at(&mut buffer, offset)?;
            Ok(file.write(group, buffer, offset, offset)?)
        },
        |_, _| Ok(()),
    )?;
    // Now the bytes survive the server's host, too.
    file.commit()?;

    let mut local = vec![0; PART as usize];
    for_each_part(
        size,
        buffers().collect(),
        |group, buffer, offset| Ok(file.read(group, buffer, offset, offset)?),
        |buffer, offset| {
            source.read_exact_at(&mut local[..buffer.len()], offset)?;
            if local[..buffer.len()] == buffer[..] { Ok(()) } else { Err("they differ".into()) }
        },
    )?;
    println!("{size} bytes, and the cell has the same");
    Ok(())
}

/// Begins an operation for each part of the file, and waits for the earliest while each buffer has
/// one. The tag of an operation is the offset of its part.
fn for_each_part(
    size: u64,
    mut buffers: Vec<Buffer>,
    mut begin: impl FnMut(&Group, Buffer, u64) -> Result<(), Box<dyn Error>>,
    mut done: impl FnMut(&Buffer, u64) -> Result<(), Box<dyn Error>>,
) -> Result<(), Box<dyn Error>> {
    let (group, mut offset) = (Group::new(), 0);
    while offset < size || !group.is_empty() {
        while offset < size
            && let Some(mut buffer) = buffers.pop()
        {
            buffer.resize(PART.min(size - offset) as usize);
            begin(&group, buffer, offset)?;
            offset += PART;
        }
        for Completion { tag, buffer, result } in group.wait(1, None) {
            if result?.bytes != buffer.len() {
                return Err("the file became shorter meanwhile".into());
            }
            done(&buffer, tag)?;
            buffers.push(buffer);
        }
    }
    Ok(())
}
