//! Cost of access checks: a cell with 100,000 principals, a user in 1,000 groups, access lists of 1
//! to 1,000 of them, and the call by which clients ask for the user's rights.
//!
//! `cargo run --release -p vice --example cps [-- PRINCIPALS GROUPS]`
#![allow(clippy::unwrap_used)]

use std::alloc::System;
use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

use celldb::{CellDb, Embedded};
use guard::{Acl, Cps, PtsAsker, Rights};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};
use store::{MemMachine, NewRoot, OpenOptions, Partition, VolumeQuota};
use types::{
    Answer, AuthLevel, Call, Caller, ClientId, Name, NewPrincipal, PrincipalId, PrincipalKind,
    PtsCall, ReplyAddress, RequestIdentity, Time, Timestamp,
};
use vice::{CellAccess, Effect, Execution, Vice, ViceConfig, ViceParts};

#[global_allocator]
static HEAP: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const CHECKS: u32 = 1_000_000;

fn main() {
    let numbers: Vec<usize> =
        std::env::args().skip(1).map(|number| number.parse().unwrap()).collect();
    let (principals, groups) =
        (numbers.first().copied().unwrap_or(100_000), numbers.get(1).copied().unwrap_or(1000));
    let partition = Partition::open_memory(&MemMachine::new(), OpenOptions::default()).unwrap();
    let root = NewRoot {
        mode: 0o755,
        uid: 0,
        gid: 0,
        now: Timestamp::new(1, 0),
        quota: VolumeQuota::default(),
    };
    partition.volumes().create_volume(&Name::new(b"root.cell").unwrap(), &root).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let db = Arc::new(Embedded::open(dir.path()).unwrap());
    let (joe, groups) = populate(&db, principals, groups);
    let config = ViceConfig::new(dafs::encode_answer_record, |record| {
        dafs::decode_answer_record(record).ok()
    });
    let parts = ViceParts { cell: CellAccess::Database(db), ..ViceParts::default() };
    let vice = Vice::open_with(partition, config, parts, Time::ZERO).unwrap();

    let who =
        RequestIdentity { principal: joe, level: AuthLevel::Password, ..RequestIdentity::NOBODY };
    let caller = Caller { uid: 1, gid: 1, groups: None, who };
    let begun = Instant::now();
    let cps = vice.identities().cps(&caller).unwrap();
    println!("cold: {:?} for {} numbers", begun.elapsed(), cps.numbers().len());
    for entries in [1, 20, 100, 1000] {
        check(&vice, &caller, &some(&groups, entries));
    }
    ask(&vice, &caller, &some(&groups, 20));
}

/// A list with this many of the groups.
fn some(groups: &[PrincipalId], entries: usize) -> Acl {
    let mut acl = Acl::new();
    for group in groups.iter().step_by((groups.len() / entries).max(1)).take(entries) {
        assert!(acl.set(*group, Rights::READ.with(Rights::LOOKUP), false));
    }
    acl
}

/// One check: the caller's CPS, and the rights that the list gives it.
fn check(vice: &Vice, caller: &Caller, acl: &Acl) {
    let region = Region::new(HEAP);
    let begun = Instant::now();
    for _ in 0..CHECKS {
        let cps = vice.identities().cps(black_box(caller)).unwrap();
        black_box(acl.rights(&cps));
    }
    let took = begun.elapsed();
    println!(
        "warm: {:.0} ns a check of a list of {} entries, {} allocations in {CHECKS} checks",
        took.as_nanos() as f64 / f64::from(CHECKS),
        acl.positive().len(),
        region.change().allocations
    );
}

/// The call `Rights`, without the wire.
fn ask(vice: &Vice, caller: &Caller, acl: &Acl) {
    let mut out = Vec::new();
    let session = vice.attach(Time::ZERO, ClientId(1), 1, &mut out).unwrap().session;
    let mut request = 0;
    let mut call = |caller: &Caller, call: Call| {
        request += 1;
        let origin = ReplyAddress { session, slot: 0, request };
        vice.perform(
            Execution::new(Time::ZERO, Timestamp::new(2, 0), caller, origin),
            call,
            &mut out,
        );
        loop {
            match out.pop() {
                Some(Effect::Reply { result, .. }) => break result.unwrap(),
                // A break of this session's own promise.
                Some(Effect::Break { to, id, .. }) => vice.ack(Time::ZERO, to, id, &[], &mut out),
                Some(_) => {}
                None => panic!("no answer"),
            }
        }
    };
    let superuser = Caller::ROOT;
    let Answer::Status(root) =
        call(&superuser, Call::Root { volume: Name::new(b"root.cell").unwrap() })
    else {
        panic!("no status of the root")
    };
    let list = Some(acl.encode().into());
    call(&superuser, Call::SetAcl { fid: root.fid, list, instead_of: None });
    let begun = Instant::now();
    for _ in 0..CHECKS {
        black_box(call(black_box(caller), Call::Rights { fid: root.fid }));
    }
    println!(
        "warm: {:.0} ns a call of Rights, list of {} entries",
        begun.elapsed().as_nanos() as f64 / f64::from(CHECKS),
        acl.positive().len()
    );
}

/// Users, and one of them in many groups.
fn populate(db: &Embedded, principals: usize, groups: usize) -> (PrincipalId, Vec<PrincipalId>) {
    let cps = Cps::new(PrincipalId::ANONYMOUS, AuthLevel::Named, [PrincipalId::ADMINISTRATORS]);
    let root = PtsAsker { principal: PrincipalId::ANONYMOUS, cps };
    let pts = |call| db.access().pts(&root, &call).unwrap();
    let make = |kind, name: String| {
        let new = NewPrincipal { kind, name, id: None, owner: None, uid: None, gid: None };
        match pts(PtsCall::Create { new: Box::new(new) }) {
            Answer::Principals { principals, .. } => principals.first().unwrap().0.id,
            other => panic!("{other:?}"),
        }
    };
    let joe = make(PrincipalKind::User, "joe".to_owned());
    for number in groups + 1..principals {
        make(PrincipalKind::User, format!("user{number}"));
    }
    let groups: Vec<_> =
        (0..groups).map(|number| make(PrincipalKind::Group, format!("group{number}"))).collect();
    for group in &groups {
        pts(PtsCall::Join { group: *group, member: joe });
    }
    (joe, groups)
}
