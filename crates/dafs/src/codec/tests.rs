use bytes::Bytes;
use proptest::prelude::*;
use types::limits::MESSAGE_BYTES_MAX;
use types::{Answer, Cookie, DataVersion, DirEntry, Fid, Kind, Name};

use super::*;
use crate::limits::{FIDS_MAX, SUMS_MAX};
use crate::{WireError, strategies};

proptest! {
    #[test]
    fn a_call_survives_the_way_there(call in strategies::call()) {
        let EncodedCall { procedure, message, payload } = encode_call(&call).unwrap();
        prop_assert_eq!(decode_call(procedure, &message, payload), Ok(call));
    }

    #[test]
    fn an_answer_survives_the_way_back(answer in strategies::answer()) {
        let EncodedAnswer { procedure, message, payload } = encode_answer(&answer).unwrap();
        prop_assert_eq!(decode_answer(procedure, &message, payload), Ok(answer.clone()));
        let is_data = matches!(
            answer,
            Answer::Data { .. } | Answer::Packed { .. } | Answer::Part(_) | Answer::Records { .. }
        );
        if !is_data {
            prop_assert_eq!(decode_answer_record(&encode_answer_record(&answer)), Ok(answer));
        }
    }

    #[test]
    fn an_answer_says_which_file_is_current_by_its_kind(answer in strategies::answer()) {
        prop_assert_eq!(AnswerKind::of(&answer).has_current(), answer.current().is_some());
    }

    #[test]
    fn random_bytes_decode_to_nothing_or_to_what_encodes_to_them(
        procedure in 0..50u16,
        message in proptest::collection::vec(any::<u8>(), 0..300),
        payload in proptest::collection::vec(any::<u8>(), 0..3),
    ) {
        crate::fuzzing::call(procedure, &message, Bytes::from(payload.clone()));
        crate::fuzzing::answer(procedure, &message, Bytes::from(payload));
    }

    #[test]
    fn a_file_is_put_in_place_of_the_current_one_everywhere(call in strategies::call()) {
        let mut resolved = call.clone();
        prop_assert!(
            !uses_current(&mut resolved) && !resolve_current(&mut resolved, Fid::new(1, 2, 3))
        );
        prop_assert_eq!(resolved, call);
    }
}

#[test]
fn a_chains_file_is_resolved_in_both_places_of_a_rename() {
    let name = Name::new(b"n").unwrap();
    let rename = |from_dir, to_dir| types::Call::Rename {
        from_dir,
        from: name.clone(),
        to_dir,
        to: name.clone(),
        mode: types::RenameMode::Replace,
        hold: false,
    };
    let mut call = rename(Fid::CURRENT, Fid::CURRENT);
    let fid = Fid::new(4, 5, 6);
    assert!(uses_current(&mut call) && resolve_current(&mut call, fid));
    assert_eq!(call, rename(fid, fid));
}

#[test]
fn a_claimed_count_makes_no_room() {
    // 4,096 fids are within the limit, but the message ends before them.
    let message = (FIDS_MAX as u32).to_le_bytes();
    assert_eq!(
        decode_call(Procedure::Hold as u16, &message, Bytes::new()),
        Err(WireError::Truncated)
    );
    let message = (FIDS_MAX as u32 + 1).to_le_bytes();
    let refused = decode_call(Procedure::Hold as u16, &message, Bytes::new());
    assert!(matches!(refused, Err(WireError::TooMuch { .. })));
    let entries = [&7u64.to_le_bytes()[..], &u32::MAX.to_le_bytes(), &[0]].concat();
    assert_eq!(
        decode_answer(AnswerKind::Entries as u16, &entries, Bytes::new()),
        Err(WireError::Truncated)
    );
}

#[test]
fn a_listing_is_cut_behind_the_last_entry_that_fits() {
    let entry = |number: u64| DirEntry {
        name: Name::new(&[b'x'; 255]).unwrap(),
        fid: Fid::new(1, number, 1),
        kind: Kind::File,
        cookie: Cookie(number),
        status: None,
        sole: false,
        target: None,
    };
    let entries: Vec<_> = (1..2000).map(entry).collect();
    let encoded = encode_answer(&Answer::Entries {
        entries: entries.clone(),
        end: true,
        dir_version: DataVersion(3),
    })
    .unwrap();
    let fit = (MESSAGE_BYTES_MAX - ENTRIES_HEAD_BYTES) / (ENTRY_BYTES + 255);
    let cut = Answer::Entries {
        entries: entries[..fit].to_vec(),
        end: false,
        dir_version: DataVersion(3),
    };
    assert_eq!(decode_answer(encoded.procedure, &encoded.message, Bytes::new()), Ok(cut));
}

#[test]
fn volumes_that_do_not_fit_are_cut_off() {
    let volume = |id: u64| types::VolumeInfo {
        id: types::VolumeId(id),
        tree: types::VolumeId(id),
        kind: types::VolumeKind::ReadWrite,
        state: types::VolumeState::Online,
        partition: types::PartitionNo(0),
        epoch: 7,
        origin: None,
        name: Name::new(&[b'v'; 200]).unwrap(),
        created: types::Timestamp { secs: 1, nanos: 0 },
        updated: types::Timestamp { secs: 2, nanos: 0 },
        quota_bytes: 0,
        quota_files: 0,
        used_bytes: 0,
        used_files: 0,
        encrypted: None,
    };
    let volumes: Vec<_> = (1..2000).map(volume).collect();
    let encoded = encode_answer(&Answer::Volumes { volumes: volumes.clone(), end: true }).unwrap();
    let fit = (MESSAGE_BYTES_MAX - 5) / (96 + 200);
    let cut = Answer::Volumes { volumes: volumes[..fit].to_vec(), end: false };
    assert_eq!(decode_answer(encoded.procedure, &encoded.message, Bytes::new()), Ok(cut));
}

#[test]
fn more_sums_than_fit_are_left_out() {
    let encoded =
        encode_answer(&Answer::Sums { version: DataVersion(1), sums: vec![9; SUMS_MAX + 1] })
            .unwrap();
    let short = Answer::Sums { version: DataVersion(1), sums: vec![9; SUMS_MAX] };
    assert_eq!(decode_answer(encoded.procedure, &encoded.message, Bytes::new()), Ok(short));
}

#[test]
fn a_message_above_a_limit_is_not_sent() {
    let fid = Fid::new(1, 2, 3);
    let long = Bytes::from(vec![b'a'; 1 << 20]);
    let more = Bytes::from(vec![b'a'; (1 << 20) + 1]);
    let write = |data| types::Call::Write {
        fid,
        offset: None,
        data,
        stable: false,
        kill_privileges: false,
    };
    assert!(encode_call(&write(long.clone())).is_ok());
    for call in [
        write(more),
        types::Call::Read { fid, offset: 0, length: (1 << 20) + 1 },
        types::Call::XattrGet { fid, name: Bytes::from(vec![b'a'; 256]) },
        types::Call::XattrSet {
            fid,
            name: Bytes::new(),
            value: long.clone(),
            mode: types::XattrMode::Either,
        },
        types::Call::Hold { fids: vec![fid; FIDS_MAX + 1] },
    ] {
        assert!(
            matches!(encode_call(&call), Err(WireError::TooMuch { .. })),
            "{:?}",
            call.procedure()
        );
    }
    for answer in [
        Answer::Target(long.clone()),
        Answer::XattrNames(vec![Bytes::from(vec![b'a'; 255]); 1100]),
        Answer::Report("r".repeat(MESSAGE_BYTES_MAX)),
    ] {
        assert!(
            matches!(encode_answer(&answer), Err(WireError::TooMuch { .. })),
            "{:?}",
            AnswerKind::of(&answer)
        );
    }
}
