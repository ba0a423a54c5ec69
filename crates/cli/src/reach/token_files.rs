//! Tokens of a user without a mount: one file for each cell, in a directory that this user alone
//! can reach.
//!
//! The directory is `$RIALTO_TOKENS`, or `$XDG_RUNTIME_DIR/rialto`, or `/tmp/rialto-tokens-UID`.
//! Another user can plant the last one. So it is opened once, without following a link, and its
//! owner and mode are checked on the descriptor; all files are reached through that descriptor.
//! A file is written beside its place and renamed. It has the token and the client key to which
//! the token is bound, so that a copy of the file is as good as the login itself.

use std::ffi::OsString;
use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use guard::{Signer, Token};
use local::failure::{Doing, Failure};
use rustix::fs::{AtFlags, Mode, OFlags, Stat, fstat, mkdir, open, openat, renameat, unlinkat};
use rustix::io::Errno;
use rustix::process::geteuid;
use serde::{Deserialize, Serialize};
use types::{Secret, hex, unhex};
use zeroize::{Zeroize, Zeroizing};

/// The variable that names the directory.
const VARIABLE: &str = "RIALTO_TOKENS";
/// No file of a token is longer.
const FILE_BYTES_MAX: u64 = 64 << 10;
/// The end of the name of a token's file.
const SUFFIX: &str = ".token";

/// A token with its client key, as its file has it.
pub struct HeldToken {
    pub token: Token,
    pub bytes: Bytes,
    pub key: Arc<Signer>,
    seed: Zeroizing<[u8; 32]>,
    /// Servers of the cell, as the login reached them.
    pub servers: Vec<String>,
    /// The name under which the cell's authority is known (`known_cells`, or `cells.toml`).
    pub trust: String,
}

/// The form of a file.
#[derive(Serialize, Deserialize)]
struct Written {
    cell: String,
    token: String,
    key: String,
    servers: Vec<String>,
    trust: String,
}

impl Drop for Written {
    fn drop(&mut self) {
        self.key.zeroize();
    }
}

/// A new client key, with the seed that a file keeps of it.
pub struct NewKey {
    seed: Zeroizing<[u8; 32]>,
    pub signer: Arc<Signer>,
}

impl NewKey {
    pub fn make() -> NewKey {
        let (seed, signer) = Signer::random();
        NewKey { seed, signer: Arc::new(signer) }
    }
}

impl HeldToken {
    /// A token that a server made for this key; `None`: the bytes are no token.
    pub fn new(
        token: &Secret,
        key: NewKey,
        servers: Vec<String>,
        trust: String,
    ) -> Option<HeldToken> {
        let bytes = Bytes::copy_from_slice(token.reveal());
        let (token, _) = Token::parse(&bytes).ok()?;
        let NewKey { seed, signer } = key;
        Some(HeldToken { token, bytes, key: signer, seed, servers, trust })
    }

    /// The same login with a newer token for the same key.
    pub fn renewed(&self, token: &Secret) -> Option<HeldToken> {
        let key = NewKey { seed: self.seed.clone(), signer: Arc::clone(&self.key) };
        HeldToken::new(token, key, self.servers.clone(), self.trust.clone())
    }

    /// Whether it has ended.
    pub fn is_over(&self, now: i64) -> bool {
        now >= self.token.expires
    }
}

/// The directory of this user's tokens.
pub struct TokenDir {
    path: PathBuf,
    dir: OwnedFd,
}

impl TokenDir {
    /// Where the directory is, whether it exists or not.
    pub fn place() -> PathBuf {
        let set =
            |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        set(VARIABLE)
            .or_else(|| set("XDG_RUNTIME_DIR").map(|dir| dir.join("rialto")))
            .unwrap_or_else(|| PathBuf::from(format!("/tmp/rialto-tokens-{}", geteuid().as_raw())))
    }

    /// The directory, if it exists.
    ///
    /// # Errors
    /// If it is not this user's alone.
    pub fn find() -> Result<Option<TokenDir>, Failure> {
        Self::find_at(Self::place())
    }

    /// The directory, made if it does not exist.
    ///
    /// # Errors
    /// If it cannot be made, or is not this user's alone.
    pub fn make() -> Result<TokenDir, Failure> {
        Self::make_at(&Self::place())
    }

    fn make_at(path: &Path) -> Result<TokenDir, Failure> {
        match mkdir(path, Mode::RWXU) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => {
                return Err(Failure::new(
                    format!("making {}, the directory of tokens", path.display()),
                    std::io::Error::from(error),
                )
                .mend(format!("name another one in ${VARIABLE}")));
            }
        }
        let made = Self::find_at(path.to_owned())?;
        made.ok_or_else(|| Failure::new(format!("making {}", path.display()), "it is gone"))
    }

    fn find_at(path: PathBuf) -> Result<Option<TokenDir>, Failure> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let what = || format!("opening {}, the directory of tokens", path.display());
        let mend = format!("remove it, or name a directory of yours in ${VARIABLE}");
        let dir = match open(&path, flags, Mode::empty()) {
            Ok(dir) => dir,
            Err(Errno::NOENT) => return Ok(None),
            Err(Errno::LOOP | Errno::NOTDIR) => {
                return Err(Failure::new(what(), "it is a link, or no directory").mend(mend));
            }
            Err(error) => {
                let owner = rustix::fs::lstat(&path).ok().and_then(|status| not_own(&status));
                let why = owner.unwrap_or_else(|| std::io::Error::from(error).to_string());
                return Err(Failure::new(what(), why).mend(mend));
            }
        };
        let status = fstat(&dir).map_err(std::io::Error::from).doing(what)?;
        if let Some(why) = not_own(&status) {
            return Err(Failure::new(what(), why).mend(mend));
        }
        Ok(Some(TokenDir { path, dir }))
    }

    /// The path, for people.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The token of this cell.
    ///
    /// # Errors
    /// If its file is not this user's alone, or damaged.
    pub fn token(&self, cell: &str) -> Result<Option<HeldToken>, Failure> {
        self.read(&file_name(cell), Some(cell))
    }

    /// The tokens of all cells.
    ///
    /// # Errors
    /// If a file is not this user's alone, or damaged.
    pub fn tokens(&self) -> Result<Vec<HeldToken>, Failure> {
        let names = self.names()?;
        let read = names.iter().map(|name| self.read(name, None));
        Ok(read.collect::<Result<Vec<_>, _>>()?.into_iter().flatten().collect())
    }

    /// Removes the tokens of all cells.
    ///
    /// # Errors
    /// If a file cannot be removed.
    pub fn remove_all(&self) -> Result<(), Failure> {
        self.names()?.iter().try_for_each(|name| self.remove_file(name).map(drop))
    }

    /// The names of all files with tokens.
    fn names(&self) -> Result<Vec<String>, Failure> {
        let what = || format!("reading {}", self.path.display());
        let entries =
            rustix::fs::Dir::read_from(&self.dir).map_err(std::io::Error::from).doing(what)?;
        let mut names = Vec::new();
        for entry in entries {
            let entry = entry.map_err(std::io::Error::from).doing(what)?;
            let name = OsString::from_vec(entry.file_name().to_bytes().to_vec());
            names.extend(
                name.into_string()
                    .ok()
                    .filter(|name| name.ends_with(SUFFIX) && !name.starts_with('.')),
            );
        }
        names.sort();
        Ok(names)
    }

    fn read(&self, name: &str, cell: Option<&str>) -> Result<Option<HeldToken>, Failure> {
        let path = self.path.join(name);
        let what = || format!("reading {}", path.display());
        let mend = "remove it, and log in again";
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = match openat(&self.dir, name, flags, Mode::empty()) {
            Ok(file) => file,
            Err(Errno::NOENT) => return Ok(None),
            Err(Errno::LOOP) => return Err(Failure::new(what(), "it is a link").mend(mend)),
            Err(error) => return Err(Failure::new(what(), std::io::Error::from(error))),
        };
        let status = fstat(&file).map_err(std::io::Error::from).doing(what)?;
        if let Some(why) = not_own(&status).or_else(|| not_plain(&status)) {
            return Err(Failure::new(what(), why).mend(mend));
        }
        crate::logging::protect_memory();
        let mut text = Zeroizing::new(String::new());
        File::from(file).take(FILE_BYTES_MAX).read_to_string(&mut text).doing(what)?;
        parse(&text)
            .filter(|held| cell.is_none_or(|cell| held.token.cell == cell))
            .map(Some)
            .ok_or_else(|| Failure::new(what(), "it has no token of that cell").mend(mend))
    }

    /// Stores the token of its cell, in place of an earlier one.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn put(&self, held: &HeldToken) -> Result<(), Failure> {
        let name = file_name(&held.token.cell);
        let what = || format!("writing {}", self.path.join(&name).display());
        let written = Written {
            cell: held.token.cell.clone(),
            token: hex(&held.bytes),
            key: hex(&held.seed[..]),
            servers: held.servers.clone(),
            trust: held.trust.clone(),
        };
        let text = Zeroizing::new(serde_json::to_string(&written).doing(what)?);
        let draft = format!(".{name}.{}", std::process::id());
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
        let fresh = || openat(&self.dir, &draft, flags | OFlags::CLOEXEC, Mode::RUSR | Mode::WUSR);
        let file = match fresh() {
            // Another process of this number was killed.
            Err(Errno::EXIST) => {
                unlinkat(&self.dir, &draft, AtFlags::empty()).and_then(|()| fresh())
            }
            opened => opened,
        };
        let mut file = File::from(file.map_err(std::io::Error::from).doing(what)?);
        let stored = file
            .write_all(text.as_bytes())
            .and_then(|()| file.sync_all())
            .and_then(|()| Ok(renameat(&self.dir, &draft, &self.dir, &name)?));
        if stored.is_err() {
            let _ = unlinkat(&self.dir, &draft, AtFlags::empty());
        }
        stored.doing(what)
    }

    /// Removes the token of this cell. Returns whether there was one.
    ///
    /// # Errors
    /// If the file cannot be removed.
    pub fn remove(&self, cell: &str) -> Result<bool, Failure> {
        self.remove_file(&file_name(cell))
    }

    fn remove_file(&self, name: &str) -> Result<bool, Failure> {
        match unlinkat(&self.dir, name, AtFlags::empty()).map_err(std::io::Error::from) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
            Err(error) => {
                Err(Failure::new(format!("removing {}", self.path.join(name).display()), error))
            }
        }
    }
}

/// Why another user may read or replace this.
fn not_own(status: &Stat) -> Option<String> {
    let own = geteuid().as_raw();
    if status.st_uid != own {
        return Some(format!("it belongs to uid {}, not to you ({own})", status.st_uid));
    }
    let others = status.st_mode & 0o077;
    (others != 0).then(|| format!("its mode {:o} lets other users in", status.st_mode & 0o777))
}

fn not_plain(status: &Stat) -> Option<String> {
    let is_file = rustix::fs::FileType::from_raw_mode(status.st_mode).is_file();
    (!is_file || status.st_nlink != 1).then(|| "it is no plain file, or has other names".to_owned())
}

/// The name of a cell's file: characters that are not those of DNS names are written as numbers.
fn file_name(cell: &str) -> String {
    let mut name = String::new();
    for (at, byte) in cell.bytes().enumerate() {
        let is_plain =
            byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_') || byte == b'.' && at > 0;
        if is_plain {
            name.push(char::from(byte));
        } else {
            name.push_str(&format!("%{byte:02x}"));
        }
    }
    name + SUFFIX
}

fn parse(text: &str) -> Option<HeldToken> {
    let mut written: Written = serde_json::from_str(text).ok()?;
    let seed = Zeroizing::new(<[u8; 32]>::try_from(unhex(written.key.as_bytes())?).ok()?);
    let signer = Arc::new(Signer::new(&seed));
    let token = Secret::new(unhex(written.token.as_bytes())?);
    let (servers, trust) =
        (std::mem::take(&mut written.servers), std::mem::take(&mut written.trust));
    let held = HeldToken::new(&token, NewKey { seed, signer }, servers, trust)?;
    let fits = held.token.cell == written.cell && held.token.client == held.key.public();
    fits.then_some(held)
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{PermissionsExt, symlink};

    use types::{AuthLevel, PrincipalId};

    use super::*;

    fn held(cell: &str) -> HeldToken {
        let key = NewKey::make();
        let token = Token {
            cell: cell.to_owned(),
            key: 1,
            number: 7,
            principal: PrincipalId(3),
            name: "joe".to_owned(),
            level: AuthLevel::Password,
            issued: 0,
            expires: 100,
            renewable: 200,
            client: key.signer.public(),
        };
        let bytes = Secret::new(token.sign(&Signer::new(&[1; 32])));
        HeldToken::new(&bytes, key, vec!["tcp:a:1".to_owned()], "a:1".to_owned()).unwrap()
    }

    fn dir() -> (tempfile::TempDir, TokenDir) {
        let parent = tempfile::tempdir().unwrap();
        let dir = TokenDir::make_at(&parent.path().join("tokens")).unwrap();
        (parent, dir)
    }

    #[test]
    fn ac3_a_stored_token_is_its_users_alone() {
        let (_parent, dir) = dir();
        let held = held("a.org");
        dir.put(&held).unwrap();
        dir.put(&held).unwrap();
        let file = dir.path.join("a.org.token");
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::metadata(&dir.path).unwrap().permissions().mode() & 0o777, 0o700);
        assert_eq!(fs::read_dir(&dir.path).unwrap().count(), 1, "nothing stays beside it");
        let read = dir.token("a.org").unwrap().unwrap();
        assert_eq!((&read.token, &read.bytes), (&held.token, &held.bytes));
        assert_eq!((read.key.public(), read.trust.as_str()), (held.key.public(), "a:1"));
        assert!(dir.token("b.org").unwrap().is_none());
        assert_eq!(dir.tokens().unwrap().len(), 1);
        assert!(dir.remove("a.org").unwrap() && !dir.remove("a.org").unwrap());
    }

    #[test]
    fn ac3_a_directory_that_others_reach_is_refused() {
        let (parent, dir) = dir();
        let said = |path: &Path| TokenDir::find_at(path.to_owned()).err().unwrap().to_string();
        fs::set_permissions(&dir.path, Permissions::from_mode(0o770)).unwrap();
        assert!(said(&dir.path).contains("lets other users in"), "{}", said(&dir.path));
        assert!(TokenDir::make_at(&dir.path).is_err(), "one that exists is checked too");
        fs::set_permissions(&dir.path, Permissions::from_mode(0o700)).unwrap();
        let link = parent.path().join("link");
        symlink(&dir.path, &link).unwrap();
        assert!(said(&link).contains("it is a link"), "{}", said(&link));
        assert!(TokenDir::make_at(&link).is_err());
        if geteuid().is_root() {
            std::os::unix::fs::chown(&dir.path, Some(4711), None).unwrap();
            assert!(said(&dir.path).contains("belongs to uid 4711"), "{}", said(&dir.path));
        }
    }

    #[test]
    fn ac3_a_file_that_others_reach_or_made_is_refused() {
        let (parent, dir) = dir();
        dir.put(&held("a.org")).unwrap();
        let file = dir.path.join("a.org.token");
        let said = || dir.token("a.org").err().unwrap().to_string();
        fs::set_permissions(&file, Permissions::from_mode(0o640)).unwrap();
        assert!(said().contains("lets other users in"), "{}", said());
        fs::set_permissions(&file, Permissions::from_mode(0o600)).unwrap();
        let moved = parent.path().join("elsewhere");
        fs::rename(&file, &moved).unwrap();
        symlink(&moved, &file).unwrap();
        assert!(said().contains("it is a link"), "{}", said());
        fs::remove_file(&file).unwrap();
        fs::hard_link(&moved, &file).unwrap();
        assert!(said().contains("other names"), "{}", said());
        fs::remove_file(&file).unwrap();
        // The file of one cell in the place of another's.
        fs::rename(&moved, dir.path.join("b.org.token")).unwrap();
        assert!(dir.token("b.org").is_err() && dir.token("a.org").unwrap().is_none());
    }

    #[test]
    fn ac3_a_token_with_another_key_is_no_login() {
        let (_parent, dir) = dir();
        let (held, other) = (held("a.org"), NewKey::make());
        let text = serde_json::json!({ "cell": "a.org", "token": hex(&held.bytes),
            "key": hex(&other.seed[..]), "servers": [], "trust": "" });
        assert!(parse(&text.to_string()).is_none());
        for bad in ["", "{}", "null", "[1]"] {
            assert!(parse(bad).is_none(), "{bad}");
        }
        assert!(dir.tokens().unwrap().is_empty());
    }

    #[test]
    fn the_name_of_a_cell_leads_to_no_other_directory() {
        assert_eq!(file_name("a-b_c.org"), "a-b_c.org.token");
        assert_eq!(file_name("../x"), "%2e.%2fx.token");
        assert_eq!(file_name(".hidden"), "%2ehidden.token");
    }
}
