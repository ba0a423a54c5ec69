//! Two administrators operate on one volume at the same time: one operation succeeds, the other is
//! refused with the name of the claim's leader, or finds the result of the first.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::common::{Cell, Files, PARTITION, by_name, lead};
use celldb::{CellDb, CellError};
use types::{Answer, Busy, ServerId, VolumeCall, VolumeKind, VolumeState};
use vos::{Job, JobLeader, ServerConnections, Servers, VosError};

const OTHER: &str = "/vicepb";
/// Each operation runs against each, and against itself.
const SEEDS: u64 = 15;

/// An operation that an administrator requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wish {
    Away,
    Beside,
    Release,
    Backup,
    Remove,
}

const WISHES: [Wish; 5] = [Wish::Away, Wish::Beside, Wish::Release, Wish::Backup, Wish::Remove];

/// Delays calls, by a seed.
struct Slow<'c> {
    inner: &'c ServerConnections,
    state: AtomicU64,
}

impl Slow<'_> {
    fn wait(&self) {
        let mix = |state: u64| {
            state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f)
        };
        let state = self
            .state
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |state| Some(mix(state)))
            .unwrap();
        std::thread::sleep(Duration::from_micros((state >> 33) % 8000));
    }
}

impl Servers for Slow<'_> {
    fn db(&self) -> &dyn CellDb {
        self.wait();
        self.inner.db()
    }

    fn call(&self, server: ServerId, call: VolumeCall) -> Result<Answer, VosError> {
        self.wait();
        self.inner.call(server, call)
    }

    fn name(&self, server: ServerId) -> String {
        self.inner.name(server)
    }
}

fn act(cell: &Cell, wish: Wish, by: &str, seed: u64) -> Result<(), VosError> {
    let servers = Slow { inner: &cell.reach, state: AtomicU64::new(seed) };
    let is_over = |_: &Busy| false;
    let who = JobLeader { by: by.into(), now_secs: &|| 7, is_over: &is_over };
    let job = &Job { servers: &servers, who, dry_run: false, tell: &|_| {} };
    servers.wait();
    let group = || cell.group("home").ok_or(VosError::NoVolume);
    match wish {
        Wish::Away => vos::move_volume(job, group()?, cell.ids[1], PARTITION).map(drop),
        Wish::Beside => vos::move_volume(job, group()?, cell.ids[0], OTHER).map(drop),
        Wish::Release => vos::release(job, group()?).map(drop),
        Wish::Backup => vos::backup(job, group()?).map(drop),
        Wish::Remove => vos::remove(job, &vos::find(&servers, &by_name("home"), None)?),
    }
}

/// Checks that the volume has no claim, and exists once with all that was written; or was removed,
/// and is nowhere.
fn is_whole(cell: &Cell, wanted: &Files, removed: bool, why: &str) {
    let heads = |at: usize| {
        cell.volumes(at)
            .into_iter()
            .filter(|one| one.kind == VolumeKind::ReadWrite)
            .collect::<Vec<_>>()
    };
    let group = cell.group("home");
    let site = group.as_ref().and_then(|group| group.record.read_write_site());
    assert!(group.as_ref().is_none_or(|group| group.record.busy.is_none()), "{why}");
    assert_eq!(site.is_none(), removed, "{why}");
    let all: Vec<_> =
        (0..2).flat_map(|at| heads(at).into_iter().map(move |head| (at, head))).collect();
    assert_eq!(all.len(), usize::from(!removed), "{why}: {all:?}");
    let (Some(site), Some((at, head))) = (site, all.first()) else { return };
    assert_eq!((site.server, head.state), (cell.ids[*at], VolumeState::Online), "{why}");
    assert_eq!(head.partition.0, u32::from(site.partition == OTHER), "{why}");
    assert_eq!(cell.files(*at, "home").as_ref(), Some(wanted), "{why}");
    let left = |name: &String| name.contains("moving") || name.contains("releasing");
    assert!(
        !(0..2).any(|at| cell.names(at).iter().any(left)),
        "{why}: {:?} {:?}",
        cell.names(0),
        cell.names(1)
    );
}

#[test]
fn of_two_at_once_one_hears_who_has_it_and_the_volume_is_whole() {
    let mut refused = 0;
    for seed in 0..SEEDS {
        let cell = Cell::with_partitions(2, 2);
        cell.make("home", 0);
        cell.write(0, "home", "one", &vec![seed as u8; 50_000]);
        lead(&cell.reach, |job| {
            vos::add_site(job, cell.group("home").unwrap(), cell.ids[1], PARTITION)
        })
        .unwrap();
        let wanted = cell.files(0, "home").unwrap();
        let wishes = [WISHES[seed as usize % 5], WISHES[(seed as usize / 5 + seed as usize) % 5]];
        let why = format!("seed {seed}: {wishes:?}");
        let results = std::thread::scope(|scope| {
            let cell = &cell;
            let all = [0, 1].map(|at| {
                scope.spawn(move || act(cell, wishes[at], ["ann", "bob"][at], seed * 2 + at as u64))
            });
            all.map(|one| one.join().unwrap())
        });
        assert!(results.iter().any(Result::is_ok), "{why}: {results:?}");
        for (at, result) in results.iter().enumerate() {
            let other = (wishes[1 - at], ["bob", "ann"][at]);
            match result {
                Ok(()) => {}
                Err(VosError::Busy { busy, .. }) => {
                    assert_eq!(busy.by, other.1, "{why}");
                    refused += 1;
                }
                // The other operation completed between this one's read and its claim.
                Err(VosError::Cell(CellError::Conflict { .. })) => {}
                Err(VosError::NoVolume) => assert_eq!(other.0, Wish::Remove, "{why}"),
                Err(VosError::Unfit(reported)) => {
                    let fits = wishes[at] == other.0 && reported == "it is there"
                        || other.0 == Wish::Remove;
                    assert!(fits, "{why}: {reported}");
                }
                Err(error) => panic!("{why}: {error}"),
            }
        }
        let removed = [0, 1].iter().any(|at| wishes[*at] == Wish::Remove && results[*at].is_ok());
        is_whole(&cell, &wanted, removed, &why);
        // Repeating a refused operation completes it.
        for at in [0, 1].into_iter().filter(|at| results[*at].is_err() && !removed) {
            match act(&cell, wishes[at], "again", seed) {
                Ok(()) => {}
                Err(VosError::Unfit(reported)) if reported == "it is there" => {}
                Err(error) => panic!("{why}, again: {error}"),
            }
        }
    }
    assert!(refused > 0, "they never met");
}
