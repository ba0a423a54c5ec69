//! Random opens and locks of three programs, with restarts of the server between them, against a
//! model: two lists, in which each new entry is compared with all others.

use std::time::Duration;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use rialto_client::{
    ByteRange, DataUse, DirectCell, DirectError, DirectFile, FileLock, LockMode, MakeFile, OpenHow,
    ShareKey, status,
};
use types::Fault;

use crate::Served;

const FILES: [&str; 3] = ["a", "b", "c"];
const PROGRAMS: usize = 3;
const STEPS: usize = 600;

/// An open of the model, with the program's file.
struct ModelOpen {
    file: usize,
    access: DataUse,
    deny: DataUse,
    key: Option<u8>,
    real: DirectFile,
}

/// A lock of the model, with the program's own.
struct ModelLock {
    file: usize,
    range: ByteRange,
    mode: LockMode,
    real: FileLock,
}

#[derive(Default)]
struct Model {
    opens: Vec<ModelOpen>,
    locks: Vec<ModelLock>,
}

impl Model {
    fn open(
        &self,
        file: usize,
        access: DataUse,
        deny: DataUse,
        key: Option<u8>,
    ) -> Result<(), Fault> {
        let others: Vec<&ModelOpen> = self.opens.iter().filter(|one| one.file == file).collect();
        if others.iter().any(|one| one.key != key) {
            return Err(Fault::KeyConflict);
        }
        let conflicts = |one: &&ModelOpen| one.deny.meets(access) || deny.meets(one.access);
        if others.iter().any(conflicts) { Err(Fault::ShareConflict) } else { Ok(()) }
    }

    fn lock(&self, file: usize, range: ByteRange, mode: LockMode) -> Result<(), Fault> {
        let conflicts = |one: &ModelLock| {
            one.file == file
                && one.range.overlaps(range)
                && (one.mode == LockMode::Exclusive || mode == LockMode::Exclusive)
        };
        if self.locks.iter().any(conflicts) { Err(Fault::Locked) } else { Ok(()) }
    }
}

fn pick<T: Copy>(random: &mut StdRng, all: &[T]) -> T {
    all[random.random_range(0..all.len())]
}

fn outcome<T>(result: Result<T, DirectError>) -> Result<T, Fault> {
    result.map_err(|error| match error {
        DirectError::Refused(fault) => fault,
        other => panic!("{other:?}"),
    })
}

/// One history. Returns how many opens and locks were granted, and how many refused.
fn history(seed: u64) -> (u32, u32) {
    let mut random = StdRng::seed_from_u64(seed);
    let mut served = Served::new();
    let cells: Vec<DirectCell> = (0..PROGRAMS).map(|_| served.cell()).collect();
    let plain: Vec<Vec<DirectFile>> = cells
        .iter()
        .map(|cell| FILES.map(|path| DirectFile::create(cell, path, 0o644).unwrap()).into())
        .collect();
    let (mut model, mut granted, mut refused) = (Model::default(), 0, 0);
    let uses = [DataUse::Read, DataUse::Write, DataUse::Both];
    let denials = [DataUse::Nothing, DataUse::Nothing, DataUse::Read, DataUse::Write];
    for step in 0..STEPS {
        let (program, file) = (random.random_range(0..PROGRAMS), random.random_range(0..3));
        let expected = match random.random_range(0..100) {
            0..30 => {
                let (access, deny) = (pick(&mut random, &uses), pick(&mut random, &denials));
                let key = pick(&mut random, &[None, None, None, Some(1), Some(2)]);
                let shared = key.map(|byte| ShareKey([byte; 16]));
                let how = OpenHow { access, deny, key: shared, make: MakeFile::Never };
                let expected = model.open(file, access, deny, key);
                let real = outcome(DirectFile::open_with(&cells[program], FILES[file], &how));
                assert_eq!(real.as_ref().map(drop).map_err(|fault| *fault), expected, "{step}");
                model.opens.extend(real.map(|real| ModelOpen { file, access, deny, key, real }));
                expected
            }
            30..60 => {
                let start = random.random_range(0..20);
                let range = ByteRange { start, end: start + random.random_range(0..5) };
                let mode = pick(&mut random, &[LockMode::Shared, LockMode::Exclusive]);
                let expected = model.lock(file, range, mode);
                let within = Some(Duration::ZERO);
                let real = outcome(plain[program][file].lock(range, mode, within));
                assert_eq!(real.as_ref().map(drop).map_err(|fault| *fault), expected, "{step}");
                model.locks.extend(real.map(|real| ModelLock { file, range, mode, real }));
                expected
            }
            60..75 if !model.opens.is_empty() => {
                let at = random.random_range(0..model.opens.len());
                let open = model.opens.swap_remove(at);
                match random.random() {
                    true => open.real.close().unwrap(),
                    false => drop(open.real),
                }
                continue;
            }
            75..92 if !model.locks.is_empty() => {
                let at = random.random_range(0..model.locks.len());
                let lock = model.locks.swap_remove(at);
                match random.random() {
                    true => lock.real.unlock().unwrap(),
                    false => drop(lock.real),
                }
                continue;
            }
            92..97 if !model.opens.is_empty() => {
                let at = random.random_range(0..model.opens.len());
                let open = &mut model.opens[at];
                let (access, deny) = (pick(&mut random, &uses), pick(&mut random, &denials));
                let is_less = open.access.contains(access) && open.deny.contains(deny);
                let expected = if is_less { Ok(()) } else { Err(Fault::Invalid) };
                assert_eq!(outcome(open.real.downgrade(access, deny)), expected, "{step}");
                if is_less {
                    (open.access, open.deny) = (access, deny);
                }
                continue;
            }
            97.. => {
                served.crash();
                served.start();
                // A drop waits for a server that answers alone.
                assert!(cells.iter().all(|cell| status(cell, "a", true).is_ok()));
                continue;
            }
            _ => continue,
        };
        if expected.is_ok() { granted += 1 } else { refused += 1 }
    }
    (granted, refused)
}

#[test]
fn random_opens_and_locks_are_as_a_model_says() {
    let counts = [11, 12].map(history);
    for (granted, refused) in counts {
        assert!(granted > 100 && refused > 50, "{counts:?}: the histories test something");
    }
}
