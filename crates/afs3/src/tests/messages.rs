//! All services alike: round trips of drawn messages, and bytes that are none.

use std::fmt::Debug;

use proptest::collection::vec;
use proptest::prelude::*;

use crate::sample::{SampleMessage, Sampler};
use crate::xdr::XdrReader;
use crate::{RpcError, RpcMessage};

/// Encodes and decodes a message of each procedure of a service.
fn round_trips<M: RpcMessage + SampleMessage + Debug + PartialEq>(
    bytes: &[u8],
) -> Result<(), TestCaseError> {
    for row in M::PROCEDURES {
        let message = M::sample_of(row.number, &mut Sampler::new(bytes));
        let wire = message.to_bytes();
        let mut from = XdrReader::new(&wire);
        prop_assert_eq!(message.procedure(), row.number);
        prop_assert_eq!(M::decode(row.number, &mut from), Ok(message));
        prop_assert_eq!(from.rest(), b"");
    }
    Ok(())
}

/// Decodes bytes as each procedure of a service. A message that they happen to be is one that a
/// peer may send, so it comes back the same.
fn bytes_are_harmless<M: RpcMessage + Debug + PartialEq>(
    bytes: &[u8],
) -> Result<(), TestCaseError> {
    for row in M::PROCEDURES {
        let mut from = XdrReader::new(bytes);
        if let Ok(message) = M::decode(row.number, &mut from) {
            let again = message.to_bytes();
            prop_assert_eq!(again.len(), bytes.len() - from.rest().len());
            prop_assert_eq!(M::decode(row.number, &mut XdrReader::new(&again)), Ok(message));
        }
    }
    Ok(())
}

macro_rules! each_service {
    ($check:ident($bytes:expr): $($service:ident::$calls:ident, $answers:ident;)*) => {
        $(
            $check::<crate::$service::$calls>($bytes)?;
            $check::<crate::$service::$answers>($bytes)?;
        )*
        $check::<crate::ubik::vote::VoteCall>($bytes)?;
        $check::<crate::ubik::vote::VoteAnswer>($bytes)?;
        $check::<crate::ubik::disk::DiskCall>($bytes)?;
        $check::<crate::ubik::disk::DiskAnswer>($bytes)?;
    };
    ($check:ident($bytes:expr)) => {
        each_service! { $check($bytes):
            files::FilesCall, FilesAnswer;
            callbacks::CallbacksCall, CallbacksAnswer;
            locations::LocationsCall, LocationsAnswer;
            protection::ProtectionCall, ProtectionAnswer;
            volumes::VolumesCall, VolumesAnswer;
            bos::BosCall, BosAnswer;
            statistics::StatisticsCall, StatisticsAnswer;
        }
    };
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn drawn_messages_come_back(bytes in vec(any::<u8>(), 0..4000)) {
        each_service!(round_trips(&bytes));
    }

    #[test]
    fn random_bytes_are_harmless(bytes in vec(any::<u8>(), 0..300)) {
        each_service!(bytes_are_harmless(&bytes));
    }

    /// Words that are small, as counts and lengths are, get further than random ones.
    #[test]
    fn random_small_words_are_harmless(words in vec(0_u8..6, 0..400)) {
        let bytes: Vec<u8> = words.iter().flat_map(|word| [0, 0, 0, *word]).collect();
        each_service!(bytes_are_harmless(&bytes));
    }
}

#[test]
fn unknown_procedures_are_refused_with_the_code_for_them() {
    fn refused<M: RpcMessage + Debug + PartialEq>(_: &[u8]) -> Result<(), TestCaseError> {
        let known = |number| M::PROCEDURES.iter().any(|row| row.number == number);
        for number in (0..70_000).chain([u32::MAX]).filter(|number| !known(*number)) {
            let error = M::decode(number, &mut XdrReader::new(&[])).unwrap_err();
            prop_assert_eq!(error, RpcError::UnknownProcedure(number));
            prop_assert_eq!(error.code(), -455);
        }
        Ok(())
    }
    let all = || -> Result<(), TestCaseError> {
        each_service!(refused(&[]));
        Ok(())
    };
    all().unwrap();
}

#[test]
fn malformed_arguments_and_results_have_their_codes() {
    use crate::files::{FilesAnswer, FilesCall};
    let arguments = FilesCall::decode(130, &mut XdrReader::new(&[])).unwrap_err();
    assert_eq!(arguments.code(), -453);
    let results = FilesAnswer::decode(130, &mut XdrReader::new(&[])).unwrap_err();
    assert_eq!(results.code(), -451);
}

#[test]
fn limits_of_the_protocol_are_kept() {
    use crate::files::FilesCall;
    use crate::xdr::XdrError;
    // 51 files are one too many, even if they are all there.
    let mut bytes = vec![0, 0, 0, 51];
    bytes.resize(4 + 51 * 12, 0);
    let refused = FilesCall::decode(65536, &mut XdrReader::new(&bytes));
    let error = XdrError::TooMany { count: 51, most: 50 };
    assert_eq!(refused, Err(RpcError::Arguments(error)));
    bytes[3] = 50;
    assert!(FilesCall::decode(65536, &mut XdrReader::new(&bytes)).is_ok());
}
