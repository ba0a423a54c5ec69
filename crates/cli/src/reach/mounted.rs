//! The cell of a mounted tree, and the token that its mount gets for this process.

use std::path::{Path, PathBuf};

use client::Endpoint;
use fabric::tls::Fingerprint;
use local::failure::{Doing, Failure};
use local::mounts::{self, Mounted};
use rustix::io::Errno;
use serde::Deserialize;
use types::{Secret, hex, unhex};

use super::token_files::{HeldToken, NewKey};
use crate::commands::tree;

/// A tree, and the cell that it shows.
pub(super) struct MountedCell {
    pub at: PathBuf,
    pub cell: String,
    pub servers: Vec<Endpoint>,
    /// The authorities that vouch for the server of the mount.
    pub authorities: Vec<Fingerprint>,
}

/// The attribute `rialto.connection`.
#[derive(Deserialize)]
struct Connection {
    authorities: Vec<String>,
}

#[derive(Deserialize)]
struct Server {
    addresses: Vec<String>,
}

/// The cell of the current directory's tree.
pub(super) fn of_current_directory() -> Option<MountedCell> {
    let here = std::env::current_dir().ok()?;
    let mounts = mounts::all().ok()?;
    may_be_asked(&here, &mounts).then(|| of(&here))?
}

/// Whether the path is in a tree that root or this user mounted. A mount of another user may say
/// anything, and may never answer, so it is not asked.
fn may_be_asked(path: &Path, mounts: &[Mounted]) -> bool {
    // Of several mounts at one place the last is on top.
    let below = mounts.iter().filter(|mounted| path.starts_with(&mounted.at));
    let mounted = below.max_by_key(|mounted| mounted.at.as_os_str().len());
    let own = rustix::process::geteuid().as_raw();
    let is_trusted = |user: u32| user == 0 || user == own;
    mounted.is_some_and(|mounted| mounted.is_rialto() && mounted.user.is_some_and(is_trusted))
}

/// The cell of the tree that the path is in.
fn of(at: &Path) -> Option<MountedCell> {
    let cell = tree::get(at, "rialto.cell").ok()?.trim().to_owned();
    let servers = tree::get(at, "rialto.servers").ok()?;
    let servers: Vec<Server> = serde_json::from_str(&servers).ok()?;
    let addresses = servers.into_iter().flat_map(|server| server.addresses);
    let servers = addresses.map(Endpoint::Tcp).collect();
    // An older mount does not tell.
    let connection = tree::get(at, "rialto.connection").ok();
    let connection = connection.and_then(|text| serde_json::from_str::<Connection>(&text).ok());
    let told = connection.map(|connection| connection.authorities).unwrap_or_default();
    let authorities = told.iter().filter_map(|print| print.parse().ok()).collect();
    Some(MountedCell { at: at.to_owned(), cell, servers, authorities })
}

/// A token for a new key of this process, in the name of the user who is logged in at the mount;
/// `None`: no user is.
///
/// # Errors
/// If the login has ended, or the mount's server refuses.
pub(super) fn token(at: &Path, trust: &str) -> Result<Option<HeldToken>, Failure> {
    #[derive(Deserialize)]
    struct Given {
        token: String,
    }
    let what = || format!("asking the mount at {} for a token", at.display());
    let key = NewKey::make();
    let attribute = format!("system.rialto.token.{}", hex(&key.signer.public()));
    let text = match tree::get(at, &attribute) {
        Ok(text) => text,
        // No login; or an older mount or server, which gives none.
        Err(Errno::NODATA | Errno::OPNOTSUPP | Errno::INVAL | Errno::PERM) => return Ok(None),
        Err(error) => {
            return Err(Failure::new(what(), std::io::Error::from(error))
                .mend("'rialto tokens' shows whether you are logged in"));
        }
    };
    let given: Given = serde_json::from_str(&text).doing(what)?;
    let token = unhex(given.token.as_bytes()).map(Secret::new);
    let held = token.and_then(|token| HeldToken::new(&token, key, Vec::new(), trust.to_owned()));
    held.map(Some).ok_or_else(|| Failure::new(what(), "its answer is no token"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mount_of_another_user_is_not_asked() {
        let own = rustix::process::geteuid().as_raw();
        let mounted = |at: &str, kind: &str, user| Mounted {
            at: at.into(),
            kind: kind.to_owned(),
            source: "rialto".to_owned(),
            user,
            device: "0:1".to_owned(),
        };
        let mounts = [
            mounted("/", "ext4", None),
            mounted("/own", "fuse.rialto", Some(own)),
            mounted("/root", "fuse.rialto", Some(0)),
            mounted("/root/other", "fuse.rialto", Some(own + 4711)),
            mounted("/own/plain", "tmpfs", None),
        ];
        let asked = |path: &str| may_be_asked(Path::new(path), &mounts);
        assert!(asked("/own/dir") && asked("/root") && asked("/root/others"));
        assert!(!asked("/root/other") && !asked("/root/other/dir"), "another user's");
        assert!(!asked("/own/plain/x") && !asked("/owner") && !asked("/"), "no tree");
    }
}
