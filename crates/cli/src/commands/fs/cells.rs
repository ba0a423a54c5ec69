//! Cells that this machine knows: `fs listcells` and `newcell`.

use std::collections::BTreeMap;
use std::fs::Permissions;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use local::cell::Where;
use local::failure::Failure;
use local::show;
use serde::Deserialize;
use serde_json::json;

use super::tree;
use crate::cells::{self, CellList};

const LISTCELLS_HELP: &str = "\
EXAMPLES
    rialto fs listcells
    rialto fs listcells -numeric
    rialto fs listcells --file /etc/rialto/cells.toml

The cell of the tree comes first, with the servers that its database lists; then those of
cells.toml. Cells that only DNS has are not listed.";

const NEWCELL_HELP: &str = "\
EXAMPLES
    rialto fs newcell example.org afs1.example.org afs2.example.org:7621
    rialto fs newcell -name example.org -servers 192.0.2.7 --fingerprint sha256:...
    rialto fs newcell example.org afs1.example.org --file ~/cells.toml

Enters the cell into cells.toml, or replaces the servers that it has there; mounts read the
file when a path names the cell. Without a port, servers listen at 7620. A fingerprint that
is there stays, unless another is given.";

/// Lists the cells that this machine knows.
#[derive(Args, Debug)]
#[command(after_help = LISTCELLS_HELP)]
pub struct Listcells {
    /// Show addresses, not names, of the servers of the tree's cell.
    #[arg(long)]
    numeric: bool,
    /// The file that lists cells [default: cells.toml of this user's directory, then
    /// /etc/rialto/cells.toml]
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
}

/// Enters a cell into cells.toml.
#[derive(Args, Debug)]
#[command(after_help = NEWCELL_HELP)]
pub struct Newcell {
    /// The cell's name.
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Its servers, the best first: HOST or HOST:PORT
    #[arg(long, value_name = "SERVER", num_args = 1..)]
    servers: Vec<String>,
    /// The fingerprint of its authority, as 'rialto keys list' shows it there [default: as it is
    /// seen first]
    #[arg(long, value_name = "SHA256")]
    fingerprint: Option<String>,
    /// The file [default: /etc/rialto/cells.toml]
    #[arg(long, value_name = "FILE", default_value = cells::OF_MACHINE)]
    file: PathBuf,
    /// NAME SERVER..., instead of the options.
    #[arg(value_name = "NAME", num_args = 0..)]
    words: Vec<String>,
}

#[derive(Deserialize)]
struct TreeServer {
    host: String,
    addresses: Vec<String>,
}

/// The cell of the first tree that is mounted, with its servers.
fn of_tree(numeric: bool) -> Option<(String, Vec<String>)> {
    let place = tree::some_place(None).ok()?;
    let cell = tree::get(&place, "rialto.cell").ok()?;
    let servers = tree::get(&place, "rialto.servers").ok()?;
    let servers: Vec<TreeServer> = serde_json::from_str(&servers).ok()?;
    let shown = |server: TreeServer| match server.addresses.into_iter().next() {
        Some(address) if numeric || server.host.is_empty() => address,
        _ => server.host,
    };
    Some((cell, servers.into_iter().map(shown).collect()))
}

impl Listcells {
    pub(crate) fn run(self, json: bool) -> Result<ExitCode, Failure> {
        let dir = Where { dir: None, clear: false }.path().ok();
        let list = CellList::new(self.file.as_deref(), dir.as_deref());
        let first = if self.file.is_none() { of_tree(self.numeric) } else { None };
        let mut others: BTreeMap<String, Vec<String>> = list.listed();
        others.retain(|name, _| first.as_ref().is_none_or(|(first, _)| first != name));
        for (cell, servers) in first.into_iter().chain(others) {
            if json {
                show::json(&json!({ "cell": cell, "servers": servers }));
            } else {
                println!("Cell {cell} on hosts {}.", servers.join(" "));
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl Newcell {
    pub(crate) fn run(mut self, json: bool) -> Result<ExitCode, Failure> {
        let missing = |what: &str| {
            Failure::new("reading the command", format!("{what} is missing"))
                .mend("'--help' shows the order")
                .wrong_usage()
        };
        if self.name.is_none() && !self.words.is_empty() {
            self.name = Some(self.words.remove(0));
        }
        let name = self.name.ok_or_else(|| missing("the cell's name"))?;
        self.servers.append(&mut self.words);
        if self.servers.is_empty() {
            return Err(missing("a server"));
        }
        let servers: Vec<String> = self.servers.iter().map(|server| with_port(server)).collect();
        enter(&self.file, &name, &servers, self.fingerprint.as_deref())?;
        if json {
            show::json(&json!({ "cell": name, "servers": servers, "file": self.file }));
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// The port of servers that are named without one.
const PORT: u16 = 7620;

fn with_port(server: &str) -> String {
    let is_whole = local::ask::endpoint(server).is_ok();
    // An address of version 6 has colons and no port.
    let is_v6 = server.parse::<std::net::Ipv6Addr>().is_ok();
    match (is_whole, is_v6) {
        (_, true) => format!("[{server}]:{PORT}"),
        (true, false) => server.to_owned(),
        (false, false) => format!("{server}:{PORT}"),
    }
}

/// Writes the file anew, with this cell in it.
fn enter(
    file: &Path,
    cell: &str,
    servers: &[String],
    fingerprint: Option<&str>,
) -> Result<(), Failure> {
    let what = || format!("entering {cell} into {}", file.display());
    let failed = |error: std::io::Error| {
        let failure = Failure::new(what(), &error);
        match error.kind() {
            std::io::ErrorKind::PermissionDenied => failure.mend("run it as root"),
            _ => failure,
        }
    };
    let text = match std::fs::read_to_string(file) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
        Err(error) => return Err(failed(error)),
    };
    let text = cells::with_cell(&text, cell, servers, fingerprint)
        .map_err(|why| Failure::new(what(), why).mend("'rialto fs newcell --help' has examples"))?;
    replace(file, &text).map_err(failed)
}

/// Mounts read the old file or the new one, never a part.
fn replace(file: &Path, text: &str) -> std::io::Result<()> {
    let file = std::fs::canonicalize(file).unwrap_or_else(|_| file.to_owned());
    let dir = file.parent().unwrap_or(Path::new("/"));
    std::fs::create_dir_all(dir)?;
    let mode = std::fs::metadata(&file).map_or(0o644, |status| status.permissions().mode());
    let mut draft = tempfile::NamedTempFile::new_in(dir)?;
    draft.write_all(text.as_bytes())?;
    draft.as_file().set_permissions(Permissions::from_mode(mode & 0o777))?;
    draft.as_file().sync_all()?;
    draft.persist(&file).map_err(|error| error.error).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_without_a_port_get_the_usual_one() {
        for (typed, meant) in [
            ("afs1.example.org", "afs1.example.org:7620"),
            ("afs1.example.org:7621", "afs1.example.org:7621"),
            ("192.0.2.7", "192.0.2.7:7620"),
            ("2001:db8::1", "[2001:db8::1]:7620"),
            ("[2001:db8::1]:7621", "[2001:db8::1]:7621"),
            ("unix:/run/x", "unix:/run/x"),
        ] {
            assert_eq!(with_port(typed), meant);
        }
    }
}
