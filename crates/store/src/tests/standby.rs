//! A standby equals the volume that it follows, whatever happens between answers, and goes on as a
//! volume like any other when it takes over.

use std::sync::Arc;

use bytes::Bytes;
use proptest::prelude::*;
use types::{
    ClientId, FeedPlace, ReplyAddress, SessionId, Timestamp, VnodeNo, VolumeId, VolumeKind,
};

use super::stream::{Whole, config, findings, name, open, send, whole};
use super::world::{Op, World, make_file, op};
use crate::body::sync::settle_tree;
use crate::tree::generation;
use crate::{
    Feed, FinishAs, MemMachine, NewClone, Partition, ScrubFinding, StandbyState, StoreError,
    Update, Volume, VolumeFields, VolumeQuota,
};

const BASE: u64 = 1000;
const NAME: &str = "root";
const NOW: Timestamp = Timestamp::new(11, 11);
const CLIENT: ClientId = ClientId(7 << 64 | 8);

fn base_of(world: &World, text: &str) -> (Arc<Volume>, FeedPlace) {
    let kind = VolumeKind::Snapshot;
    let base = NewClone { id: None, name: name(text), kind, now: NOW, replaces: None };
    world.partition.feeds().begin(world.volume.id(), &base).unwrap()
}

/// A partition that follows the world's volume.
struct Pair {
    world: World,
    machine: MemMachine,
    standby: Partition,
    bases: u32,
}

impl Pair {
    /// Of a volume with some history.
    fn new(before: &[Op]) -> Pair {
        Pair::of(World::new(), before)
    }

    fn of(world: World, before: &[Op]) -> Pair {
        let machine = MemMachine::new();
        let standby = open(&machine);
        standby.standbys().add(world.volume.id()).unwrap();
        let mut pair = Pair { world, machine, standby, bases: 0 };
        pair.run(before);
        pair.begin();
        pair
    }

    fn tree(&self) -> VolumeId {
        self.world.volume.id()
    }

    fn state(&self) -> StandbyState {
        let all = self.standby.standbys().list().unwrap();
        assert_eq!(all.len(), 1);
        all[0]
    }

    /// Begins anew, from the base that both have if there is one.
    fn begin(&mut self) {
        let tree = self.tree();
        self.standby.standbys().drop_applied(tree).unwrap();
        while self.standby.sweep(100).unwrap() > 0 {}
        self.bases += 1;
        let (base, place) = base_of(&self.world, &format!("base{}", self.bases));
        let known = self.standby.volumes().volume(VolumeId(BASE)).unwrap();
        let since = known.as_ref().map_or(0, |known| known.epoch());
        assert!(send(&base, since, &self.standby, tree, &mut |_| false).unwrap());
        let replaces = known.map(|known| known.id());
        let finish = FinishAs::View(NewClone {
            id: Some(VolumeId(BASE)),
            name: name("base"),
            kind: VolumeKind::Snapshot,
            now: NOW,
            replaces,
        });
        self.standby.streams().finish_incoming(tree, &finish).unwrap();
        while self.standby.sweep(100).unwrap() > 0 {}
        self.standby.standbys().begin(VolumeId(BASE), place).unwrap();
    }

    fn read(&self, from: FeedPlace, bytes_max: usize) -> Option<Bytes> {
        let client_of = |session: SessionId| (session.0 != 99).then_some(CLIENT);
        let feed = Feed::of(&self.world.volume)?;
        let mut entries = Vec::new();
        let to = feed.read(from, bytes_max, &client_of, &mut entries)?;
        assert_eq!(crate::place_behind(&entries), Some(to));
        Some(entries.into())
    }

    /// Applies all there is, in answers of about this size. False: the place is gone.
    fn follow(&mut self, bytes_max: usize) -> bool {
        loop {
            let Some(feed) = Feed::of(&self.world.volume) else { return false };
            let place = self.state().place;
            if place == feed.end() {
                return true;
            }
            let Some(entries) = self.read(place, bytes_max) else { return false };
            let to = self.standby.standbys().apply(self.tree(), &entries).unwrap();
            assert!(to.position > place.position);
        }
    }

    fn head(&self) -> Whole {
        let followed = self.standby.standbys().following(self.tree()).unwrap().unwrap();
        whole(&followed.volume)
    }

    fn run(&mut self, ops: &[Op]) {
        for op in ops {
            let made = match op {
                Op::Create(_) => self.world.volume.slots().unwrap().allocate(false).unwrap().0,
                _ => VnodeNo(0),
            };
            let earlier = self.world.model.clone();
            self.world.apply_model(op, made);
            self.world.apply_store(op, &earlier, made);
            if let Op::Abandon { .. } = op {
                self.world.model = self.world.found();
            }
        }
    }

    fn take_over(&self) -> Arc<Volume> {
        self.standby.standbys().take_over(self.tree(), &name(NAME), NOW).unwrap()
    }
}

/// The same without a change in a volume of the next generation.
fn raised((mut seen, usage): Whole) -> Whole {
    let by = generation::raise(1, generation::next(1));
    for one in seen.values_mut() {
        one.status.data_version = one.status.data_version.raised(by);
        one.status.status_version = one.status.status_version.raised(by);
    }
    (seen, usage)
}

fn of_files(op: &Op) -> bool {
    !matches!(
        op,
        Op::Kill
            | Op::PowerLoss(_)
            | Op::Clone(_)
            | Op::RemoveClone(_)
            | Op::RenameClone(..)
            | Op::Fork(_)
            | Op::ForkClone(..)
            | Op::Turn(_)
            | Op::RemoveFork(_)
    )
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    prop::collection::vec(op().prop_filter("files alone", of_files), 1..30)
}

/// The event between two answers.
#[derive(Clone, Debug)]
enum Between {
    Nothing,
    Kill,
    PowerLoss(u64),
    Sync,
    /// A snapshot of the volume.
    Seal(u8),
    /// The last answer comes again.
    Again,
    BeginAnew,
}

fn between() -> impl Strategy<Value = Between> {
    prop_oneof![
        4 => Just(Between::Nothing),
        2 => Just(Between::Kill),
        2 => any::<u64>().prop_map(Between::PowerLoss),
        2 => Just(Between::Sync),
        2 => (0..4_u8).prop_map(Between::Seal),
        1 => Just(Between::Again),
        1 => Just(Between::BeginAnew),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { max_local_rejects: 10_000_000, ..config() })]

    #[test]
    fn a_standby_equals_what_it_follows(
        before in ops(),
        rounds in prop::collection::vec((ops(), between(), 1..200_000_usize), 1..5),
        after in ops(),
    ) {
        let mut pair = Pair::new(&before);
        for (ops, between, bytes_max) in rounds {
            let earlier = pair.state().place;
            pair.run(&ops);
            // Sums anew what a dropped update left in doubt; then the feed has ended.
            settle_tree(&pair.world.volume.tree_state).unwrap();
            match between {
                Between::Nothing => {}
                Between::Kill => pair.standby = open(&pair.machine),
                Between::PowerLoss(seed) => {
                    pair.machine = pair.machine.power_loss(seed);
                    pair.standby = open(&pair.machine);
                    prop_assert!(pair.read(pair.state().place, 1).is_none());
                }
                Between::Sync => {
                    let synced = pair.standby.standbys().sync(pair.tree()).unwrap();
                    prop_assert_eq!(pair.state().place, synced);
                }
                Between::Seal(number) => pair.run(&[Op::Clone(number)]),
                Between::Again => {
                    if pair.follow(bytes_max) && let Some(entries) = pair.read(earlier, 1 << 20) {
                        let at = pair.state().place;
                        let to = pair.standby.standbys().apply(pair.tree(), &entries).unwrap();
                        prop_assert_eq!(to, at);
                    }
                }
                Between::BeginAnew => pair.begin(),
            }
            if !pair.follow(bytes_max) {
                pair.begin();
                prop_assert!(pair.follow(bytes_max));
            }
            prop_assert_eq!(pair.head(), whole(&pair.world.volume));
        }
        let expected = raised(whole(&pair.world.volume));
        let taken = pair.take_over();
        prop_assert_eq!(whole(&taken), expected);
        prop_assert_eq!(pair.standby.standbys().list().unwrap(), []);
        let mut next = World::of(pair.standby.clone(), 0);
        for op in &after {
            let made = match op {
                Op::Create(_) => next.volume.slots().unwrap().allocate(false).unwrap().0,
                _ => VnodeNo(0),
            };
            let earlier = next.model.clone();
            next.apply_model(op, made);
            next.apply_store(op, &earlier, made);
            if let Op::Abandon { .. } = op {
                next.model = next.found();
            }
        }
        prop_assert_eq!(&next.found(), &next.model);
        // A loss of power may bring back a file that was removed.
        let mut found = findings(&pair.standby);
        found.retain(|found| !matches!(found, ScrubFinding::StrayBody { .. }));
        prop_assert_eq!(found, []);
        prop_assert_eq!(findings(&pair.world.partition), []);
    }
}

fn write(world: &World, text: &str, offset: u64, data: &[u8], origin: Option<ReplyAddress>) {
    let found = world.volume.lookup(VnodeNo::ROOT, text.as_bytes()).unwrap().unwrap();
    let mut vnode = world.volume.vnode(found.target.vnode).unwrap().unwrap();
    let mut update = Update::new();
    world.volume.body(&mut vnode, &mut update).unwrap().write(offset, data).unwrap();
    update.put_vnode(&vnode);
    if let Some(origin) = origin {
        update.reply(origin, Bytes::from(format!("{}", origin.request)));
    }
    world.volume.commit(update).unwrap();
}

fn pair_with_a_file() -> Pair {
    let pair = Pair::new(&[]);
    make_file(&pair.world.volume, &name("file"), |_, _| {});
    pair
}

#[test]
fn many_bytes_of_one_commit_come_in_several_entries() {
    let mut pair = pair_with_a_file();
    assert!(pair.follow(1));
    let before = pair.state().place.position;
    let data: Vec<u8> = (0..1_000_000_u32).map(|at| (at / 7) as u8).collect();
    write(&pair.world, "file", 5, &data, None);
    let made = Feed::of(&pair.world.volume).unwrap().end().position - before;
    assert!(made > 5, "{made}");
    // The standby may stop between any two of them.
    while pair.state().place != Feed::of(&pair.world.volume).unwrap().end() {
        let entries = pair.read(pair.state().place, 1).unwrap();
        assert!(entries.len() < 128 << 10, "{}", entries.len());
        pair.standby.standbys().apply(pair.tree(), &entries).unwrap();
        pair.head();
    }
    assert_eq!(pair.head(), whole(&pair.world.volume));
}

#[test]
fn sb5_the_last_reply_of_each_slot_comes_along() {
    let mut pair = pair_with_a_file();
    let at = |session, slot, request| ReplyAddress { session: SessionId(session), slot, request };
    for origin in [at(1, 0, 1), at(1, 0, 2), at(1, 3, 1), at(2, 0, 9), at(99, 0, 5)] {
        write(&pair.world, "file", 0, b"x", Some(origin));
    }
    assert!(pair.follow(200));
    pair.standby.standbys().sync(pair.tree()).unwrap();
    pair.machine = pair.machine.power_loss(1);
    pair.standby = open(&pair.machine);
    assert_eq!(pair.state().place, FeedPlace::default());
    assert_eq!(whole(&pair.take_over()), raised(whole(&pair.world.volume)));
    let reply = |client, session, slot| {
        let found = pair.standby.standbys().reply(pair.tree(), client, SessionId(session), slot);
        found.unwrap().map(|(request, reply)| (request, String::from_utf8(reply.to_vec()).unwrap()))
    };
    assert_eq!(reply(CLIENT, 1, 0), Some((2, "2".into())));
    assert_eq!(reply(CLIENT, 1, 3), Some((1, "1".into())));
    assert_eq!(reply(CLIENT, 2, 0), Some((9, "9".into())));
    assert_eq!(reply(CLIENT, 2, 1), None);
    assert_eq!(reply(ClientId(8), 1, 0), None, "another client");
    assert_eq!(reply(CLIENT, 99, 0), None, "its session was over");
}

#[test]
fn the_quota_comes_along() {
    let mut pair = pair_with_a_file();
    let quota = VolumeQuota { bytes: 1 << 30, files: 77 };
    let fields = VolumeFields { quota: Some(quota), ..VolumeFields::default() };
    pair.world.partition.volumes().set_fields(pair.tree(), fields, NOW).unwrap();
    pair.begin();
    let mut update = Update::new();
    let changed = VolumeQuota { files: 78, ..quota };
    update.set_quota(changed);
    assert!(pair.follow(1));
    pair.world.volume.commit(update).unwrap();
    assert!(pair.follow(1));
    assert_eq!(pair.take_over().quota(), changed);
}

#[test]
fn entries_that_do_not_belong_are_refused() {
    let mut pair = pair_with_a_file();
    assert!(pair.follow(1));
    let (tree, place) = (pair.tree(), pair.state().place);
    write(&pair.world, "file", 0, b"one", None);
    write(&pair.world, "file", 0, b"two", None);
    let behind = FeedPlace { position: place.position + 1, ..place };
    let later = pair.read(behind, 1 << 20).unwrap();
    let refused = |entries: &Bytes| {
        let result = pair.standby.standbys().apply(tree, entries);
        assert!(matches!(result, Err(StoreError::NoStream(_))), "{result:?}");
    };
    refused(&later);
    let good = pair.read(place, 1 << 20).unwrap();
    for at in 0..good.len() {
        let mut damaged = good.to_vec();
        damaged[at] ^= 4;
        refused(&Bytes::from(damaged));
        refused(&good.slice(..at));
    }
    assert!(pair.read(FeedPlace { feed: place.feed + 1, ..place }, 1).is_none());
    assert!(pair.read(FeedPlace { position: place.position + 3, ..place }, 1).is_none());
    // Of another volume with the same number.
    let other = Pair::of(World::another(), &[]);
    make_file(&other.world.volume, &name("file"), |_, _| {});
    refused(&other.read(other.state().place, 1 << 20).unwrap());
    assert!(pair.follow(1));
    assert_eq!(pair.head(), whole(&pair.world.volume));
}

#[test]
fn a_feed_ends_with_what_it_cannot_log() {
    let mut pair = pair_with_a_file();
    assert!(pair.follow(1));
    let place = pair.state().place;
    // Too slow.
    for _ in 0..6 {
        write(&pair.world, "file", 0, &vec![1; 1 << 20], None);
        write(&pair.world, "file", 0, &vec![2; 1 << 20], None);
    }
    assert!(pair.read(place, 1).is_none() && Feed::of(&pair.world.volume).is_none());
    assert!(pair.world.volume.info().has_standbys, "it still has them");
    pair.begin();
    assert!(pair.follow(1 << 20));
    assert_eq!(pair.head(), whole(&pair.world.volume));
    // Entries that all standbys have are forgotten.
    let at = pair.state().place;
    write(&pair.world, "file", 0, b"three", None);
    let feed = Feed::of(&pair.world.volume).unwrap();
    assert_eq!(feed.behind(at.position).0, 1);
    feed.forget_before(feed.end().position);
    assert_eq!(feed.behind(at.position).0, 0);
    assert!(pair.read(at, 1).is_none() && pair.read(feed.end(), 1).is_some());
    pair.world.partition.feeds().end(pair.tree()).unwrap();
    assert!(!pair.world.volume.info().has_standbys && Feed::of(&pair.world.volume).is_none());
}

#[test]
fn a_standby_refuses_what_would_spoil_it() {
    let pair = pair_with_a_file();
    let tree = pair.tree();
    let standbys = pair.standby.standbys();
    assert!(matches!(standbys.begin(VolumeId(BASE), pair.state().place), Err(StoreError::Busy(_))));
    let (base, _) = base_of(&pair.world, "another");
    let streamed = send(&base, 0, &pair.standby, tree, &mut |_| false);
    assert!(matches!(streamed, Err(StoreError::Taken(_))), "{streamed:?}");
    let taken = pair.standby.volumes().regain_head(
        VolumeId(BASE),
        &name("x"),
        crate::NewHead::TakesOver { above: 0 },
        NOW,
    );
    assert!(matches!(taken, Err(StoreError::Busy(_))));
    assert!(pair.standby.volumes().volume(tree).unwrap().is_none(), "no client sees it");
    standbys.remove(tree).unwrap();
    standbys.remove(tree).unwrap();
    assert_eq!(standbys.list().unwrap(), []);
    let result = standbys.take_over(tree, &name("x"), NOW);
    assert!(matches!(result, Err(StoreError::NoVolume(_))));
    let place = FeedPlace::default();
    assert!(matches!(standbys.begin(VolumeId(BASE), place), Err(StoreError::Misuse(_))));
    assert_eq!(findings(&pair.standby), []);
}
