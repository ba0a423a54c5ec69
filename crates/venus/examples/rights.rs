//! Measures the lookup of cached rights, which a mount makes before it answers the kernel's
//! permission checks: of 500 directories with 20 users each.
//!
//! `cargo run --release -p venus --example rights [-- DIRECTORIES USERS]`
#![allow(clippy::unwrap_used)]

use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

use client::clock;
use guard::{Acl, Cps, Rights};
use server::Loopback;
use store::{MemMachine, NewRoot, OpenOptions, Partition, VolumeQuota};
use types::{Caller, ClientId, Fault, Fid, Name, NewKind, PrincipalId, RequestIdentity, Timestamp};
use venus::{RequestContext, Venus, VenusConfig};
use vice::{Vice, ViceConfig, ViceParts};

const ASKED: usize = 1_000_000;

/// Uid n is principal n.
struct Known;

impl vice::Principals for Known {
    fn cps(&self, caller: &Caller) -> Result<Cps, Fault> {
        Ok(Cps::new(PrincipalId(caller.uid as i32), caller.who.level, []))
    }
}

fn main() {
    let numbers: Vec<usize> =
        std::env::args().skip(1).map(|number| number.parse().unwrap()).collect();
    let (dirs, users) =
        (numbers.first().copied().unwrap_or(500), numbers.get(1).copied().unwrap_or(20));
    let partition = Partition::open_memory(&MemMachine::new(), OpenOptions::default()).unwrap();
    let root = NewRoot {
        mode: 0o755,
        uid: 0,
        gid: 0,
        now: Timestamp::new(1, 0),
        quota: VolumeQuota::default(),
    };
    let volume = partition.volumes().create_volume(&Name::new(b"v").unwrap(), &root).unwrap();
    let root = Fid::root(volume.id());
    let config = ViceConfig::new(dafs::encode_answer_record, |record| {
        dafs::decode_answer_record(record).ok()
    });
    let parts = ViceParts { principals: Some(Arc::new(Known)), ..ViceParts::default() };
    let vice = Vice::open_with(partition, config, parts, clock::now()).unwrap();
    let loopback = Loopback::new(Arc::new(vice));
    let venus =
        Venus::new(Arc::new(loopback.attach(ClientId(1), 1).unwrap()), VenusConfig::default())
            .unwrap();

    let administrator = RequestContext::of(&Caller::ROOT);
    let mut list = Acl::new();
    assert!(list.set(PrincipalId::ANYBODY, Rights::READ.with(Rights::LOOKUP), false));
    venus.access().set_acl(&administrator, root, Some(&list), None).unwrap();
    let make = |number: usize| {
        let name = Name::new(format!("d{number}").as_bytes()).unwrap();
        venus
            .changes()
            .make(&administrator, root, &name, NewKind::Directory, 0o755)
            .unwrap()
            .status
            .fid
    };
    let fids: Vec<Fid> = (0..dirs).map(make).collect();
    let caller = |uid: usize| Caller {
        uid: 1 + uid as u32,
        gid: 1,
        groups: Some(Box::default()),
        who: RequestIdentity::NAMED,
    };
    let callers: Vec<Caller> = (0..users).map(caller).collect();

    let ask = |number: usize| {
        let request = RequestContext::of(&callers[number / dirs % users]);
        black_box(venus.access().rights(&request, fids[number % dirs]).unwrap());
    };
    let report = |text: &str, count: usize, begun: Instant| {
        println!("{text}: {:.0} ns each", begun.elapsed().as_nanos() as f64 / count as f64);
    };
    let begun = Instant::now();
    (0..dirs * users).for_each(ask);
    report("cold, answered by the service in this process", dirs * users, begun);
    let begun = Instant::now();
    (0..ASKED).for_each(ask);
    report("warm", ASKED, begun);
}
