//! Enters the user who called `rialto up` into the cell that it made: as a principal with the
//! user's number on this machine, and as an administrator. The cell's server accepts the kernel's
//! credentials of local users, so no password is needed at first. Root of this machine needs no
//! principal: it is the cell's superuser.

use std::process::{Command, Stdio};

use local::cell::CellDir;
use local::failure::{Doing, Failure};

/// A user of this machine.
pub struct LocalUser {
    name: String,
    uid: u32,
}

impl LocalUser {
    /// The user who typed the command; `None`: root.
    pub fn calling() -> Option<LocalUser> {
        // Behind sudo the caller, also where the server gets a user of its own.
        let caller = std::env::var("SUDO_UID").ok().and_then(|uid| uid.parse().ok());
        let uid = caller.unwrap_or_else(|| rustix::process::getuid().as_raw());
        if uid == 0 {
            return None;
        }
        Some(LocalUser { name: name_of(uid)?, uid })
    }

    /// Makes the user a principal and an administrator of a new cell.
    ///
    /// # Errors
    /// As those of `rialto pts`.
    pub fn enter(&self, cell: &CellDir) -> Result<(), Failure> {
        let uid = self.uid.to_string();
        pts(cell, &["createuser", &self.name, "-uid", &uid])?;
        pts(cell, &["adduser", &self.name, "system:administrators"]).map(drop)
    }
}

/// Describes the caller's identity in the cell, for people.
pub fn describe_identity(cell: &CellDir, person: Option<&LocalUser>) -> String {
    let Some(LocalUser { name, uid }) = person else {
        return "you are root, the superuser of the cell, by the kernel's word".to_owned();
    };
    let known = match pts(cell, &["membership", name]) {
        Ok(groups) if groups.contains("system:administrators") => {
            "an administrator of the cell, by the kernel's word"
        }
        Ok(_) => "a user of the cell, by the kernel's word",
        Err(_) => "without a principal of that name in the cell",
    };
    format!("you are {name} (uid {uid}), {known}")
}

/// Describes the protection by the keys of an encrypting cell, for people.
pub fn about_keys(cell: &CellDir) -> String {
    format!(
        "its files are encrypted with keys in {}, on the same disk: a thief of the disk, or of a \
        copy of all of it, has both.\n\
         To keep them apart, put that directory on another disk, or get the keys from a key \
         server: [at-rest] with command\n\
         in {} (docs/spec/access.md, At rest). Client caches of the files are not encrypted.",
        keys::at_rest_dir(cell.dir()).display(),
        cell.dir().join("cell.toml").display()
    )
}

fn pts(cell: &CellDir, words: &[&str]) -> Result<String, Failure> {
    let what = || format!("rialto pts {}", words.join(" "));
    let program = std::env::current_exe().doing(what)?;
    let mut command = Command::new(program);
    let output = command
        .arg("pts")
        .args(words)
        .arg("--dir")
        .arg(cell.dir())
        .stdin(Stdio::null())
        .output()
        .doing(what)?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    Err(Failure::new(what(), String::from_utf8_lossy(&output.stderr).trim()))
}

/// The user's name on this machine, if it can be a name in the cell.
fn name_of(uid: u32) -> Option<String> {
    let output =
        Command::new("id").args(["-nu", &uid.to_string()]).stdin(Stdio::null()).output().ok()?;
    let name = String::from_utf8(output.stdout).ok()?.trim().to_owned();
    guard::check_user_name(&name).ok().map(|()| name)
}
