//! Listening sockets.

use std::io;
use std::net::{SocketAddr, TcpListener, ToSocketAddrs};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use rustix::fs::Mode;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, listen, socket_with,
};

use crate::{Connection, ConnectionOptions, Endpoint};

/// Connections that may wait to be accepted; usually the system's own limit too.
const BACKLOG: i32 = 4096;

/// A listening socket. It never blocks; wait for its descriptor to become readable.
#[derive(Debug)]
pub struct Listener {
    kind: Kind,
    options: ConnectionOptions,
}

#[derive(Debug)]
enum Kind {
    Tcp(TcpListener),
    Unix(UnixListener, PathBuf),
}

impl Listener {
    /// Listens. Replaces the file of a Unix socket without a listener, but not that of a live one.
    ///
    /// # Errors
    /// The system's; [`io::ErrorKind::AddrInUse`] when another process listens there.
    pub fn bind(endpoint: &Endpoint, options: ConnectionOptions) -> io::Result<Self> {
        let kind = match endpoint {
            Endpoint::Tcp(address) => {
                let addresses: Vec<SocketAddr> = address.to_socket_addrs()?.collect();
                let listener = TcpListener::bind(&addresses[..])?;
                listener.set_nonblocking(true)?;
                Kind::Tcp(listener)
            }
            Endpoint::Unix(path) => {
                remove_dead_socket(path)?;
                Kind::Unix(listen_with(path, Mode::RUSR | Mode::WUSR)?, path.clone())
            }
        };
        Ok(Listener { kind, options })
    }

    /// Listens on a Unix socket that every user of this machine may connect to. Its directory is
    /// made if it does not exist.
    ///
    /// # Errors
    /// As [`Listener::bind`]; [`io::ErrorKind::PermissionDenied`] where another user owns the
    /// directory or may write it, since that one could put a socket of its own there.
    pub fn bind_for_users(path: &Path, options: ConnectionOptions) -> io::Result<Self> {
        let dir = path.parent().unwrap_or(Path::new("/"));
        if !dir.exists() {
            std::fs::create_dir(dir)?;
            // The process's mask may hide what it makes from others.
            std::fs::set_permissions(dir, std::fs::Permissions::from_mode(0o755))?;
        }
        let facts = std::fs::metadata(dir)?;
        let is_ours = [0, rustix::process::geteuid().as_raw()].contains(&facts.uid());
        if !is_ours || facts.permissions().mode() & 0o022 != 0 {
            return Err(io::Error::new(
                io::ErrorKind::PermissionDenied,
                "another user owns the directory of this socket, or may write it",
            ));
        }
        remove_dead_socket(path)?;
        let all = Mode::RUSR | Mode::WUSR | Mode::RGRP | Mode::WGRP | Mode::ROTH | Mode::WOTH;
        Ok(Listener { kind: Kind::Unix(listen_with(path, all)?, path.to_owned()), options })
    }

    /// The address, with the port that the system chose for port 0.
    ///
    /// # Errors
    /// The system's.
    pub fn endpoint(&self) -> io::Result<Endpoint> {
        match &self.kind {
            Kind::Tcp(listener) => Ok(Endpoint::Tcp(listener.local_addr()?.to_string())),
            Kind::Unix(_, path) => Ok(Endpoint::Unix(path.clone())),
        }
    }

    /// The next connection, if one waits.
    ///
    /// # Errors
    /// The system's: often a lack of descriptors, which is temporary; wait a moment before the next
    /// attempt.
    pub fn accept(&self) -> io::Result<Option<Connection>> {
        let accepted = match &self.kind {
            Kind::Tcp(listener) => listener
                .accept()
                .and_then(|(stream, _)| Connection::tcp(stream.into(), &self.options)),
            Kind::Unix(listener, _) => listener
                .accept()
                .and_then(|(stream, _)| Connection::unix(stream.into(), &self.options)),
        };
        match accepted {
            Ok(connection) => Ok(Some(connection)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error),
        }
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.kind {
            Kind::Tcp(listener) => listener.as_fd(),
            Kind::Unix(listener, _) => listener.as_fd(),
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Kind::Unix(_, path) = &self.kind {
            // Best effort: the next start replaces a remaining file.
            let _ = std::fs::remove_file(path);
        }
    }
}

/// A socket whose file has at most this mode from its creation on: it gets the descriptor's, less
/// the process's mask, which is made up for afterwards.
fn listen_with(path: &Path, mode: Mode) -> io::Result<UnixListener> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    rustix::fs::fchmod(&socket, mode)?;
    bind(&socket, &SocketAddrUnix::new(path)?)?;
    if std::fs::symlink_metadata(path)?.permissions().mode() & 0o777 != mode.bits() {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode.bits()))?;
    }
    listen(&socket, BACKLOG)?;
    Ok(UnixListener::from(socket))
}

fn remove_dead_socket(path: &Path) -> io::Result<()> {
    match std::fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
        Ok(metadata) if !metadata.file_type().is_socket() => Err(io::Error::new(
            io::ErrorKind::AlreadyExists,
            "the path exists and is not a socket; choose another path or remove the file",
        )),
        Ok(_) => match UnixStream::connect(path) {
            Ok(_) => Err(io::Error::new(
                io::ErrorKind::AddrInUse,
                "another server listens on this socket",
            )),
            Err(_) => std::fs::remove_file(path),
        },
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;
    use std::time::Instant;

    use super::*;
    use crate::WaitFor;

    #[test]
    fn a_dead_socket_is_replaced_and_a_live_one_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("socket");
        let endpoint = Endpoint::Unix(path.clone());
        drop(UnixListener::bind(&path).unwrap());
        let listener = Listener::bind(&endpoint, ConnectionOptions::default()).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(
            Listener::bind(&endpoint, ConnectionOptions::default()).unwrap_err().kind(),
            io::ErrorKind::AddrInUse
        );
        assert!(listener.accept().unwrap().is_some(), "the probe of the second bind");
        assert!(listener.accept().unwrap().is_none());
        drop(listener);
        assert!(!path.exists());
        std::fs::write(&path, "precious").unwrap();
        assert_eq!(
            Listener::bind(&endpoint, ConnectionOptions::default()).unwrap_err().kind(),
            io::ErrorKind::AlreadyExists
        );
    }

    #[test]
    fn all_users_may_connect_where_none_may_write() {
        let dir = tempfile::tempdir().unwrap();
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        let path = dir.path().join("users/socket");
        let listener = Listener::bind_for_users(&path, ConnectionOptions::default()).unwrap();
        assert_eq!((mode(&path), mode(path.parent().unwrap())), (0o666, 0o755));
        let taken = Listener::bind_for_users(&path, ConnectionOptions::default()).unwrap_err();
        assert_eq!(taken.kind(), io::ErrorKind::AddrInUse);
        drop(listener);
        let open = std::fs::Permissions::from_mode(0o1777);
        std::fs::set_permissions(path.parent().unwrap(), open).unwrap();
        let refused = || Listener::bind_for_users(&path, ConnectionOptions::default()).unwrap_err();
        assert_eq!(refused().kind(), io::ErrorKind::PermissionDenied);
        if rustix::process::geteuid().is_root() {
            let dir = path.parent().unwrap();
            std::fs::set_permissions(dir, std::fs::Permissions::from_mode(0o755)).unwrap();
            std::os::unix::fs::chown(dir, Some(4711), None).unwrap();
            assert_eq!(refused().kind(), io::ErrorKind::PermissionDenied, "another user's");
        }
    }

    #[test]
    fn tcp_reports_its_port() {
        let listener =
            Listener::bind(&Endpoint::Tcp("127.0.0.1:0".into()), ConnectionOptions::default())
                .unwrap();
        let endpoint = listener.endpoint().unwrap();
        assert_ne!(endpoint, Endpoint::Tcp("127.0.0.1:0".into()));
        let client = Connection::connect(&endpoint, &ConnectionOptions::default()).unwrap();
        let accepted = loop {
            if let Some(connection) = listener.accept().unwrap() {
                break connection;
            }
        };
        assert!(accepted.peer().is_none());
        assert!(!client.wait(WaitFor::Receive, Some(Instant::now())).unwrap().receive);
    }
}
