//! Clients that read and write in volumes while these are administered: each client does one call
//! at a time, at the site that the database lists or at another server.

use std::time::Duration;

use bytes::Bytes;
use celldb::CellDb;
use model::{Content, ModelTree};
use rand::Rng;
use rand::rngs::SmallRng;
use store::INLINE_BYTES_MAX;
use types::{
    Answer, Call, Caller, CreateHow, Fault, Fid, Name, NewKind, RemoveWhat, RenameMode, SessionId,
    StatusChange, Timestamp, VolumeId, XattrMode,
};

use super::sessions::SessionUser;
use super::world::{Happening, World};

/// The longest pause between two calls of a client.
const PAUSE_MAX: Duration = Duration::from_millis(700);
/// Names in a directory.
const NAMES: [&str; 6] = ["a", "b", "c", "d", "e", "f"];
/// Bytes of a large write: more than a part of a stream has.
const LARGE_BYTES: usize = 140 << 10;

impl World {
    pub(super) fn client_acts(&mut self, client: usize) {
        let pause = self.upto(PAUSE_MAX);
        self.after(pause, Happening::Client(client));
        let waits = self.waiting.values().any(|(who, ..)| *who == client);
        if self.quiet || waits || self.trees.is_empty() {
            return;
        }
        let which = self.rng.random_range(0..self.trees.len());
        let Some((id, reference)) = self.trees.iter().nth(which) else { return };
        let (id, call) = (*id, draw(&mut self.rng, &reference.tree));
        // The server may execute calls that wait together in another order than it answers them.
        if self.waiting.values().any(|(_, tree, _)| *tree == id) {
            return;
        }
        let group = self.database.group_of(id).expect("it is here");
        let site = group.and_then(|seen| seen.record.read_write_site().map(|site| site.server));
        let no = match site {
            Some(site) if self.rng.random_range(0..5) > 0 => self.number_of(site),
            _ => self.rng.random_range(0..self.houses.len()),
        };
        let Ok(origin) = self.put(SessionUser::Client(client), no, &call) else { return };
        match self.reply(no, origin) {
            Some(result) => self.client_hears(client, no, id, &call, result),
            None if self.has_seat(SessionUser::Client(client), no, origin.session) => {
                self.waiting.insert((no, origin), (client, id, call));
            }
            None => {}
        }
    }

    /// Applies an answered call to the model. A call that was refused because of the volume's
    /// contents must fail in the model too.
    pub(super) fn client_hears(
        &mut self,
        client: usize,
        no: usize,
        tree: VolumeId,
        call: &Call,
        result: Result<Answer, Fault>,
    ) {
        self.note(|| {
            let result = result.as_ref().map(|_| ()).map_err(ToString::to_string);
            format!("client {client} at server {no}: {} -> {result:?}", crate::server::brief(call))
        });
        let Some(reference) = self.trees.get_mut(&tree) else { return };
        let checked = match result {
            Ok(answer) => reference.apply(call, &answer),
            Err(
                Fault::NoVolume
                | Fault::Offline
                | Fault::Expired
                | Fault::Busy
                | Fault::CellAway
                | Fault::ReadOnly,
            ) => Ok(()),
            Err(fault) => {
                let wanted = reference.tree.clone().apply(
                    SessionId(1),
                    Timestamp::new(1, 0),
                    &Caller::ROOT,
                    call,
                );
                if wanted == Err(fault) {
                    Ok(())
                } else {
                    Err(format!("{call:?} was refused: {fault}"))
                }
            }
        };
        if let Err(why) = checked {
            self.violate(format!("volume {} at server {no}: {why}", tree.0));
        }
    }
}

fn some<T: Clone>(rng: &mut SmallRng, of: &[T]) -> T {
    of[rng.random_range(0..of.len())].clone()
}

fn some_name(rng: &mut SmallRng) -> Name {
    Name::new(some(rng, &NAMES).as_bytes()).expect("a name")
}

fn some_bytes(rng: &mut SmallRng, length: usize) -> Bytes {
    let mut bytes = vec![0; length];
    rng.fill(&mut bytes[..]);
    bytes.into()
}

/// Draws a call for a volume with these contents.
fn draw(rng: &mut SmallRng, tree: &ModelTree) -> Call {
    let (mut directories, mut files, mut small, mut all) =
        (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for (fid, node) in tree.nodes() {
        all.push(*fid);
        match node.content {
            Content::Directory(_) => directories.push(*fid),
            Content::File(_) => {
                files.push(*fid);
                small.extend((node.status.size < INLINE_BYTES_MAX).then_some(*fid));
            }
            _ => {}
        }
    }
    let (dir, fid) = (some(rng, &directories), some(rng, &all));
    match rng.random_range(0..16) {
        0..3 => make(dir, some_name(rng), NewKind::File),
        3 => make(dir, some_name(rng), NewKind::Directory),
        4 => {
            let target = some_bytes(rng, 3).iter().map(|byte| b'a' + byte % 26).collect::<Vec<_>>();
            make(dir, some_name(rng), NewKind::Symlink(target.into()))
        }
        5..8 if !small.is_empty() => write(rng, &small, false),
        8 if !files.is_empty() => write(rng, &files, true),
        9 if !small.is_empty() => {
            let change =
                StatusChange { size: Some(rng.random_range(0..9000)), ..StatusChange::default() };
            Call::SetStatus { fid: some(rng, &small), change }
        }
        10 => {
            let change = StatusChange {
                mode: Some(rng.random_range(0o600..=0o777)),
                ..StatusChange::default()
            };
            Call::SetStatus { fid, change }
        }
        11 => {
            let value = some_bytes(rng, 20);
            Call::XattrSet {
                fid,
                name: Bytes::from_static(b"user.note"),
                value,
                mode: XattrMode::Either,
            }
        }
        12 if !files.is_empty() => Call::Link { fid: some(rng, &files), dir, name: some_name(rng) },
        13 => {
            let (to_dir, mode) =
                (some(rng, &directories), some(rng, &[RenameMode::Replace, RenameMode::Exchange]));
            Call::Rename {
                from_dir: dir,
                from: some_name(rng),
                to_dir,
                to: some_name(rng),
                mode,
                hold: false,
            }
        }
        _ => {
            let what =
                if rng.random_range(0..3) == 0 { RemoveWhat::Directory } else { RemoveWhat::File };
            Call::Remove { dir, name: some_name(rng), what, hold: false }
        }
    }
}

fn make(dir: Fid, name: Name, kind: NewKind) -> Call {
    Call::Make { dir, name, kind, mode: 0o644, how: CreateHow::Guarded }
}

/// A body that is or becomes large is written stable and never cut: otherwise any mixture of its
/// blocks may be found after a loss of power.
fn write(rng: &mut SmallRng, files: &[Fid], stable: bool) -> Call {
    let fid = some(rng, files);
    let (offset, length) = if stable && rng.random_range(0..10) == 0 {
        (0, LARGE_BYTES)
    } else {
        (rng.random_range(0..4000), rng.random_range(1..3000))
    };
    let data = some_bytes(rng, length);
    Call::Write { fid, offset: Some(offset), data, stable, kill_privileges: false }
}
