//! Pulls between services, each driven to its end in one thread.

use std::sync::atomic::AtomicBool;

use crate::common::{Ground, Rig, name, remove};
use types::{
    Answer, Call, Caller, Fid, Finish, PartitionNo, Pull, StreamCursor, TaskInfo, TaskState,
    VolumeCall, VolumeId, VolumeInfo, VolumeKind, WhichVolume,
};
use vice::{Fetch, Unanswered, Work};

const TREE: VolumeId = VolumeId(40);

fn ask(rig: &mut Rig, call: VolumeCall) -> Result<Answer, types::Fault> {
    rig.call(0, &Caller::ROOT, Call::Volume(call))
}

fn one(answer: Result<Answer, types::Fault>) -> VolumeInfo {
    match answer {
        Ok(Answer::Volumes { mut volumes, .. }) => volumes.remove(0),
        other => panic!("{other:?}"),
    }
}

/// Creates the volume; returns its root.
fn create(rig: &mut Rig) -> Fid {
    let (id, partition, owner) = (Some(TREE), None, (0, 0));
    one(ask(
        rig,
        VolumeCall::Create {
            id,
            partition,
            name: name("data"),
            quota_bytes: 0,
            quota_files: 0,
            owner,
            encrypt: None,
        },
    ));
    rig.root_of(0, "data").unwrap()
}

fn seal(rig: &mut Rig, called: &str) {
    let (id, kind) = (None, VolumeKind::Snapshot);
    one(ask(rig, VolumeCall::Clone { id, of: TREE, name: name(called), kind, replace: false }));
}

/// Pulls the whole volume, with its bytes.
fn pull(from: &mut Rig, to: &mut Rig, called: &str) -> TaskInfo {
    let id = one(ask(from, VolumeCall::Examine { volume: WhichVolume::Name(name(called)) })).id;
    let finish =
        Finish::View { id: None, name: name(called), kind: VolumeKind::Snapshot, replace: false };
    // Without a network: the test carries the questions and answers.
    let address = ([127, 0, 0, 1], 1).into();
    let order = Pull { from: vec![address], id, partition: None, tree: TREE, finish };
    let task = TaskInfo {
        number: 1,
        tree: TREE,
        state: TaskState::Runs,
        since: 0,
        epoch: 0,
        bytes: 0,
        total_bytes: 0,
        text: String::new(),
    };
    let mut fetch = Fetch::new(order, task);
    loop {
        if let Some(call) = fetch.question() {
            fetch.answered(ask(from, call).map_err(Unanswered::Refused));
        }
        let mut effects = Vec::new();
        match to.vice().work(&mut fetch, to.now, to.clock(), &mut effects) {
            Work::Over => break,
            Work::Pause(_) => {
                assert!(to.vice().partition().sweep(100).unwrap() > 0, "nothing is in the way");
            }
            Work::Did | Work::Waits => {}
        }
        to.deliver(effects);
    }
    assert_eq!(fetch.task().state, TaskState::Done, "{}", fetch.task().text);
    fetch.task().clone()
}

fn is_sound(rig: &mut Rig, called: &str, files: u64) {
    let shown = one(ask(rig, VolumeCall::Examine { volume: WhichVolume::Name(name(called)) }));
    assert_eq!(shown.used_files, files);
    let partition = rig.vice().partition();
    while partition.sweep(100).unwrap() > 0 {}
    let report = partition.scrub(&mut |_| {}, &AtomicBool::new(false)).unwrap();
    assert_eq!(report.findings, [], "ST-2");
}

#[test]
fn vo7_changes_in_epochs_that_the_source_never_had_do_not_stay() {
    let [mut first, mut second, mut site] = [(); 3].map(|()| Rig::new(Ground::memory(), 1));
    let root = create(&mut first);
    first.file(root, "stays");
    seal(&mut first, "one");
    pull(&mut first, &mut second, "one");
    pull(&mut first, &mut site, "one");

    // Only the site gets the file that exists in the second epoch alone.
    let passing = first.file(root, "passing");
    first.call(0, &Caller::ROOT, crate::common::write(passing, Some(0), b"passing")).unwrap();
    seal(&mut first, "two");
    pull(&mut first, &mut site, "two");
    first.call(0, &Caller::ROOT, remove(root, "passing")).unwrap();
    seal(&mut first, "three");
    assert!(pull(&mut first, &mut second, "three").since > 0, "only what changed");

    assert_eq!(
        pull(&mut second, &mut site, "three").since,
        0,
        "all of it: no epoch is like the site's head at both"
    );
    let site_root = site.root_of(0, "three").unwrap();
    assert_eq!(site.look(0, site_root, "passing"), Err(types::Fault::NotFound));
    is_sound(&mut site, "three", 2);
    is_sound(&mut site, "two", 3);
}

#[test]
fn parts_of_an_increment_without_its_start_bar_no_pull() {
    let [mut first, mut site] = [(); 2].map(|()| Rig::new(Ground::memory(), 1));
    let root = create(&mut first);
    first.file(root, "stays");
    seal(&mut first, "one");
    pull(&mut first, &mut site, "one");
    let file = first.file(root, "large");
    first.call(0, &Caller::ROOT, crate::common::write(file, Some(0), &[7; 300_000])).unwrap();
    seal(&mut first, "two");
    let look = |rig: &mut Rig, called: &str| {
        one(ask(rig, VolumeCall::Examine { volume: WhichVolume::Name(name(called)) }))
    };
    let (shown, id) = (look(&mut site, "one"), look(&mut first, "two").id);
    let (since, cursor, bytes_max) =
        (shown.epoch, StreamCursor::START, store::PART_BYTES_MIN as u32);
    let Ok(Answer::Part(part)) =
        ask(&mut first, VolumeCall::Changes { id, since, cursor, bytes_max, packed: false })
    else {
        panic!()
    };
    let (partition, tree) = (PartitionNo(0), TREE);
    ask(&mut site, VolumeCall::Apply { partition, tree, part, over: false }).unwrap();
    ask(&mut site, VolumeCall::Remove { id: shown.id }).unwrap();
    assert_eq!(pull(&mut first, &mut site, "two").since, 0);
    is_sound(&mut site, "two", 3);
}
