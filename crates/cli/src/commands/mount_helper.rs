//! `mount.rialto` and `mount.fuse.rialto`: what mount(8) runs for `mount -t rialto`, and for the
//! remount of a mount that is there. The arguments are those of mount(8), *External helpers*.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, ValueEnum};
use client::Endpoint;
use local::ask::endpoint;
use local::cell::{VOLUME, Where};
use local::daemon::Process;
use local::failure::{Doing, Failure};
use local::mounts;

use super::mount::{CACHE_SIZE, MountCommand, size};
use crate::mount_words::MountWords;
use crate::transport::Transport;
use crate::{control, registry};

/// Mounts a tree for mount(8).
#[derive(Args, Debug)]
pub struct MountHelper {
    /// A cell, HOST:PORT or unix:PATH; 'none' for the cell of this machine.
    source: String,
    /// An existing directory.
    mount_point: PathBuf,
    /// Options between commas.
    #[arg(short, value_name = "OPTIONS")]
    options: Vec<String>,
    /// Only checks the arguments.
    #[arg(short)]
    fake: bool,
    #[arg(short)]
    sloppy: bool,
    #[arg(short)]
    no_table: bool,
    #[arg(short)]
    verbose: bool,
    /// The type by which it was called.
    #[arg(short = 't', value_name = "TYPE")]
    kind: Option<String>,
    #[arg(short = 'N', value_name = "NAMESPACE")]
    namespace: Option<String>,
}

impl MountHelper {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        let words = MountWords::parse(&self.options)?;
        if self.fake {
            return Ok(ExitCode::SUCCESS);
        }
        if words.remount {
            remount(&self.mount_point, &self.options)?;
            return Ok(ExitCode::SUCCESS);
        }
        // mount -a compares the roots of mounts too, and does not recognize a mount that begins
        // below that of its file system.
        if is_there(&self.source, &self.mount_point) {
            let at = self.mount_point.display();
            eprintln!("mount.rialto: {} is mounted on {at} already", self.source);
            return Ok(ExitCode::SUCCESS);
        }
        let server = match &*self.source {
            "none" | "rialto" => None,
            source => endpoint(source).ok(),
        };
        let is_cell = server.is_none() && !matches!(&*self.source, "none" | "rialto");
        let cell = is_cell.then(|| self.source.clone());
        MountCommand::for_helper(self.source, server, cell, self.mount_point, self.options).run()
    }
}

/// Where the records of mounts by mount(8) are, unless it is said.
const DIR_OF_ROOT: &str = "/var/lib/rialto";

impl MountCommand {
    /// The mount that mount(8) asks for.
    fn for_helper(
        source: String,
        server: Option<Endpoint>,
        cell: Option<String>,
        mount_point: PathBuf,
        options: Vec<String>,
    ) -> Self {
        MountCommand {
            server,
            mount_point,
            volume: VOLUME.to_owned(),
            dynroot: false,
            flat: false,
            daemon: true,
            keep: false,
            keeper: None,
            replace: false,
            detached: false,
            cache_size: size(CACHE_SIZE).expect("the default is a size"),
            cache_dir: None,
            cells: None,
            cellservdb: None,
            name_server: Vec::new(),
            transport: None,
            options,
            hard: false,
            soft: None,
            source: Some(source),
            cell,
            place: Where { dir: None, clear: false },
        }
    }

    /// Takes the options that are given as words for those that are given with dashes.
    pub(super) fn take_words(&mut self) -> Result<MountWords, Failure> {
        let words = MountWords::parse(&self.options)?;
        let refuse = |name: &str, why: String| {
            Failure::new(format!("reading the mount option '{name}'"), why)
        };
        for (name, value) in &words.own {
            let value = value.clone().unwrap_or_default();
            match name.as_str() {
                "flat" => self.flat = true,
                "keep" => self.keep = true,
                "keeper" => self.keeper = Some(value.into()),
                "dynroot" => (self.dynroot, self.cell) = (true, None),
                "clear" => self.place.clear = true,
                "encrypt" => self.place.clear = false,
                "cell" => self.cell = Some(value),
                "volume" => self.volume = value,
                "dir" => self.place.dir = Some(value.into()),
                "cache" | "cache-dir" => self.cache_dir = Some(value.into()),
                "cache-size" => self.cache_size = size(&value).map_err(|why| refuse(name, why))?,
                "cells" => self.cells = Some(value.into()),
                "cellservdb" => self.cellservdb = Some(value.into()),
                "name-server" => {
                    let server = value.parse().map_err(|_| "write ADDRESS:PORT".to_owned());
                    self.name_server.push(server.map_err(|why| refuse(name, why))?);
                }
                "transport" => {
                    let chosen = Transport::from_str(&value, false);
                    self.transport = Some(chosen.map_err(|why| refuse(name, why))?);
                }
                _ => return Err(refuse(name, "there is no such option".to_owned())),
            }
        }
        if self.soft.is_none() && !self.hard {
            self.soft = words.patience.map(|patience| patience.as_secs() as u32);
        }
        // For mount(8) the records are in one place, whoever calls it: at the start of the machine
        // there is no HOME.
        let has_dir = self.place.dir.is_some() || std::env::var_os("RIALTO_HOME").is_some();
        if self.source.is_some() && !has_dir && rustix::process::geteuid().is_root() {
            self.place.dir = Some(PathBuf::from(DIR_OF_ROOT));
        }
        Ok(words)
    }
}

fn is_there(source: &str, at: &Path) -> bool {
    let Ok(at) = std::path::absolute(at).map(registry::real_path) else { return false };
    let there = mounts::at(&at).ok().flatten();
    there.is_some_and(|mounted| mounted.is_rialto() && mounted.source == source)
}

/// Gives the process of the mount the new options; returns when they hold and, for a mount that
/// becomes read-only, pending changes are at the server.
fn remount(at: &Path, options: &[String]) -> Result<(), Failure> {
    let what = || format!("changing the mount on {}", at.display());
    let at = registry::real_path(std::path::absolute(at).doing(what)?);
    let records = registry::records(&at, None)?;
    let pid_file = records.pid_file(&at);
    let Some(process) = Process::recorded(&pid_file).doing(what)? else {
        return Err(Failure::new(what(), "no process of this machine serves it").nothing_there());
    };
    let dir = pid_file.parent().unwrap_or(Path::new("/"));
    let order = format!("remount {}", options.join(","));
    control::ask(dir, process.pid, &order, None).doing(what).map(drop)
}
