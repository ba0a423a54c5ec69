//! RXAFSCB, the service that file servers call.
//!
//! Callbacks end promises. The other calls say who this client is and, for `cmdebug`, what it is;
//! its cache is not shown there: it is above, and has no entries in AFS's sense.
//!
//! Any host may call. All that it reaches is that files are asked for again.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::sync::mpsc::Receiver;

use afs3::RpcMessage;
use afs3::callbacks::{CAPABILITY_ERROR_TRANSLATION, CallbacksAnswer, CallbacksCall, CellServers};
use afs3::errors::RXGEN_OPCODE;
use afs3::structs::{AfsName, AfsUuid, Capabilities, INTERFACE_ADDRESSES_MAX, InterfaceAddresses};
use afs3::xdr::{XdrList, XdrReader};
use rxport::ServedCall;

use crate::coherence::Coherence;
use crate::statuses::local;

/// Bytes of the longest request: a callback of 50 files with promises.
const REQUEST_BYTES_MAX: usize = 4096;
/// The answer to a question for an entry behind the last one. Source: OpenAFS
/// `src/afs/afs_callback.c`.
const NO_ENTRY: i32 = 1;
/// The version of statistics. Source: OpenAFS `AFSCB_XSTAT_VERSION`.
const STATISTICS_VERSION: i32 = 2;
/// The version of the cache's configuration, and its words. Source: OpenAFS
/// `AFS_CLIENT_RETRIEVAL_VERSION`, `struct cm_initparams`.
const CONFIG_VERSION: u32 = 1;

/// The cell that `cmdebug` shows. A session with a server of a cell of Rialto shows none: the
/// databases of that are not AFS's.
#[derive(Default)]
pub(crate) struct ShownCell {
    pub name: String,
    pub databases: Vec<Ipv4Addr>,
}

/// See the head of the file.
pub(crate) struct CallbackService {
    pub uuid: AfsUuid,
    pub shown: ShownCell,
    pub coherence: Arc<Coherence>,
}

impl CallbackService {
    /// Serves calls until there are none any more.
    pub fn run(&self, calls: &Receiver<ServedCall>) {
        while let Ok(served) = calls.recv() {
            self.serve(served);
            if self.coherence.is_closed() {
                return;
            }
        }
    }

    fn serve(&self, served: ServedCall) {
        let ServedCall { mut call, peer, .. } = served;
        let mut request = Vec::new();
        loop {
            match call.read(REQUEST_BYTES_MAX) {
                Ok(Some(part)) if request.len() + part.len() <= REQUEST_BYTES_MAX => {
                    request.extend_from_slice(&part);
                }
                Ok(Some(_)) => return call.abort(afs3::errors::RXGEN_SS_UNMARSHAL),
                Ok(None) => break,
                // The call is over.
                Err(_) => return,
            }
        }
        let mut from = XdrReader::new(&request);
        let decoded = from
            .u32()
            .map_err(|_| afs3::errors::RXGEN_SS_UNMARSHAL)
            .and_then(|number| CallbacksCall::decode(number, &mut from).map_err(|e| e.code()));
        let peer = match peer.ip() {
            IpAddr::V4(address) => address,
            IpAddr::V6(_) => Ipv4Addr::UNSPECIFIED,
        };
        match decoded.and_then(|decoded| self.answer(&decoded, peer)) {
            Ok(answer) => {
                // A server that is gone calls again.
                let _ = call.write(&answer.to_bytes()).and_then(|()| call.end());
            }
            Err(code) => call.abort(code),
        }
    }

    fn answer(&self, call: &CallbacksCall, peer: Ipv4Addr) -> Result<CallbacksAnswer, i32> {
        Ok(match call {
            CallbacksCall::CallBack { fids, .. } => {
                let fids: Vec<_> = fids.as_slice().iter().map(|fid| local(*fid)).collect();
                tracing::debug!(%peer, files = fids.len(), "callback");
                let items = self.coherence.with(|promises| promises.on_callback(&fids));
                if !items.is_empty() {
                    self.coherence.send_and_wait(items);
                }
                CallbacksAnswer::CallBack {}
            }
            CallbacksCall::InitCallBackState {} => {
                self.lost(peer);
                CallbacksAnswer::InitCallBackState {}
            }
            CallbacksCall::InitCallBackState3 { .. } => {
                self.lost(peer);
                CallbacksAnswer::InitCallBackState3 {}
            }
            CallbacksCall::Probe {} => CallbacksAnswer::Probe {},
            CallbacksCall::ProbeUuid { client } if *client == self.uuid => {
                CallbacksAnswer::ProbeUuid {}
            }
            CallbacksCall::ProbeUuid { .. } => return Err(NO_ENTRY),
            CallbacksCall::WhoAreYou {} => {
                CallbacksAnswer::WhoAreYou { addresses: Box::new(self.addresses()) }
            }
            CallbacksCall::TellMeAboutYourself {} => {
                let words = vec![CAPABILITY_ERROR_TRANSLATION];
                let capabilities = Capabilities::new(words).map_err(|_| NO_ENTRY)?;
                let addresses = Box::new(self.addresses());
                CallbacksAnswer::TellMeAboutYourself { addresses, capabilities }
            }
            CallbacksCall::XStatsVersion {} => {
                CallbacksAnswer::XStatsVersion { version: STATISTICS_VERSION }
            }
            CallbacksCall::GetCellServDB { index: 0 } => CallbacksAnswer::GetCellServDB {
                cell: self.cell_name()?,
                servers: self.cell_servers(),
            },
            // An empty name says that there are no more.
            CallbacksCall::GetCellServDB { .. } => CallbacksAnswer::GetCellServDB {
                cell: AfsName::default(),
                servers: CellServers::default(),
            },
            CallbacksCall::GetLocalCell {} => {
                CallbacksAnswer::GetLocalCell { cell: self.cell_name()? }
            }
            CallbacksCall::GetCellByNum { number: 1 } => CallbacksAnswer::GetCellByNum {
                cell: self.cell_name()?,
                servers: self.cell_servers(),
            },
            CallbacksCall::GetCellByNum { .. } => CallbacksAnswer::GetCellByNum {
                cell: AfsName::default(),
                servers: CellServers::default(),
            },
            CallbacksCall::GetCacheConfig { .. } => CallbacksAnswer::GetCacheConfig {
                server_version: CONFIG_VERSION,
                count: 0,
                config: XdrList::default(),
            },
            // There are none of these here.
            CallbacksCall::GetLock { .. }
            | CallbacksCall::GetCE { .. }
            | CallbacksCall::GetCE64 { .. }
            | CallbacksCall::GetServerPrefs { .. } => return Err(NO_ENTRY),
            // Clients refuse these as unknown, or have no statistics of this form.
            CallbacksCall::InitCallBackState2 {} | CallbacksCall::GetXStats { .. } => {
                return Err(RXGEN_OPCODE);
            }
        })
    }

    /// A server that is known by another of its addresses takes all promises along.
    fn lost(&self, server: Ipv4Addr) {
        tracing::debug!(%server, "a file server knows no promise of this client");
        let items = self.coherence.with(|promises| {
            if promises.any_of(server) {
                promises.on_server_lost(server)
            } else {
                promises.on_all_lost()
            }
        });
        if !items.is_empty() {
            self.coherence.send_and_wait(items);
        }
    }

    /// No address: servers know the one that calls come from.
    fn addresses(&self) -> InterfaceAddresses {
        InterfaceAddresses {
            count: 0,
            uuid: self.uuid,
            addresses: [0; INTERFACE_ADDRESSES_MAX],
            masks: [0; INTERFACE_ADDRESSES_MAX],
            mtus: [0; INTERFACE_ADDRESSES_MAX],
        }
    }

    fn cell_name(&self) -> Result<AfsName, i32> {
        AfsName::new(self.shown.name.as_bytes()).map_err(|_| NO_ENTRY)
    }

    fn cell_servers(&self) -> CellServers {
        let numbers = self.shown.databases.iter().take(afs3::cellserv::HOSTS_MAX);
        let numbers = numbers.map(|address| u32::from(*address).cast_signed()).collect();
        CellServers::new(numbers).unwrap_or_default()
    }
}
