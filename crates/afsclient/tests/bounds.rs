//! AB-4: whatever a server answers, a call ends, and no answer passes for a file's state.

use std::time::{Duration, Instant};

use afs3::directory::{DirectoryWriter, PAGE_BYTES};
use afs3::files::{FilesAnswer, FilesCall};
use afs3::structs::{AfsFid, BulkStatus, CallBacks, FetchStatus, VolSync, file_type};
use client::CallError;
use types::{Answer, Call, Cookie, CreateHow, Fault, Name, NewKind};

use crate::fake::{Act, FakeCell, PROMISE, VOLUME, ask, data, fetched, file, status};

const READ: Call = Call::Read { fid: file_2(), offset: 0, length: 100 };
const LIST: Call =
    Call::ReadDir { dir: file_1(), cookie: Cookie::START, bytes_max: 65536, plus: true };

const fn file_1() -> types::Fid {
    types::Fid::new(VOLUME as u64, 1, 1)
}

const fn file_2() -> types::Fid {
    types::Fid::new(VOLUME as u64, 2, 1)
}

/// The answer to a call to a server that does this.
fn answer(
    call: Call,
    perform: impl Fn(&FilesCall) -> Act + Send + Sync + 'static,
) -> Result<Answer, CallError> {
    let cell = FakeCell::new(move |asked| perform(&asked.call));
    let (remote, _told) = cell.open();
    ask(&remote, call)
}

#[test]
fn ab4_a_fetch_has_the_bytes_that_were_asked_for() {
    let whole = || data(status(file_type::FILE, 100), PROMISE);
    let good = answer(READ, move |_| Act::Data(100, vec![1; 100], whole())).unwrap();
    assert!(matches!(good, Answer::Data { data, end: true, .. } if data.len() == 100));
    for (announced, sent) in [(101, 101), (u64::MAX, 100), (100, 99), (99, 99), (0, 0)] {
        let odd = answer(READ, move |_| Act::Data(announced, vec![1; sent], whole()));
        assert_eq!(odd.err(), Some(CallError::Unreadable), "{announced} {sent}");
    }
}

#[test]
fn ab4_a_status_that_makes_no_sense_is_no_answer() {
    let call = || Call::GetStatus { fid: file(2) };
    let mut huge = status(file_type::FILE, 0);
    huge.set_length(u64::MAX);
    for odd in [
        status(file_type::DIRECTORY, 0),
        status(file_type::INVALID, 0),
        status(77, 0),
        huge,
        FetchStatus { error_code: 13, ..status(file_type::FILE, 0) },
    ] {
        let answer = answer(call(), move |_| Act::Answer(fetched(odd, PROMISE)));
        assert_eq!(answer.err(), Some(CallError::Unreadable), "{odd:?}");
    }
}

#[test]
fn ab4_bytes_that_are_no_answer_are_refused() {
    for bytes in [0, 3, 100, 1 << 20] {
        let odd = answer(Call::GetStatus { fid: file(2) }, move |_| Act::Raw(vec![0xff; bytes]));
        assert!(odd.is_err(), "{bytes}: {odd:?}");
    }
}

#[test]
fn ab4_an_answer_to_another_call_is_none() {
    let other = |_: &FilesCall| {
        Act::Answer(FilesAnswer::RemoveFile {
            dir_status: status(file_type::DIRECTORY, 0),
            sync: VolSync::default(),
        })
    };
    assert!(answer(Call::GetStatus { fid: file(2) }, other).is_err());
}

#[test]
fn ab4_a_directory_that_is_none_is_damaged() {
    for bytes in [1, PAGE_BYTES - 1, PAGE_BYTES, 3 * PAGE_BYTES] {
        let dir = status(file_type::DIRECTORY, bytes as u64);
        let odd =
            answer(LIST, move |_| Act::Data(bytes as u64, vec![7; bytes], data(dir, PROMISE)));
        assert_eq!(odd.err(), Some(CallError::Fault(Fault::Damaged)), "{bytes}");
    }
    let dir = status(file_type::DIRECTORY, 1 << 40);
    let endless = answer(LIST, move |_| Act::Data(1 << 40, vec![7; 1 << 20], data(dir, PROMISE)));
    assert_eq!(endless.err(), Some(CallError::Unreadable));
}

fn listing(bulk: impl Fn(usize) -> usize + Send + Sync + 'static) -> Result<Answer, CallError> {
    answer(LIST, move |call| match call {
        FilesCall::FetchData64 { .. } => {
            let mut pages = DirectoryWriter::new((1, 1), (1, 1));
            (1..=60_u32).for_each(|n| pages.add(format!("{n}").as_bytes(), 2 * n, 1).unwrap());
            let pages = pages.finish();
            let dir = status(file_type::DIRECTORY, pages.len() as u64);
            Act::Data(pages.len() as u64, pages, data(dir, PROMISE))
        }
        FilesCall::InlineBulkStatus { fids } => {
            let count = bulk(fids.as_slice().len());
            Act::Answer(FilesAnswer::InlineBulkStatus {
                status: BulkStatus::new(vec![status(file_type::FILE, 1); count]).unwrap(),
                callbacks: CallBacks::new(vec![PROMISE; count]).unwrap(),
                sync: VolSync::default(),
            })
        }
        _ => Act::Abort(1),
    })
}

#[test]
fn a_listing_has_all_entries_with_their_status() {
    let Answer::Entries { entries, end: true, .. } = listing(|count| count).unwrap() else {
        panic!()
    };
    assert_eq!(entries.len(), 60);
    assert!(entries.iter().all(|entry| entry.status.is_some()));
    assert!(entries.is_sorted_by_key(|entry| entry.cookie));
}

#[test]
fn ab4_a_bulk_answer_has_one_status_for_each_file() {
    assert_eq!(listing(|count| count - 1).err(), Some(CallError::Unreadable));
    assert_eq!(listing(|_| 0).err(), Some(CallError::Unreadable));
}

#[test]
fn ab4_a_made_file_belongs_to_the_directorys_volume() {
    let make = |made: AfsFid| {
        let call = Call::Make {
            dir: file(1),
            name: Name::new(b"new").unwrap(),
            kind: NewKind::File,
            mode: 0o644,
            how: CreateHow::Guarded,
        };
        answer(call, move |_| {
            Act::Answer(FilesAnswer::CreateFile {
                fid: made,
                status: status(file_type::FILE, 0),
                dir_status: status(file_type::DIRECTORY, 2048),
                callback: PROMISE,
                sync: VolSync::default(),
            })
        })
    };
    let good = AfsFid { volume: VOLUME, vnode: 8, unique: 3 };
    assert!(make(good).is_ok());
    for odd in [AfsFid { volume: 8, ..good }, AfsFid { vnode: 0, ..good }] {
        assert_eq!(make(odd).err(), Some(CallError::Unreadable), "{odd:?}");
    }
}

#[test]
fn ab4_a_silent_server_ends_the_call() {
    let cell = FakeCell::without_file_server();
    let (remote, _told) = cell.open();
    let began = Instant::now();
    let answer = ask(&remote, Call::GetStatus { fid: file(2) });
    assert_eq!(answer.err(), Some(CallError::TimedOut));
    assert!(began.elapsed() < Duration::from_secs(30), "{:?}", began.elapsed());
}
