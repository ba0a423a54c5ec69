//! Two handles of one store, in memory: the second one makes changes between the view and the
//! commit of the first.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

use guard::{Cps, PtsAsker};
use types::{
    AuthLevel, GuardCall, Name, NewPrincipal, PrincipalId, PrincipalKind, PtsCall, ServerId,
    ServerInfo, Site, Whom,
};

use super::*;
use crate::engine::Visit;

type Records = std::collections::BTreeMap<Vec<u8>, Vec<u8>>;

/// The records, and how often they were changed.
#[derive(Clone, Default)]
struct Store(Arc<Mutex<(Records, u64)>>);

struct MemEngine {
    store: Store,
    /// Called before each commit.
    before_commit: Box<dyn Fn() + Send + Sync>,
}

struct MemView(Records, u64);

impl View for MemView {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        Ok(self.0.get(key).cloned())
    }

    fn scan(&self, from: &[u8], visit: &mut Visit<'_>) -> Result<()> {
        for (key, value) in self.0.range(from.to_vec()..) {
            if !visit(key, value)? {
                break;
            }
        }
        Ok(())
    }
}

impl Engine for MemEngine {
    type View<'a> = MemView;

    fn view(&self) -> MemView {
        let (records, changes) = self.store.0.lock().clone();
        MemView(records, changes)
    }

    fn commit(&self, view: &MemView, batch: &Batch, _next: Revision) -> Result<Commit> {
        (self.before_commit)();
        let mut store = self.store.0.lock();
        if store.1 != view.1 {
            return Ok(Commit::Overtaken);
        }
        store.1 += 1;
        for (key, value) in batch.iter() {
            match value {
                Some(value) => store.0.insert(key.to_vec(), value.to_vec()),
                None => store.0.remove(key),
            };
        }
        Ok(Commit::Done)
    }

    fn need_room(&self) -> Result<()> {
        Ok(())
    }
}

fn plain(store: &Store) -> Operations<MemEngine> {
    let engine = MemEngine { store: store.clone(), before_commit: Box::new(|| {}) };
    Operations::new(engine, 1000)
}

fn new_store() -> Store {
    let store = Store::default();
    let db = plain(&store);
    db.begin(&db.hold(), crate::CELL_LEVEL_KNOWN).unwrap();
    step(&db, 0).unwrap();
    step(&db, 5).unwrap();
    store
}

fn group(number: u64, name: &[u8]) -> VolumeGroup {
    let site = Site {
        server: ServerId(1),
        partition: "vicepa".into(),
        kind: SiteKind::ReadWrite,
        epoch: 0,
    };
    VolumeGroup::new(Name::new(name).unwrap(), VolumeId(number), site)
}

/// The kinds of changes.
const STEPS: usize = 9;

fn step(db: &Operations<MemEngine>, step: usize) -> std::result::Result<String, Fault> {
    let held = db.hold();
    let power = Cps::new(PrincipalId(1), AuthLevel::Named, [PrincipalId::ADMINISTRATORS]);
    let root = PtsAsker { principal: PrincipalId::ANONYMOUS, cps: power };
    let seen = |number| {
        let seen = db.read(|view| view.group(VolumeId(number))).unwrap();
        seen.map(|seen| seen.revision).unwrap_or_default()
    };
    let create = |name: &str| {
        let new = NewPrincipal {
            kind: PrincipalKind::User,
            name: name.into(),
            id: None,
            owner: None,
            uid: None,
            gid: None,
        };
        PtsCall::Create { new: Box::new(new) }
    };
    let server = |id: u128| ServerInfo {
        id: ServerId(id),
        name: format!("server-{id}"),
        addresses: Vec::new(),
        keys: vec![types::KeyPrint([id as u8; 32])],
    };
    Ok(match step {
        0 => format!("{:?}", db.put_group(&held, &group(7, b"a"), seen(7))?),
        1 => format!("{:?}", db.put_group(&held, &group(8, b"b"), Revision(0))?),
        2 => format!("{:?}", db.remove_group(&held, VolumeId(7), seen(7))?),
        3 => format!("{:?}", db.take_numbers(&held, VolumeId(3), 5)?),
        4 => format!("{:?}", db.put_server(&held, &server(2), Revision(0))?),
        5 => format!("{:?}", db.change_principals(&held, &root, &create("joe"))?),
        6 => format!("{:?}", db.change_principals(&held, &root, &create("sue"))?),
        7 => format!("{:?}", db.set_secret(&held, PrincipalId(1), "hash", Some(9))?),
        8 => {
            let whom = Whom::User(PrincipalId(1));
            let call = GuardCall::AddFence { whom, seconds: 0, why: String::new() };
            let (rules, number) = db.change_rules(&held, None, PrincipalId::NONE, 5, &call)?;
            format!("{number} {}", rules.record.fences.len())
        }
        other => panic!("there is no step {other}"),
    })
}

/// Each change that is overtaken by each other one is made as if it came after it.
#[test]
fn ac12_an_overtaken_change_comes_after_the_other() {
    let mut overtaken = 0;
    for (first, second, times) in (0..STEPS)
        .flat_map(|first| (0..STEPS).map(move |second| (first, second)))
        .flat_map(|(first, second)| [1, 2].map(|times| (first, second, times)))
        // Its caller has read the record that is replaced before the call.
        .filter(|(first, second, _)| ![0, 2].contains(first) || ![0, 2].contains(second))
    {
        let (together, one_by_one) = (new_store(), new_store());
        let (between, made) = (plain(&together), Arc::new(AtomicUsize::new(0)));
        let count = Arc::clone(&made);
        let hook = move || {
            if count.load(Relaxed) < times {
                count.fetch_add(1, Relaxed);
                let _ = step(&between, second);
            }
        };
        let engine = MemEngine { store: together.clone(), before_commit: Box::new(hook) };
        let found = step(&Operations::new(engine, 1000), first);
        let after = plain(&one_by_one);
        for _ in 0..made.load(Relaxed) {
            let _ = step(&after, second);
        }
        assert_eq!(found, step(&after, first), "{first} overtaken by {second}");
        assert!(together.0.lock().0 == one_by_one.0.lock().0, "{first} overtaken by {second}");
        overtaken += made.load(Relaxed);
    }
    assert!(overtaken > STEPS * STEPS, "{overtaken}");
}

#[test]
fn a_change_that_is_always_overtaken_is_busy() {
    let store = new_store();
    let between = plain(&store);
    let hook = move || drop(step(&between, 3));
    let engine = MemEngine { store: store.clone(), before_commit: Box::new(hook) };
    let db = Operations::new(engine, 1000);
    let busy = db.put_group(&db.hold(), &group(9, b"c"), Revision(0));
    assert_eq!(busy, Err(CellError::Away(Fault::Busy)));
    assert_eq!(plain(&store).read(|view| view.group(VolumeId(9))), Ok(None));
}
