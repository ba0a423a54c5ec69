//! Procedures: the calls and answers of a service from a row for each.
//!
//! Model: a call on the wire is the procedure's number and then its arguments; an answer is the
//! results alone, since a failure is an abort of the transport with a code. A *split* call has a
//! stream of raw bytes besides: behind the arguments when the client sends it, before the results
//! when the server does. `service!` makes the enum of calls, the enum of answers and the table of
//! the procedures of a service.
//!
//! Source: OpenAFS `src/rxgen`, `src/rxgen/rpc_errors.h`.

use crate::errors;
use crate::xdr::{Xdr as _, XdrError, XdrReader, XdrWriter};

/// The place of a procedure's stream of raw bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamPlace {
    /// The procedure has none.
    Nowhere,
    /// The client sends it behind the arguments.
    BehindArguments,
    /// The server sends it before the results.
    BeforeResults,
}

/// A procedure of a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcedureRow {
    /// Its number, the first word of a call.
    pub number: u32,
    /// Its name in AFS, without the service's prefix.
    pub name: &'static str,
    /// The place of its stream.
    pub stream: StreamPlace,
}

/// The reason why bytes are no call or answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RpcError {
    /// The service has no such procedure.
    #[error("procedure {0} is unknown")]
    UnknownProcedure(u32),
    /// The bytes are not the procedure's arguments.
    #[error("arguments: {0}")]
    Arguments(XdrError),
    /// The bytes are not the procedure's results.
    #[error("results: {0}")]
    Results(XdrError),
}

impl RpcError {
    /// The code with which rxgen's stubs end a call for this reason.
    pub fn code(&self) -> i32 {
        match self {
            RpcError::UnknownProcedure(_) => errors::RXGEN_OPCODE,
            RpcError::Arguments(_) => errors::RXGEN_SS_UNMARSHAL,
            RpcError::Results(_) => errors::RXGEN_CC_UNMARSHAL,
        }
    }
}

/// The calls or the answers of a service.
pub trait RpcMessage: Sized {
    /// All procedures of the service, by ascending numbers.
    const PROCEDURES: &'static [ProcedureRow];

    /// The number of the procedure.
    fn procedure(&self) -> u32;

    /// Appends the arguments of a call, without the procedure's number, or the results of an
    /// answer.
    fn encode(&self, to: &mut XdrWriter<'_>);

    /// Takes the arguments or results of a procedure off the front. Behind the arguments of a call
    /// whose stream the client sends the reader has the first bytes of the stream.
    ///
    /// # Errors
    /// [`RpcError`].
    fn decode(procedure: u32, from: &mut XdrReader<'_>) -> Result<Self, RpcError>;

    /// The arguments or results as bytes.
    fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.encode(&mut XdrWriter::new(&mut bytes));
        bytes
    }

    /// The row of the procedure.
    fn row(&self) -> &'static ProcedureRow {
        let number = self.procedure();
        let row = Self::PROCEDURES.iter().find(|row| row.number == number);
        row.expect("each message is made from a row of the table")
    }

    /// A call as the transport sends it: the procedure's number, then the arguments.
    fn to_request(&self) -> Vec<u8> {
        let mut bytes = self.procedure().to_xdr();
        self.encode(&mut XdrWriter::new(&mut bytes));
        bytes
    }
}

/// Enums of a service's calls and answers from rows `NUMBER NAME(arguments) -> (results);`, with
/// `streams PLACE` before the semicolon for a procedure with a stream.
macro_rules! service {
    (
        $(#[$calls_doc:meta])* calls $calls:ident;
        $(#[$answers_doc:meta])* answers $answers:ident;
        $(
            $(#[$doc:meta])*
            $number:literal $name:ident
                ( $($argument:ident: $argument_kind:ty),* $(,)? )
                -> ( $($result:ident: $result_kind:ty),* $(,)? )
                $(streams $place:ident)?;
        )*
    ) => {
        const PROCEDURES: &[$crate::rpc::ProcedureRow] = &[$(
            $crate::rpc::ProcedureRow {
                number: $number,
                name: stringify!($name),
                stream: $crate::rpc::stream_place!($($place)?),
            },
        )*];

        $crate::rpc::messages! {
            $(#[$calls_doc])* $calls, Arguments;
            $( $(#[$doc])* $number $name { $($argument: $argument_kind),* } )*
        }

        $crate::rpc::messages! {
            $(#[$answers_doc])* $answers, Results;
            $( $(#[$doc])* $number $name { $($result: $result_kind),* } )*
        }
    };
}

macro_rules! stream_place {
    () => {
        $crate::rpc::StreamPlace::Nowhere
    };
    ($place:ident) => {
        $crate::rpc::StreamPlace::$place
    };
}

/// One enum of `service!`. The error is that of malformed bytes.
macro_rules! messages {
    (
        $(#[$message_doc:meta])* $message:ident, $error:ident;
        $( $(#[$doc:meta])* $number:literal $name:ident { $($field:ident: $kind:ty),* } )*
    ) => {
        $(#[$message_doc])*
        #[derive(Clone, Debug, PartialEq, Eq)]
        #[allow(missing_docs, reason = "the arguments and results have the protocol's names")]
        pub enum $message {
            $(
                #[doc = concat!("Procedure ", stringify!($number), ".")]
                $(#[$doc])*
                $name { $($field: $kind),* },
            )*
        }

        impl $crate::rpc::RpcMessage for $message {
            const PROCEDURES: &'static [$crate::rpc::ProcedureRow] = PROCEDURES;

            fn procedure(&self) -> u32 {
                match self {
                    $( $message::$name { .. } => $number, )*
                }
            }

            fn encode(&self, to: &mut $crate::xdr::XdrWriter<'_>) {
                match self {
                    $( $message::$name { $($field),* } => {
                        $( $crate::xdr::Xdr::put($field, to); )*
                    } )*
                }
            }

            fn decode(
                procedure: u32,
                from: &mut $crate::xdr::XdrReader<'_>,
            ) -> Result<Self, $crate::rpc::RpcError> {
                match procedure {
                    $( $number => {
                        $(
                            let $field = $crate::xdr::Xdr::get(from)
                                .map_err($crate::rpc::RpcError::$error)?;
                        )*
                        Ok($message::$name { $($field),* })
                    } )*
                    unknown => Err($crate::rpc::RpcError::UnknownProcedure(unknown)),
                }
            }
        }

        #[cfg(test)]
        impl $crate::sample::SampleMessage for $message {
            fn sample_of(procedure: u32, from: &mut $crate::sample::Sampler<'_>) -> Self {
                match procedure {
                    $( $number => {
                        $( let $field = $crate::sample::Sample::sample(from); )*
                        $message::$name { $($field),* }
                    } )*
                    unknown => panic!("{unknown}"),
                }
            }
        }
    };
}

pub(crate) use {messages, service, stream_place};
