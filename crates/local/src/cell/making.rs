//! Makes the directory of a new cell, or of a further server of one.

use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::Write;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use guard::Network;

use super::config::{AfsClients, CellConfig, check_name};
use super::{CellDir, DIR_MODE};
use crate::failure::{Doing, Failure};

/// Mode of the cell's own directory.
const CELL_DIR_MODE: u32 = 0o711;
/// The first TCP port of those that new cells choose from.
pub const PORT_DEFAULT: u16 = 7620;
/// Count of those ports; all lie below those that Linux gives to outgoing connections.
const PORTS: u16 = 2000;
/// Bytes of a Unix socket's path: `sun_path` has 108, one of them the closing NUL.
pub(super) const SOCKET_PATH_BYTES_MAX: usize = 107;

/// Settings of a new cell.
#[derive(Clone, Debug, Default)]
pub struct NewCell {
    /// Where its server listens for other machines. Port 0 means a free one from [`PORT_DEFAULT`]
    /// on, chosen by the directory's name.
    pub listen: Option<SocketAddr>,
    /// The server accepts clear text too.
    pub clear: bool,
    /// Its volumes are encrypted on the disk.
    pub encrypt: bool,
    /// Its server's name; `None`: that of the machine.
    pub server: Option<String>,
    /// The trusted hosts.
    pub trusted: Vec<Network>,
    /// Root of trusted hosts is root of the cell's files.
    pub trusted_root: bool,
    /// The ports for AFS's own clients.
    pub afs: Option<AfsClients>,
}

/// Settings of a further server of an existing cell.
#[derive(Clone, Debug)]
pub struct Joins {
    /// The server that has the cell database, as `HOST:PORT`.
    pub database: String,
    /// The new server's name.
    pub server: String,
    /// The trusted hosts.
    pub trusted: Vec<Network>,
    /// Root of trusted hosts is root of the cell's files.
    pub trusted_root: bool,
}

impl CellDir {
    /// Makes a new cell in `dir`.
    ///
    /// # Errors
    /// If the name or an address cannot be used, or the directory cannot be written.
    pub fn create(dir: &Path, name: &str, new: NewCell) -> Result<CellDir, Failure> {
        Self::make(dir, name, new, None)
    }

    /// Makes the directory of a further server of the cell `name`, as [`CellDir::create`] does.
    ///
    /// # Errors
    /// As [`CellDir::create`].
    pub fn join(
        dir: &Path,
        name: &str,
        listen: SocketAddr,
        joins: Joins,
    ) -> Result<CellDir, Failure> {
        let trusted = joins.trusted.clone();
        let new = NewCell {
            listen: Some(listen),
            trusted,
            trusted_root: joins.trusted_root,
            ..NewCell::default()
        };
        Self::make(dir, name, new, Some(joins))
    }

    fn make(
        dir: &Path,
        name: &str,
        new: NewCell,
        joins: Option<Joins>,
    ) -> Result<CellDir, Failure> {
        check_name(name).map_err(|why| {
            Failure::new("naming the cell", why).mend("choose another name with --cell")
        })?;
        let dir = prepare_cell_dir(dir)?;
        let choose = |listen: SocketAddr| {
            if listen.port() == 0 { free_address(listen.ip(), &dir) } else { Ok(listen) }
        };
        let listen = new.listen.map(choose).transpose()?;
        let config = CellConfig {
            name: name.to_owned(),
            listen,
            partition: Some("vicep".into()),
            socket: socket_place(&dir)?,
            server: joins.as_ref().map(|joins| joins.server.clone()).or(new.server),
            database: joins.map(|joins| joins.database),
            encrypt: new.encrypt,
            clear: new.clear,
            trusted: new.trusted,
            trusted_root: new.trusted_root,
            afs: new.afs,
            ..CellConfig::default()
        };
        let text = format!(
            "# A Rialto cell. Paths are relative to this directory; the server reads this when it \
             starts.\n\
             # listen = \"ADDRESS:PORT\" serves other machines, over TLS with the certificate in \
             keys/; clear = true allows clear text too.\n\
             # users-socket = \"PATH\" is where all users of this machine may connect, each as \
             the user that the kernel reports; \"none\": nowhere.\n\
             # trusted = [\"10.1.0.0/16\"] trusts hosts to name their users, if the connection \
             comes from a port below 1024 or shows a host certificate; users of all\n\
             # others log in. trusted_root = true makes root of such hosts root of the cell's \
             files; without it root is 'nobody'.\n\
             # [kerberos] with keytab = \"FILE\" lets users log in with tickets for rialto/CELL; \
             realm = \"REALM\" if its name is not that of the cell.\n\
             # [audit] with forward = \"/dev/log\" (or \"udp:HOST:PORT\") copies the audit log to \
             a place where the owner of this directory cannot change it.\n\
             # partitions = [\"vicep\", \"/vicepb\"] instead of partition adds others behind the \
             first.\n\
             # cell_away_max = 600 is how many seconds users are served from memory while the \
             server of the cell's database does not answer.\n\
             # compress = \"zstd\" compresses snapshots and copies, where the file system below \
             does not.\n\
             # encrypt = true encrypts the content of files of new volumes on the disk; without \
             keys/at-rest it is unreadable for ever.\n\
             # [at-rest] with command = [\"/usr/local/bin/get-key\"] gets those keys from a key \
             server instead: run with newest, or a key's number, it prints\n\
             # that number and 64 hexadecimal digits.\n\
             # server = \"NAME\" is this server's name in the cell, if not that of its machine; \
             addresses = [\"ADDRESS:PORT\"] is where\n\
             # others reach it, if not where it listens; database = \"HOST:PORT\" is the server \
             that has the cell's database.\n\
             # [health] with evacuate = \"failing\" moves the volumes away from partitions whose \
             disks report errors; \"slow\" also from those that flush slowly.\n\
             # [etcd] with endpoints = [\"HOST:PORT\", ...] says that etcd has it: 'rialto cell \
             migrate' writes that.\n{}",
            config.text()
        );
        let draft = dir.join("cell.toml.new");
        let file = dir.join("cell.toml");
        // A draft left by a crash may have another mode.
        let _ = fs::remove_file(&draft);
        let mut options = fs::OpenOptions::new();
        let opened = options.write(true).create_new(true).mode(0o600).open(&draft);
        opened
            .and_then(|mut file| file.write_all(text.as_bytes()))
            .and_then(|()| fs::rename(&draft, &file))
            .doing(|| format!("writing {}", file.display()))?;
        debug_assert!(
            fs::metadata(&file).is_ok_and(|meta| meta.permissions().mode() & 0o077 == 0),
            "AC-5: the configuration is the server's alone"
        );
        Ok(CellDir { dir, config })
    }
}

/// Makes the directory of a cell, and those in it that every cell has; returns its real path.
///
/// # Errors
/// If a directory cannot be made.
pub fn prepare_cell_dir(dir: &Path) -> Result<PathBuf, Failure> {
    let make = |path: &Path, mode| {
        let made = fs::DirBuilder::new().recursive(true).mode(mode).create(path);
        made.doing(|| format!("making {}", path.display()))
    };
    if let Some(parent) = dir.parent() {
        make(parent, 0o755)?;
    }
    make(dir, CELL_DIR_MODE)?;
    let dir = fs::canonicalize(dir).doing(|| format!("finding {}", dir.display()))?;
    for (below, mode) in
        [("logs", DIR_MODE), ("mounts", DIR_MODE), ("cache", DIR_MODE), ("mnt", 0o755)]
    {
        make(&dir.join(below), mode)?;
    }
    Ok(dir)
}

/// `server.sock` in the cell, or below the run-time directory where the cell's path is too long for
/// a socket.
fn socket_place(dir: &Path) -> Result<PathBuf, Failure> {
    let fits = |path: &Path| path.as_os_str().len() <= SOCKET_PATH_BYTES_MAX;
    if fits(&dir.join("server.sock")) {
        return Ok("server.sock".into());
    }
    let run =
        std::env::var_os("XDG_RUNTIME_DIR").map_or_else(|| PathBuf::from("/run"), PathBuf::from);
    let place = run.join(format!(
        "rialto-{:x}.sock",
        dir.as_os_str()
            .as_bytes()
            .iter()
            .fold(0u64, |sum, byte| { sum.wrapping_mul(31).wrapping_add(u64::from(*byte)) })
    ));
    let writable = fs::metadata(&run).is_ok_and(|meta| meta.permissions().mode() & 0o222 != 0);
    if fits(&place) && writable {
        return Ok(place);
    }
    Err(Failure::new(
        format!("placing the server's socket in {}", dir.display()),
        format!("a socket's path may have {SOCKET_PATH_BYTES_MAX} bytes"),
    )
    .mend("choose a shorter directory with --dir"))
}

/// A cell has its port also while it is down, so the cells of one machine begin their searches at
/// different ports.
fn free_address(at: IpAddr, dir: &Path) -> Result<SocketAddr, Failure> {
    let mut place = DefaultHasher::new();
    dir.hash(&mut place);
    let first = (place.finish() % u64::from(PORTS)) as u16;
    let address = |step| SocketAddr::new(at, PORT_DEFAULT + (first + step) % PORTS);
    (0..PORTS).map(address).find(|address| TcpListener::bind(address).is_ok()).ok_or_else(|| {
        let last = PORT_DEFAULT + PORTS - 1;
        Failure::new("choosing a port", format!("{PORT_DEFAULT} to {last} are all taken"))
            .mend("name a free one with --listen ADDRESS:PORT")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn on(listen: SocketAddr) -> NewCell {
        NewCell { listen: Some(listen), ..NewCell::default() }
    }

    #[test]
    fn cells_that_are_down_do_not_wait_for_the_same_port() {
        let dir = tempfile::tempdir().unwrap();
        let any = |name: &str| {
            let made =
                CellDir::create(&dir.path().join(name), "x", on("127.0.0.1:0".parse().unwrap()))
                    .unwrap();
            made.config.listen.unwrap().port()
        };
        let ports: std::collections::HashSet<u16> =
            ["a", "b", "c", "d", "e", "f"].into_iter().map(any).collect();
        assert!(ports.len() > 1, "{ports:?}");
    }

    #[test]
    fn a_cell_is_made_once_and_found_again() {
        let dir = tempfile::tempdir().unwrap();
        let place = dir.path().join("cell");
        assert!(CellDir::find(&place).unwrap().is_none());
        let listen = "127.0.0.1:7001".parse().unwrap();
        let made = CellDir::create(&place, "some.cell", on(listen)).unwrap();
        let found = CellDir::find(&place).unwrap().unwrap();
        assert_eq!(found.config, made.config);
        assert_eq!((found.config.name.as_str(), found.config.listen), ("some.cell", Some(listen)));
        let local =
            CellDir::create(&dir.path().join("local"), "some.cell", NewCell::default()).unwrap();
        assert_eq!(
            CellDir::find(local.dir()).unwrap().unwrap().config.listen,
            None,
            "not to be reached unless asked for"
        );
        assert!(found.socket().ends_with("cell/server.sock"));
    }

    #[test]
    fn a_cell_file_with_a_mistake_is_refused_by_name() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("cell.toml"), "name = \"x\"\nlisten = 5\n").unwrap();
        let message = CellDir::find(dir.path()).unwrap_err().to_string();
        assert!(message.contains("cell.toml") && message.contains("mend that line"), "{message}");
        let message = CellDir::create(&dir.path().join("new"), "two\nlines", NewCell::default())
            .unwrap_err()
            .to_string();
        assert!(message.contains("cannot name a cell") && message.contains("--cell"), "{message}");
        assert!(!dir.path().join("new").exists());
    }

    #[test]
    fn a_long_path_does_not_become_a_socket_that_cannot_be_bound() {
        let dir = Path::new("/tmp").join("x".repeat(120));
        if let Ok(place) = socket_place(&dir) {
            assert!(dir.join(place).as_os_str().len() <= SOCKET_PATH_BYTES_MAX);
        }
    }
}
