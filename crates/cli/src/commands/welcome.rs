//! Who called `rialto up`, to the cell that it made: a user of it, with the number that he has on
//! this machine, and an administrator. The kernel's word is enough for him here, so nobody needs a
//! password to begin with. The superuser of this machine needs not be anybody: the cell's is the
//! same.

use std::process::{Command, Stdio};

use local::cell::CellDir;
use local::failure::{Doing, Failure};

/// Who is there.
pub struct Person {
    name: String,
    uid: u32,
}

impl Person {
    /// Who typed the command; `None`: the superuser himself.
    pub fn calling() -> Option<Person> {
        let uid = rustix::process::getuid().as_raw();
        if uid != 0 {
            return Some(Person { name: name_of(uid)?, uid });
        }
        let uid = std::env::var("SUDO_UID").ok()?.parse().ok().filter(|uid| *uid != 0)?;
        Some(Person { name: name_of(uid)?, uid })
    }

    /// Makes him a user and an administrator of a new cell.
    ///
    /// # Errors
    /// As `rialto pts` says.
    pub fn enter(&self, cell: &CellDir) -> Result<(), Failure> {
        let uid = self.uid.to_string();
        pts(cell, &["createuser", &self.name, "-uid", &uid])?;
        pts(cell, &["adduser", &self.name, "system:administrators"]).map(drop)
    }
}

/// For people: who they are to the cell.
pub fn who(cell: &CellDir, person: Option<&Person>) -> String {
    let Some(Person { name, uid }) = person else {
        return "you are root, the superuser of the cell, by the kernel's word".to_owned();
    };
    let known = match pts(cell, &["membership", name]) {
        Ok(groups) if groups.contains("system:administrators") => {
            "an administrator of the cell, by the kernel's word"
        }
        Ok(_) => "a user of the cell, by the kernel's word",
        Err(_) => "nobody that the cell knows by that name",
    };
    format!("you are {name} (uid {uid}), {known}")
}

/// For people who made a cell that encrypts: what that is good for as it is.
pub fn about_keys(cell: &CellDir) -> String {
    format!(
        "its files are encrypted with keys in {}, on the same disk: a thief of the disk, or of a copy of all of it, has both.\n\
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

/// What this machine calls him, if the cell can call him so.
fn name_of(uid: u32) -> Option<String> {
    let output =
        Command::new("id").args(["-nu", &uid.to_string()]).stdin(Stdio::null()).output().ok()?;
    let name = String::from_utf8(output.stdout).ok()?.trim().to_owned();
    guard::check_user_name(&name).ok().map(|()| name)
}
