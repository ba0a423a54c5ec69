//! Dumps of AFS: files, and what they make.

use std::fs::File;
use std::io::{self, IsTerminal as _, Read, Seek, SeekFrom, Write as _};
use std::path::Path;

use afs3::dump::{DumpAttributes, DumpItem, DumpParser, VolumeAttributes, is_dump};
use local::failure::{Doing, Failure};
use local::show::bytes as readable;
use serde_json::json;
use types::{VolumeId, VolumeKind, is_volume_name};
use vos::{AfsDump, NewVolume};

use super::context::{LocatedVolume, VosContext, text};
use super::dump_io::NewFile;
use super::show;
use super::typed::{TypedSite, name};

/// Bytes of a dump that are read at once.
const PIECE_BYTES: usize = 64 << 10;
/// The first bytes, by which a dump of AFS is known.
const FRONT_BYTES: usize = 5;

/// How a dump goes over a volume that is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Over {
    Full,
    Incremental,
}

/// How a dump is to be restored.
pub(super) struct RestoreOrder<'o> {
    /// `None`: the dumped volume's.
    pub name: Option<&'o str>,
    pub id: Option<VolumeId>,
    pub site: &'o TypedSite,
    /// `None`: a new volume is made.
    pub over: Option<Over>,
}

/// The name and the size that a dump tells.
struct AfsHeader {
    name: String,
    is_incremental: bool,
    total_bytes: u64,
}

/// Writes a dump of a volume to a file, or to the standard output.
pub(super) fn dump(
    context: &VosContext,
    what: &str,
    volume: &LocatedVolume,
    (time, file): (Option<&str>, Option<&Path>),
) -> Result<(), Failure> {
    if file.is_none() && !context.dry_run && io::stdout().is_terminal() {
        return Err(
            Failure::new(what, "the dump would go to the terminal").mend("name a file with -file")
        );
    }
    let new = NewFile::open(file).doing(|| what.to_owned())?;
    let Some(count) = write(context, what, volume, time, new)? else { return Ok(()) };
    let name = text(&volume.name);
    let done = format!("Dumped volume {name}: {}", readable(count));
    match (file, context.json) {
        (Some(_), true) => local::show::json(&json!({ "name": name, "bytes": count })),
        (Some(file), false) => println!("{done} in file {}", file.display()),
        (None, _) => eprintln!("{done}"),
    }
    Ok(())
}

/// Writes a dump; returns its bytes. `None`: a dry run.
pub(super) fn write(
    context: &VosContext,
    what: &str,
    volume: &LocatedVolume,
    time: Option<&str>,
    mut file: NewFile,
) -> Result<Option<u64>, Failure> {
    let since = match time {
        None | Some("0") => 0,
        Some(time) => {
            let then = show::typed(time).and_then(|then| u32::try_from(then.secs).ok());
            then.ok_or_else(|| {
                Failure::new(what, format!("{time} is no time"))
                    .mend("write it as '2026-11-22 03:00' (UTC), or 0 for everything")
            })?
        }
    };
    let mut count = 0;
    // A dump whose stream ended early is no file.
    let mut checked = Checked::default();
    context.lead(what, |job| {
        vos::dump_afs(job, volume.server, &volume.info, since, &mut |piece| {
            checked.take(piece)?;
            count += piece.len() as u64;
            file.write_all(piece).map_err(|error| error.to_string())
        })
    })?;
    if context.dry_run {
        return Ok(None);
    }
    checked.finish().map_err(|why| Failure::new(what, why))?;
    file.keep().doing(|| what.to_owned())?;
    Ok(Some(count))
}

/// A dump that is read only to see that it is one, and what it says of itself.
#[derive(Default)]
struct Checked {
    parser: DumpParser,
    header: DumpAttributes,
    volume: VolumeAttributes,
}

impl Checked {
    fn take(&mut self, mut piece: &[u8]) -> Result<(), String> {
        while let Some(item) = self.parser.next(&mut piece).map_err(|error| error.to_string())? {
            match item {
                DumpItem::Header { tags, .. } => self.header = DumpAttributes::from_tags(&tags),
                DumpItem::VolumeHeader { tags } => self.volume = VolumeAttributes::from_tags(&tags),
                _ => {}
            }
        }
        Ok(())
    }

    fn finish(&self) -> Result<(), String> {
        self.parser.finish().map_err(|error| error.to_string())
    }
}

/// Whether a file is a dump of AFS; afterwards it is at its beginning.
pub(super) fn is_one(file: &mut File) -> io::Result<bool> {
    let mut front = Vec::new();
    Read::take(&mut *file, FRONT_BYTES as u64).read_to_end(&mut front)?;
    file.seek(SeekFrom::Start(0))?;
    Ok(is_dump(&front))
}

/// Reads a dump to its end.
fn read(file: &mut File) -> Result<AfsHeader, String> {
    let mut checked = Checked::default();
    let (mut piece, mut total_bytes) = (vec![0; PIECE_BYTES], 0);
    loop {
        let count = file.read(&mut piece).map_err(|error| error.to_string())?;
        if count == 0 {
            break;
        }
        total_bytes += count as u64;
        checked.take(&piece[..count])?;
    }
    checked.finish()?;
    file.seek(SeekFrom::Start(0)).map_err(|error| error.to_string())?;
    let is_incremental = checked.header.times.first().is_some_and(|(from, _)| *from != 0);
    let named =
        if checked.volume.name.is_empty() { &checked.header.name } else { &checked.volume.name };
    let name = String::from_utf8_lossy(named).into_owned();
    Ok(AfsHeader { name, is_incremental, total_bytes })
}

/// Makes a volume of a dump, or brings one into its state.
pub(super) fn restore(
    context: &VosContext,
    what: &str,
    order: &RestoreOrder<'_>,
    mut file: File,
) -> Result<(), Failure> {
    // Before any change.
    let header = read(&mut file).map_err(|why| Failure::new(what, why))?;
    let wanted = match order.name {
        Some(name) => name.to_owned(),
        None => text(&vos::base_name(&name(&header.name)?)),
    };
    let valid = name(&wanted)?;
    if !is_volume_name(valid.as_bytes(), VolumeKind::ReadWrite) {
        return Err(Failure::new(what, format!("a volume cannot be called {wanted}"))
            .mend("choose another with -name"));
    }
    let refused = |why: &str, mend: &str| Err(Failure::new(what, why).mend(mend));
    match (order.over, header.is_incremental) {
        (None | Some(Over::Full), true) => {
            return refused(
                "it has only changes since another dump",
                "restore that one first, then this one over it with '-overwrite incremental'",
            );
        }
        (Some(Over::Incremental), false) => {
            return refused("it is a full dump", "use '-overwrite full'");
        }
        _ => {}
    }
    let dump = AfsDump { is_incremental: header.is_incremental, total_bytes: header.total_bytes };
    let mut next = || {
        let mut piece = vec![0; PIECE_BYTES];
        let count = file.read(&mut piece).map_err(|error| error.to_string())?;
        piece.truncate(count);
        Ok((count > 0).then_some(piece))
    };
    let (server, made) = if order.over.is_some() {
        let there = context.volume(&wanted, order.site)?;
        let group = context.known(&wanted)?;
        let over = |job: &vos::Job<'_>| vos::restore_afs_over(job, group, &dump, &mut next);
        (there.server, context.lead(what, over)?)
    } else {
        let spot = context.roomiest(order.site)?;
        let new = NewVolume {
            name: valid,
            id: order.id,
            server: spot.server,
            partition: spot.partition.name.clone(),
            quota_bytes: 0,
            owner: (0, 0),
            encrypt: None,
        };
        let make = |job: &vos::Job<'_>| vos::restore_afs(job, &new, &dump, &mut next);
        (spot.server, context.lead(what, make)?)
    };
    let Some(info) = made else { return Ok(()) };
    let made = LocatedVolume { server, info };
    if context.json {
        local::show::json(&show::volume_json(context, &made));
    } else {
        println!(
            "Restored volume {wanted} ({}) on partition {} of {}",
            made.id.0,
            context.name_of(server, made.partition),
            context.server_name(server),
        );
    }
    Ok(())
}
