//! One call of a foreign client.

use afs3::errors;
use afs3::xdr::{XdrError, XdrReader};
use afs3::{ProcedureRow, RpcError, RpcMessage, StreamPlace};
use afsfront::{CallStream, Refusal, StreamBroken};
use bytes::Bytes;
use rx::RxError;
use rxport::PortCall;

/// Bytes of arguments. The longest are lists of names and of numbers.
const ARGUMENTS_MAX: usize = 1 << 20;
/// Bytes that are read at once.
const PART_BYTES: usize = 65_536;
/// Bytes of a procedure's number.
const NUMBER_BYTES: usize = 4;

/// The streams of a call, from behind its arguments on.
pub(super) struct PortStream {
    call: PortCall,
    /// Bytes that were read already.
    read: Bytes,
}

impl CallStream for PortStream {
    fn take(&mut self, max: usize) -> Result<Bytes, StreamBroken> {
        if !self.read.is_empty() {
            return Ok(self.read.split_to(max.min(self.read.len())));
        }
        self.call.read(max).ok().flatten().ok_or(StreamBroken)
    }

    fn give(&mut self, bytes: Bytes) -> Result<(), StreamBroken> {
        self.call.write(&bytes).map_err(|_| StreamBroken)
    }
}

/// Reads a call, has it served, and answers.
pub(super) fn serve<C: RpcMessage, A: RpcMessage>(
    call: PortCall,
    serve: impl FnOnce(C, &mut PortStream) -> Result<A, Refusal>,
) {
    let (call, request, read) = match read_request::<C>(call) {
        Ok(read) => read,
        Err((call, code)) => return call.abort(code),
    };
    let mut stream = PortStream { call, read };
    let answer = serve(request, &mut stream);
    let PortStream { mut call, .. } = stream;
    match answer {
        // A call that fails has ended already.
        Ok(answer) => drop(call.write(&answer.to_bytes()).and_then(|()| call.end())),
        Err(Refusal(code)) => call.abort(code),
    }
}

/// The call and what was read of the stream behind it, or the code with which it ends.
fn read_request<C: RpcMessage>(
    mut call: PortCall,
) -> Result<(PortCall, C, Bytes), (PortCall, i32)> {
    let (mut read, mut try_at) = (Vec::new(), NUMBER_BYTES);
    loop {
        let part = match call.read(PART_BYTES) {
            Ok(part) => part,
            Err(error) => return Err((call, error.code())),
        };
        let is_all = part.is_none();
        read.extend_from_slice(&part.unwrap_or_default());
        // So that a call in many small pieces is not decoded from its beginning each time.
        if read.len() < try_at && !is_all {
            continue;
        }
        try_at = 2 * read.len();
        match decode::<C>(&read, is_all) {
            Ok(Some((request, stream_at))) => {
                return Ok((call, request, Bytes::from(read).split_off(stream_at)));
            }
            Ok(None) if !is_all && read.len() <= ARGUMENTS_MAX => {}
            Ok(None) => return Err((call, errors::RXGEN_SS_UNMARSHAL)),
            Err(error) => return Err((call, error.code())),
        }
    }
}

/// The request at the front, and where its stream begins; `None`: there are more bytes of it.
fn decode<C: RpcMessage>(read: &[u8], is_all: bool) -> Result<Option<(C, usize)>, RpcError> {
    let mut from = XdrReader::new(read);
    let Ok(number) = from.u32() else { return Ok(None) };
    let row = C::PROCEDURES.iter().find(|row| row.number == number);
    let Some(ProcedureRow { stream, .. }) = row else {
        return Err(RpcError::UnknownProcedure(number));
    };
    match C::decode(number, &mut from) {
        Err(RpcError::Arguments(XdrError::Truncated)) => Ok(None),
        Err(error) => Err(error),
        Ok(_) if *stream != StreamPlace::BehindArguments && !is_all => Ok(None),
        Ok(request) => {
            // As AFS's stubs do, bytes behind the arguments are not looked at.
            Ok(Some((request, read.len() - from.rest().len())))
        }
    }
}

/// The code for a call that cannot be served now; the client tries again.
pub(super) fn dead() -> i32 {
    RxError::Dead.code()
}
