//! Sessions with the servers of a mount's cell, of both kinds (`docs/spec/mixed-cells.md`).

use std::sync::Arc;

use afsclient::AfsRemote;
use client::{Dial, Endpoint, SessionConfig, TokenWallet, dial_addresses};
use types::ServerKind;

/// Connects to servers of Rialto with such sessions, and to those of AFS as the users whose logins
/// for them are in the wallet.
pub fn dial_servers(
    config: impl Fn(Endpoint) -> SessionConfig + Send + Sync + 'static,
    tokens: Arc<TokenWallet>,
) -> Box<Dial> {
    let to_rialto = dial_addresses(config);
    Box::new(move |cell, server| match server.kind() {
        ServerKind::Rialto => to_rialto(cell, server),
        ServerKind::Afs => {
            let remote = AfsRemote::of_server(server, cell, Arc::clone(&tokens))?;
            let callbacks = remote.callback_address().ok();
            tracing::info!(server = %server.id, name = server.name, ?callbacks, "server of AFS");
            Ok(remote)
        }
    })
}
