//! `vos dump` and `vos restore`.

use std::fs::File;
use std::io::{self, BufReader, IsTerminal, Seek, SeekFrom};
use std::path::PathBuf;

use bytes::Bytes;
use clap::{Args, ValueEnum};
use local::failure::Failure;
use local::show::bytes as readable;
use serde_json::json;
use store::StreamPart;
use types::{Name, StreamCursor, Timestamp, VolumeId, VolumeInfo, VolumeKind, is_volume_name};
use vos::{Dumped, NewVolume, Next, Sink};

use super::afs_dump;
use super::context::{LocatedVolume, VosContext, text};
use super::dump_io::{NewFile, input};
use super::dumpfile::{DumpError, DumpReader, DumpWriter, Header};
use super::show;
use super::typed::{TypedSite, last_word, name};

const AFTER_DUMP: &str = "\
EXAMPLES
    rialto vos dump home.alice -file alice.dump            its current state
    rialto vos dump home.alice | zstd > alice.dump.zst
    rialto vos dump home.alice.backup -file yesterday.dump
    rialto vos snapshot create home.alice monday
    rialto vos dump home.alice --since home.alice.snapshot.monday -file tuesday.dump
    rialto vos dump home.alice -time '2026-11-22 03:00' -file sunday.dump

A read-write volume is dumped in its current state, while clients use it. With --since only
changes since that snapshot are dumped: keep the snapshot as long as you need such dumps.
With -time the dump starts from the newest snapshot or backup volume that was made at or
before that time (UTC; seconds since 1970, 2026-11-22, '2026-11-22 03:00', '11/22/2026
03:00'); so it may have a little more than the changes since. If none is that old,
everything is dumped, and a message reports it.

'vos restore' applies such a dump to a volume that is exactly what it starts from: a dump
that ended there, restored, and nothing else. To dump in such a chain, dump snapshots: the
dump of monday, then of tuesday --since monday, and so on.

A volume at a server of AFS is dumped in AFS's form, and with -afs any volume in which access
lists decide is; -time then means the changes since exactly that time. It needs the cell's
key of AFS (--keys), and [afs] at a server of Rialto.";

const AFTER_RESTORE: &str = "\
EXAMPLES
    rialto vos restore -name home.alice.old -file alice.dump
    rialto vos restore afs2 vicep home.alice alice.dump
    zstd -d < alice.dump.zst | rialto vos restore -name home.alice
    rialto vos restore -name home.alice.old -file tuesday.dump -overwrite incremental
    rialto vos restore -name home.alice -file alice.dump -overwrite full
    rialto vos restore -name software -file software.dump -readonly

The dump is read to its end before any change: a damaged, incomplete or foreign one changes
nothing. Repeating an interrupted command finishes it.

An existing volume of that name is not changed, unless '-overwrite' is given:
    incremental   applies dumps that were made with --since, in their order. A dump must
                  start from the volume's state, without changes since it was restored;
                  otherwise it is refused with the missing epoch
    full          replaces the content with that of the full dump. Its snapshots and
                  read-only sites, its number and quota stay. If the dump is of another
                  volume, there must be no snapshots, backup or clones of it, and no
                  read-only site on its partition; such sites elsewhere must be added anew
Until the end clients see the old state, and changes are refused (EROFS); then, atomically,
the new one. It is refused while files of it are open for writing on the server's machine.

With -readonly it makes a read-only volume, NAME.readonly, without a read-write one: a
release from elsewhere, or an archive. -overwrite applies newer dumps to it.

A dump of AFS is known by its first bytes, and makes a volume at a server of either kind.
A volume that it goes over is out of service meanwhile, and stays so if the dump breaks off:
repeat the command then. It needs the cell's key of AFS (--keys), and [afs] at a server of
Rialto.";

/// Writes the content of a volume to a file or to the standard output.
#[derive(Args, Debug)]
#[command(after_help = AFTER_DUMP)]
pub struct Dump {
    #[command(flatten)]
    site: TypedSite,
    /// The volume's name or number.
    #[arg(long, value_name = "VOLUME")]
    id: Option<String>,
    /// The new file [default: the standard output]
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Dump only changes since this snapshot of the volume.
    #[arg(long, value_name = "SNAPSHOT")]
    since: Option<String>,
    /// Dump only changes since about this time; 0: everything. See below.
    #[arg(long, value_name = "TIME", conflicts_with = "since")]
    time: Option<String>,
    /// Write a dump of AFS, as of a volume at a server of AFS always.
    #[arg(long, conflicts_with = "since")]
    afs: bool,
    /// VOLUME [FILE], instead of the options.
    #[arg(value_name = "VOLUME", num_args = 0..=2)]
    words: Vec<String>,
}

impl Dump {
    pub(crate) fn run(mut self, context: &VosContext) -> Result<(), Failure> {
        if let (true, Some(file)) =
            (self.words.len() + usize::from(self.id.is_some()) == 2, self.words.last())
        {
            self.file.get_or_insert(file.into());
            self.words.pop();
        }
        let wanted = last_word(&mut TypedSite::default(), self.words, self.id, "a volume")?;
        let what = format!("dumping the volume {wanted}");
        if self.file.is_none() && !context.dry_run && io::stdout().is_terminal() {
            return Err(Failure::new(what, "the dump would go to the terminal")
                .mend("name a file with -file"));
        }
        let group = context.group(&wanted, &self.site)?;
        if self.afs || context.is_afs(group[0].server) {
            if self.since.is_some() {
                let why = "a dump of AFS has the changes since a time, and none since a snapshot";
                return Err(Failure::new(what, why).mend("name the time with -time"));
            }
            let file = self.file.as_deref();
            return afs_dump::dump(context, &what, &group[0], (self.time.as_deref(), file));
        }
        let since = match (&self.since, self.time.as_deref()) {
            (Some(since), _) => Some(snapshot(&what, &group, since)?),
            (None, None | Some("0")) => None,
            (None, Some(time)) => made_by(&what, &group, time)?,
        };
        let file = NewFile::open(self.file.as_deref())
            .map_err(|error| Failure::new(what.clone(), error))?;
        let volume = &group[0];
        let Some(count) = write(context, &what, (&group, since), file)? else { return Ok(()) };
        let done = format!("Dumped volume {}: {}", text(&volume.name), readable(count));
        match (&self.file, context.json) {
            (Some(_), true) => {
                local::show::json(&json!({ "name": text(&volume.name), "bytes": count }));
            }
            (Some(file), false) => println!("{done} in file {}", file.display()),
            (None, _) => eprintln!("{done}"),
        }
        Ok(())
    }
}

/// The bytes of a dump that begins at about this time, without the dump: all of the volume is
/// read, and nothing is stored.
pub(super) fn dump_size(
    context: &VosContext,
    what: &str,
    group: &[LocatedVolume],
    time: Option<&str>,
) -> Result<Option<u64>, Failure> {
    if context.is_afs(group[0].server) {
        let file = NewFile::Nowhere { bytes: 0 };
        return afs_dump::write(context, what, &group[0], time, file);
    }
    let since = match time {
        None | Some("0") => None,
        Some(time) => made_by(what, group, time)?,
    };
    write(context, what, (group, since), NewFile::Nowhere { bytes: 0 })
}

/// Writes the dump; returns its bytes. `None`: a dry run.
fn write(
    context: &VosContext,
    what: &str,
    (group, since): (&[LocatedVolume], Option<&LocatedVolume>),
    file: NewFile,
) -> Result<Option<u64>, Failure> {
    let quota = group.iter().find(|one| one.kind == VolumeKind::ReadWrite);
    let volume = &group[0];
    let header = Header {
        cell: context.cell_name().to_owned(),
        name: text(&vos::base_name(&volume.name)),
        id: volume.id.0,
        tree: volume.tree.0,
        epoch: 0,
        since: since.map_or(0, |since| since.epoch),
        since_name: since.map(|since| text(&since.name)),
        sealed: 0,
        created: quota.map(|one| one.created.secs),
        updated: Some(volume.updated.secs),
        quota_bytes: quota.map_or(0, |one| one.quota_bytes),
        quota_files: quota.map_or(0, |one| one.quota_files),
        used_bytes: 0,
        used_files: 0,
    };
    let mut dumping = Dumping { header, file: Some(file), writer: None };
    context.lead(what, |job| {
        vos::dump(job, volume.server, &volume.info, dumping.header.since, &mut dumping)
    })?;
    let Some(writer) = dumping.writer.take() else { return Ok(None) };
    let (file, of_parts) = writer.end().map_err(|error| Failure::new(what, error))?;
    let count = if let NewFile::Nowhere { bytes } = &file { *bytes } else { of_parts };
    file.keep().map_err(|error| Failure::new(what, error))?;
    Ok(Some(count))
}

/// The start of an incremental dump: another volume of the group that shows a sealed epoch.
fn snapshot<'g>(
    what: &str,
    group: &'g [LocatedVolume],
    wanted: &str,
) -> Result<&'g LocatedVolume, Failure> {
    let is_it = |one: &&LocatedVolume| text(&one.name) == wanted || one.id.0.to_string() == wanted;
    let found = group.iter().filter(|one| one.kind != VolumeKind::ReadWrite).find(is_it);
    found.ok_or_else(|| {
        Failure::new(what.to_owned(), format!("{wanted} is no snapshot of it")).mend(format!(
            "'rialto vos snapshot list {}' shows which there are",
            text(&group[0].name)
        ))
    })
}

/// The start of a dump that includes all changes since a time: the newest sealed epoch before it.
/// `None`: there is none, which is reported.
fn made_by<'g>(
    what: &str,
    group: &'g [LocatedVolume],
    time: &str,
) -> Result<Option<&'g LocatedVolume>, Failure> {
    let Some(then) = show::typed(time) else {
        let why = format!("{time} is no time");
        return Err(Failure::new(what.to_owned(), why)
            .mend("write it as '2026-11-22 03:00' (UTC), or 0 for everything"));
    };
    let sealed = group
        .iter()
        .filter(|one| one.kind != VolumeKind::ReadWrite && one.created.secs <= then.secs);
    let found = sealed.filter(|one| one.epoch < group[0].epoch).max_by_key(|one| one.epoch);
    match found {
        Some(one) => eprintln!(
            "rialto vos: it starts from {}, of {}",
            text(&one.name),
            show::date(one.created)
        ),
        None => eprintln!(
            "rialto vos: no snapshot was made by {}, so everything is dumped",
            show::date(then)
        ),
    }
    Ok(found)
}

struct Dumping {
    header: Header,
    file: Option<NewFile>,
    writer: Option<DumpWriter<NewFile>>,
}

fn unfit(error: impl std::fmt::Display) -> vos::VosError {
    vos::VosError::Unfit(error.to_string())
}

impl Sink for Dumping {
    fn begin(&mut self, volume: &VolumeInfo) -> Result<(), vos::VosError> {
        self.header.epoch = volume.epoch;
        self.header.sealed = volume.created.secs;
        (self.header.used_bytes, self.header.used_files) = (volume.used_bytes, volume.used_files);
        if let Some(file) = self.file.take() {
            self.writer = Some(DumpWriter::new(file, &self.header).map_err(unfit)?);
        }
        Ok(())
    }

    fn part(&mut self, part: Bytes) -> Result<StreamCursor, vos::VosError> {
        let to = StreamPart::open(&part).map_err(unfit)?.to;
        if let Some(writer) = &mut self.writer {
            writer.part(&part).map_err(unfit)?;
        }
        Ok(to)
    }
}

/// The treatment of an existing volume of that name.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Overwrite {
    #[value(alias = "a")]
    Abort,
    #[value(alias = "f")]
    Full,
    #[value(alias = "i")]
    Incremental,
}

/// The creation date of a new volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Creation {
    #[value(alias = "n")]
    New,
    #[value(alias = "d")]
    Dump,
    #[value(alias = "k")]
    Keep,
}

/// The date of a volume's last update.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum LastUpdate {
    #[value(alias = "n")]
    Now,
    #[value(alias = "d")]
    Dump,
    #[value(alias = "k")]
    Keep,
}

/// Makes a volume of a dump, or brings one into its state.
#[derive(Args, Debug)]
#[command(after_help = AFTER_RESTORE)]
pub struct Restore {
    #[command(flatten)]
    site: TypedSite,
    /// The volume's name [default: the dumped volume's]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// The file of the dump [default: the standard input]
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Its number, which must be unused [default: the cell's next]
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u64).range(1..u64::MAX))]
    id: Option<u64>,
    /// Treatment of an existing volume of that name: abort, full, incremental. See below [default:
    /// abort]
    #[arg(long, value_name = "HOW", ignore_case = true)]
    overwrite: Option<Overwrite>,
    /// Creation date of a new volume: now, or that of the dumped one: new, dump. (One that is
    /// overwritten keeps its date: keep.)
    #[arg(long, value_name = "DATE", ignore_case = true)]
    creation: Option<Creation>,
    /// Date of its last update: now, that of the dumped volume, or of the overwritten one: now,
    /// dump, keep [default: now]
    #[arg(long, value_name = "DATE", ignore_case = true)]
    lastupdate: Option<LastUpdate>,
    /// Restore as a read-only volume without a read-write one.
    #[arg(long)]
    readonly: bool,
    /// [SERVER PARTITION NAME [FILE]], instead of the options.
    #[arg(value_name = "NAME", num_args = 0..=4)]
    words: Vec<String>,
}

impl Restore {
    pub(crate) fn run(mut self, context: &VosContext) -> Result<(), Failure> {
        if self.words.len() == 4 {
            let file = self.words.pop().unwrap_or_default();
            self.file.get_or_insert(file.into());
        }
        if !self.words.is_empty() {
            self.name = Some(last_word(
                &mut self.site,
                std::mem::take(&mut self.words),
                self.name.take(),
                "a name",
            )?);
        }
        let shown = self
            .file
            .as_ref()
            .map_or("the standard input".to_owned(), |file| file.display().to_string());
        let what = format!("restoring {shown}");
        let failed = |error: DumpError| Failure::new(what.clone(), error);
        let mut dump = input(self.file.as_deref()).map_err(|error| failed(error.into()))?;
        if afs_dump::is_one(&mut dump).map_err(|error| failed(error.into()))? {
            return self.run_afs(context, &what, dump);
        }
        let (header, total_bytes) = DumpReader::new(BufReader::new(&mut dump))
            .and_then(DumpReader::verify)
            .map_err(failed)?;
        let wanted = self.name.clone().unwrap_or_else(|| header.name.clone());
        let valid = name(&wanted)?;
        if !is_volume_name(valid.as_bytes(), VolumeKind::ReadWrite) {
            return Err(Failure::new(what, format!("a volume cannot be called {wanted}"))
                .mend("choose another with -name"));
        }
        dump.seek(SeekFrom::Start(0)).map_err(|error| failed(error.into()))?;
        let mut reader = DumpReader::new(BufReader::new(dump)).map_err(failed)?;
        let mut next = || reader.next().map_err(unfit);
        let dumped = self.dumped(&header, total_bytes);
        let made = match self.overwrite {
            how if self.readonly => {
                self.make_read_only(context, &what, (valid, how), &dumped, &mut next)?
            }
            None | Some(Overwrite::Abort) => {
                self.make(context, &what, (&header, valid), &dumped, &mut next)?
            }
            Some(how) => self.overwrite(context, &what, (&wanted, how), &dumped, &mut next)?,
        };
        let Some(made) = made else { return Ok(()) };
        if context.json {
            local::show::json(&show::volume_json(context, &made));
        } else {
            let (server, sealed) =
                (context.server_name(made.server), show::date(Timestamp::new(header.sealed, 0)));
            println!(
                "Restored volume {wanted} ({}) on partition {} of {server}, as {} was on {sealed}",
                made.id.0,
                context.name_of(made.server, made.partition),
                header.name
            );
        }
        Ok(())
    }

    /// A dump of AFS, into a server of either kind.
    fn run_afs(&self, context: &VosContext, what: &str, dump: File) -> Result<(), Failure> {
        if self.readonly || self.creation.is_some() || self.lastupdate.is_some() {
            let why = "a dump of AFS makes a read-write volume, with the dates that it has";
            return Err(
                Failure::new(what, why).mend("leave -readonly, -creation and -lastupdate out")
            );
        }
        let over = match self.overwrite {
            None | Some(Overwrite::Abort) => None,
            Some(Overwrite::Full) => Some(afs_dump::Over::Full),
            Some(Overwrite::Incremental) => Some(afs_dump::Over::Incremental),
        };
        let order = afs_dump::RestoreOrder {
            name: self.name.as_deref(),
            id: self.id.map(VolumeId),
            site: &self.site,
            over,
        };
        afs_dump::restore(context, what, &order, dump)
    }

    /// Checks that a server takes the form of dump that this program writes by itself.
    fn need_rialto(
        context: &VosContext,
        what: &str,
        server: types::ServerId,
    ) -> Result<(), Failure> {
        if !context.is_afs(server) {
            return Ok(());
        }
        let why = format!(
            "{} is a server of AFS, and the file is a dump of Rialto",
            context.server_name(server)
        );
        Err(Failure::new(what, why).mend(
            "'rialto vos dump -afs' writes one that both kinds of servers take; or restore it at \
             a server of Rialto, and move the volume",
        ))
    }

    fn dumped(&self, header: &Header, total_bytes: u64) -> Dumped {
        let created = header.created.filter(|_| self.creation == Some(Creation::Dump));
        Dumped {
            tree: types::VolumeId(header.tree),
            epoch: header.epoch,
            since: header.since,
            since_name: header.since_name.clone().unwrap_or_default(),
            quota_files: header.quota_files,
            created: created.map(|secs| Timestamp::new(secs, 0)),
            updated: (self.lastupdate == Some(LastUpdate::Dump))
                .then(|| Timestamp::new(header.updated.unwrap_or(header.sealed), 0)),
            total_bytes,
        }
    }

    fn make(
        &self,
        context: &VosContext,
        what: &str,
        (header, name): (&Header, Name),
        dumped: &Dumped,
        next: &mut Next<'_>,
    ) -> Result<Option<LocatedVolume>, Failure> {
        if dumped.since != 0 {
            let why = format!("it has only changes since {}", dumped.since_name);
            return Err(Failure::new(what.to_owned(), why).mend(
                "restore a full dump first, then this one over it with '-overwrite incremental'",
            ));
        }
        let spot = context.roomiest(&self.site)?;
        Self::need_rialto(context, what, spot.server)?;
        let new = NewVolume {
            name,
            id: self.id.map(VolumeId),
            server: spot.server,
            partition: spot.partition.name.clone(),
            quota_bytes: header.quota_bytes,
            owner: (0, 0),
            encrypt: None,
        };
        let made = context.lead(what, |job| vos::restore(job, &new, dumped, next))?;
        Ok(made.map(|info| LocatedVolume { server: spot.server, info }))
    }

    /// The existing site if it is overwritten; otherwise the new one.
    fn make_read_only(
        &self,
        context: &VosContext,
        what: &str,
        (name, how): (Name, Option<Overwrite>),
        dumped: &Dumped,
        next: &mut Next<'_>,
    ) -> Result<Option<LocatedVolume>, Failure> {
        if self.creation.is_some() || self.lastupdate.is_some() {
            return Err(Failure::new(
                what.to_owned(),
                "a read-only volume has the date of its restore",
            )
            .mend("leave -creation and -lastupdate out"));
        }
        let over = !matches!(how, None | Some(Overwrite::Abort));
        let known = context
            .db()
            .group_named(&name)
            .ok()
            .flatten()
            .filter(|_| over && self.site.server.is_none() && self.site.partition.is_none());
        let known = known.as_ref().and_then(|seen| seen.record.sites.first());
        let (server, partition) = match known {
            Some(site) => (site.server, site.partition.clone()),
            None => context
                .roomiest(&self.site)
                .map(|spot| (spot.server, spot.partition.name.clone()))?,
        };
        Self::need_rialto(context, what, server)?;
        let new = NewVolume {
            name,
            id: self.id.map(VolumeId),
            server,
            partition,
            quota_bytes: 0,
            owner: (0, 0),
            encrypt: None,
        };
        let made =
            context.lead(what, |job| vos::restore_read_only(job, &new, over, dumped, next))?;
        Ok(made.map(|info| LocatedVolume { server, info }))
    }

    fn overwrite(
        &self,
        context: &VosContext,
        what: &str,
        (wanted, how): (&str, Overwrite),
        dumped: &Dumped,
        next: &mut Next<'_>,
    ) -> Result<Option<LocatedVolume>, Failure> {
        let refused = |why: &str, mend: &str| Err(Failure::new(what.to_owned(), why).mend(mend));
        match (how, dumped.since) {
            (Overwrite::Incremental, 0) => {
                return refused(
                    "it is a full dump",
                    "'-overwrite full' replaces the content of the volume",
                );
            }
            (Overwrite::Full, since) if since != 0 => {
                return refused(
                    "it has only changes since another dump",
                    "use '-overwrite incremental'",
                );
            }
            _ => {}
        }
        if matches!(self.creation, Some(Creation::Dump | Creation::New)) {
            return refused("an overwritten volume keeps its date", "leave -creation out");
        }
        let there = context.volume(wanted, &self.site)?;
        Self::need_rialto(context, what, there.server)?;
        if self.id.is_some_and(|id| id != there.id.0) {
            return refused(
                "the volume of that name has another number",
                "leave -id out, or -name",
            );
        }
        let group = context.known(wanted)?;
        let kept = (self.lastupdate == Some(LastUpdate::Keep)).then_some(there.info.updated);
        let dumped = Dumped { updated: dumped.updated.or(kept), ..dumped.clone() };
        let made = context.lead(what, |job| vos::restore_over(job, group, &dumped, next))?;
        Ok(made.map(|info| LocatedVolume { server: there.server, info }))
    }
}
