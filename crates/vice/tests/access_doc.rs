//! The tables of docs/spec/access.md against the service: each call in them is made as each kind of
//! caller, under mode bits and access lists of all kinds, and is refused exactly where the table
//! says so (AC-4).

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::common::{Ground, Rig};
use crate::file_calls::{Place, file_calls, place, set_list};
use guard::{Cps, Rights};
use types::{AuthLevel, Call, Caller, Fault, KeyPrint, PrincipalId, RequestIdentity};

const DOC: &str = include_str!("../../../docs/spec/access.md");
const OWNER: u32 = 10;
const MEMBER: u32 = 11;
const OTHER: u32 = 12;
const CHIEF: u32 = 13;
/// The group of the files.
const GROUP: u32 = 20;

/// A row of a table: the labels of its calls, and its further columns.
type DocRow = (Vec<String>, Vec<String>);

/// The first table behind `heading` whose first column is `call`.
fn table(heading: &str) -> Vec<DocRow> {
    let (_, section) =
        DOC.split_once(&format!("\n{heading}\n")).expect("the heading is in the page");
    let lines = section.lines().skip_while(|line| !line.starts_with("| call |")).skip(2);
    let cells = |line: &str| -> Vec<String> {
        line.trim_matches('|').split('|').map(|c| c.trim().into()).collect()
    };
    let row = |line: &str| {
        let mut cells = cells(line).into_iter();
        let calls = cells.next().unwrap().split(", ").map(str::to_owned).collect();
        (calls, cells.collect())
    };
    lines.take_while(|line| line.starts_with('|')).map(row).collect()
}

/// The cells of the call's row.
fn cells<'a>(table: &'a [DocRow], label: &str) -> &'a [String] {
    let found: Vec<_> =
        table.iter().filter(|(calls, _)| calls.iter().any(|call| call == label)).collect();
    assert_eq!(found.len(), 1, "{label} is in one row of the table");
    &found[0].1
}

/// Whether a term of the table holds; `holds` decides a word.
fn allows(term: &str, holds: &dyn Fn(&str) -> bool) -> bool {
    term.split(" or ").any(|all| all.split(" and ").all(holds))
}

struct ByUid;

impl vice::Principals for ByUid {
    fn cps(&self, caller: &Caller) -> Result<Cps, Fault> {
        let level = caller.who.level;
        let principal = if level == AuthLevel::Nobody {
            PrincipalId::ANONYMOUS
        } else {
            PrincipalId(caller.uid as i32)
        };
        let chief = caller.uid == CHIEF && level.is_proved();
        Ok(Cps::new(principal, level, chief.then_some(PrincipalId::ADMINISTRATORS)))
    }
}

fn caller(uid: u32, level: AuthLevel) -> Caller {
    let gid = if uid == MEMBER { GROUP } else { uid };
    let who = match level {
        AuthLevel::Nobody => RequestIdentity::NOBODY,
        AuthLevel::Enrolling => {
            RequestIdentity { level, server: Some(KeyPrint([1; 32])), ..RequestIdentity::NOBODY }
        }
        level => {
            RequestIdentity { level, principal: PrincipalId(uid as i32), ..RequestIdentity::NOBODY }
        }
    };
    Caller { uid, gid, groups: Some(Box::default()), who }
}

/// The class of bits that applies.
fn class(caller: &Caller) -> u32 {
    match caller.uid {
        _ if is_unknown(caller.who.level) => 0,
        OWNER => 6,
        MEMBER => 3,
        _ => 0,
    }
}

/// For files, an enrolling server is an anonymous caller.
fn is_unknown(level: AuthLevel) -> bool {
    matches!(level, AuthLevel::Nobody | AuthLevel::Enrolling)
}

fn has_bit(mode: u16, caller: &Caller, letter: &str) -> bool {
    let bit = match letter {
        "r" => 4,
        "w" => 2,
        "x" => 1,
        other => panic!("{other} is no bit"),
    };
    (mode >> class(caller)) & bit != 0
}

fn is_refused(rig: &mut Rig, caller: &Caller, call: &Call) -> (bool, String) {
    let what = format!("{caller:?} {call:?}");
    let origin = rig.start(1, caller, call.clone());
    let result = rig.reply(origin).unwrap_or_else(|| panic!("no answer: {what}"));
    let refused = matches!(result, Err(Fault::AccessDenied | Fault::NotPermitted));
    if let Call::Delegate { fid } = call {
        rig.call(1, caller, Call::Return { fids: vec![*fid] }).unwrap();
    }
    (refused, format!("{what}: {result:?}"))
}

/// Bodies are loaned from a disk alone.
fn ground(label: &str) -> Ground {
    if label.starts_with("Lend") { Ground::disk() } else { Ground::memory() }
}

const MODES: [u16; 16] = [
    0o000, 0o400, 0o200, 0o100, 0o040, 0o020, 0o010, 0o004, 0o002, 0o001, 0o300, 0o030, 0o003,
    0o600, 0o066, 0o777,
];

#[test]
fn ac4_mode_bits_are_judged_as_the_document_says() {
    let table = table("## Mode bits");
    let columns = [
        (AuthLevel::Host, 0),
        (AuthLevel::Password, 1),
        (AuthLevel::Nobody, 2),
        (AuthLevel::Enrolling, 2),
    ];
    let labels: Vec<&str> = file_calls(some_place()).iter().map(|(label, _)| *label).collect();
    let (mut checked, mut wrong) = (0, Vec::new());
    for (at, label) in labels.iter().enumerate() {
        let cells = cells(&table, label);
        let mut rig = Rig::with_principals(ground(label), 2, Arc::new(ByUid));
        let root = rig.root();
        let modes = MODES.iter().flat_map(|mode| [[0o777, *mode], [*mode, 0o777]]);
        for (number, [dir_mode, file_mode]) in modes.enumerate() {
            for ((level, column), uid) in
                columns.iter().flat_map(|c| [OWNER, MEMBER, OTHER].map(|u| (c, u)))
            {
                let term = &cells[*column];
                let caller = caller(uid, *level);
                let called = format!("{number} {level:?} {uid}");
                let place = place(&mut rig, root, &called, (OWNER, GROUP), [dir_mode, file_mode]);
                let call = file_calls(place).swap_remove(at).1;
                let expected = allows(term, &|word| match word {
                    "all" | "kernel" | "no lists" => true,
                    "none" => false,
                    "owner" => uid == OWNER && !is_unknown(*level),
                    word => match word.strip_prefix("dir-") {
                        Some(letter) => has_bit(dir_mode, &caller, letter),
                        None => has_bit(file_mode, &caller, word),
                    },
                });
                let (refused, what) = is_refused(&mut rig, &caller, &call);
                checked += 1;
                if refused == expected {
                    wrong.push(format!(
                        "{label}: {term}: dir {dir_mode:o}, file {file_mode:o}: {what:.300}"
                    ));
                    break;
                }
            }
        }
        let place = place(&mut rig, root, "superuser", (OWNER, GROUP), [0, 0]);
        let (refused, what) =
            is_refused(&mut rig, &Caller::ROOT, &file_calls(place).swap_remove(at).1);
        assert!(!refused, "{label}: the superuser: {what}");
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(checked > 10_000, "{checked}");
}

#[test]
fn ac4_access_lists_are_judged_as_the_document_says() {
    let table = table("## Access lists");
    let letters = [
        ("l", Rights::LOOKUP),
        ("r", Rights::READ),
        ("w", Rights::WRITE),
        ("i", Rights::INSERT),
        ("d", Rights::DELETE),
        ("k", Rights::LOCK),
        ("a", Rights::ADMINISTER),
    ];
    let labels: Vec<&str> = file_calls(some_place()).iter().map(|(label, _)| *label).collect();
    let (mut checked, mut wrong) = (0, Vec::new());
    for (at, label) in labels.iter().enumerate() {
        let [term] = cells(&table, label) else { panic!("{label}: one column") };
        let mut rig = Rig::with_principals(ground(label), 2, Arc::new(ByUid));
        let root = rig.root();
        set_list(&mut rig, root, &[(PrincipalId::ANYBODY, Rights::LOOKUP)]);
        for (set, (uid, level)) in (0..1 << letters.len()).flat_map(|set| {
            [
                (OTHER, AuthLevel::Password),
                (OWNER, AuthLevel::Host),
                (CHIEF, AuthLevel::Password),
                (OTHER, AuthLevel::Nobody),
            ]
            .map(|who| (set, who))
        }) {
            let caller = caller(uid, level);
            let chosen = letters
                .iter()
                .enumerate()
                .filter(|(number, _)| set & (1 << number) != 0)
                .map(|(_, one)| one);
            let mut given: BTreeSet<&str> = chosen.clone().map(|(letter, _)| *letter).collect();
            let rights = chosen.fold(Rights::NONE, |rights, (_, right)| rights.with(*right));
            let called = format!("{set} {uid} {level:?}");
            // The directory belongs to the superuser, so that its owner's own rights do not count.
            let place = place(&mut rig, root, &called, (0, 0), [0o777, 0o777]);
            let own = types::StatusChange {
                uid: Some(OWNER),
                gid: Some(GROUP),
                ..types::StatusChange::default()
            };
            rig.call(0, &Caller::ROOT, Call::SetStatus { fid: place.file, change: own }).unwrap();
            set_list(&mut rig, place.dir, &[(PrincipalId::ANYBODY, rights)]);
            let administrator = uid == CHIEF;
            if administrator {
                given.extend(["l", "a"]);
            }
            let expected = allows(term, &|word| match word {
                "all" => true,
                "none" => false,
                "owner" => uid == OWNER && level != AuthLevel::Nobody,
                "administrator" => administrator,
                "proof" => level != AuthLevel::Nobody,
                letter => given.contains(letter),
            });
            let (refused, what) =
                is_refused(&mut rig, &caller, &file_calls(place).swap_remove(at).1);
            checked += 1;
            if refused == expected {
                wrong.push(format!("{label}: {term}: {given:?}: {what:.300}"));
                break;
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(checked > 20_000, "{checked}");
}

fn some_place() -> Place {
    let mut rig = Rig::new(Ground::memory(), 1);
    let root = rig.root();
    place(&mut rig, root, "some", (OWNER, GROUP), [0o777, 0o777])
}
