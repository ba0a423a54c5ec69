//! `rialto server`: serves a cell's partitions, in the foreground or as a daemon.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use clap::Args;
use local::cell::{CellDir, Compress, VOLUME, Where};
use local::daemon::{self, PidFile};
use local::failure::{Doing, Failure};
use local::privacy;
use server::{CellPlace, Server as Serving, ServerConfig, StartError};
use store::OpenOptions;
use types::{KeyKeeper, Name};

use super::up::start_server;
use crate::evacuating::Evacuating;
use crate::keeping::KeyUpkeep;
use crate::logging;
use crate::partitions;
use crate::security;
use crate::stopping;
use crate::supervisor;

const AFTER_HELP: &str = "\
EXAMPLES
    rialto server                         until Ctrl-C
    rialto server --daemon                until 'rialto down'
    RIALTO_LOG=debug rialto server --dir /srv/rialto
    rialto server --daemon --new-partition vicepb    its volumes are lost

'rialto up --no-mount' makes a cell. Where its server listens, and which partitions it
has, is in the cell's cell.toml. A partition that is named there for the first time is
made. One that was there and is missing stops the start: its disk may not be mounted.
Interrupted, the server finishes what is in progress and writes everything to disk;
clients wait until it is back.

EXIT CODES
    0  stopped in order (with --daemon: it answers)
    1  it could not start
    3  no cell there";

/// Serves a cell's partitions.
#[derive(Args, Debug)]
#[command(after_help = AFTER_HELP)]
pub struct ServerCommand {
    #[command(flatten)]
    place: Where,
    /// Go into the background once the server answers.
    #[arg(long)]
    daemon: bool,
    /// Make this partition anew, empty, if it is missing although it was there; may be repeated.
    #[arg(long, value_name = "PARTITION")]
    new_partition: Vec<String>,
    /// This process is the daemon.
    #[arg(long, hide = true)]
    detached: bool,
}

impl ServerCommand {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        let cell = self.place.cell()?;
        if self.daemon {
            start_server(&cell, &self.new_partition)?;
        } else {
            self.serve(&cell)?;
        }
        Ok(ExitCode::SUCCESS)
    }

    fn serve(&self, cell: &CellDir) -> Result<(), Failure> {
        // Before any thread starts.
        privacy::close_new_files();
        if self.detached {
            daemon::leave_terminal().doing(|| "leaving the terminal".to_owned())?;
        }
        logging::start();
        logging::protect_memory();
        let log_mib = cell.config.limits.unwrap_or_default().log_mib;
        logging::bound(log_mib << 20).doing(|| "watching the size of the log".to_owned())?;
        let pid_file = PidFile::hold(&cell.server_pid_file(), "the server")?;
        privacy::repair(cell);
        let at_rest = Arc::new(cell.at_rest());
        let (keys, encrypt) = (Some(at_rest.clone() as Arc<dyn KeyKeeper>), cell.config.encrypt);
        let options = OpenOptions { keys, encrypt, ..OpenOptions::default() };
        partitions::make(cell, &self.new_partition, &options)?;
        // Before clients can connect to the server, and request its stop.
        let (stop, stops) = mpsc::channel();
        let (broken, restart) = (stop.clone(), stop.clone());
        stopping::signals(|| (), stop).doing(|| "watching for signals".to_owned())?;
        let mut config = config(cell, at_rest.clone());
        let renewal = security::secure_server(cell, &mut config)?;
        config.mint = Some(security::mint(cell)?);
        config.certifier = security::certifier(cell);
        config.kerberos = security::kerberos(cell)?;
        config.afs = security::afs(cell)?;
        let serving = Serving::start(&config).map_err(|error| refusal(cell, &error))?;
        serving.on_broken(move || {
            // Without a receiver the server is ending already.
            let _ = broken.send(());
        });
        KeyUpkeep::start(renewal.zip(config.tls.clone()), at_rest, &serving.vice())?;
        for endpoint in serving.endpoints() {
            tracing::info!(%endpoint, cell = cell.config.name, "listening");
        }
        let is_to_restart = Arc::new(AtomicBool::new(false));
        let asked = Arc::clone(&is_to_restart);
        let evacuating = Evacuating::start(cell, &serving.vice(), move || {
            asked.store(true, Ordering::SeqCst);
            let _ = restart.send(());
        })?;
        supervisor::tell_ready();
        // An error means that the signal thread has ended, and no orderly stop would be possible.
        let _ = stops.recv();
        supervisor::tell_stopping();
        evacuating.stop();
        let is_broken = serving.vice().is_broken();
        let stopped = serving.stop();
        if is_to_restart.load(Ordering::SeqCst) {
            // Expected of the partition that stopped, and told of any other.
            if let Err(error) = &stopped {
                tracing::warn!(%error, "not everything is on disk");
            }
            let why = "a partition takes no more changes until it is opened again, and [health] in \
                       cell.toml has its volumes leave";
            return Err(Failure::new("serving", why)
                .mend("its supervisor starts it again; without one, 'rialto up' does"));
        }
        stopped.doing(|| "writing everything to disk".to_owned())?;
        if is_broken {
            let why = "a panic left its session tables inconsistent; everything is on disk";
            return Err(Failure::new("serving", why)
                .mend("start it again with 'rialto up'; the log has the place of the panic"));
        }
        tracing::info!("stopped");
        drop(pid_file);
        Ok(())
    }
}

fn refusal(cell: &CellDir, error: &StartError) -> Failure {
    let failure = Failure::new(format!("serving the cell {}", cell.config.name), error);
    match error {
        StartError::Listen { .. } | StartError::Afs(_) => {
            let file = cell.dir().join("cell.toml");
            failure.mend(format!(
                "change that address in {}; 'rialto doctor' finds the process that uses it",
                file.display()
            ))
        }
        // The partition's error includes its remedy.
        StartError::Partition { .. } => failure,
        _ => failure.mend("'rialto doctor' finds causes"),
    }
}

/// `keeper`: the source of keys of encrypted volumes, possibly a key server.
fn config(cell: &CellDir, keeper: Arc<dyn KeyKeeper>) -> ServerConfig {
    let mut config = ServerConfig::new(PathBuf::new());
    config.partitions = cell.partition_names().into_iter().zip(cell.partitions()).collect();
    config.unix_socket = Some(cell.socket());
    config.users_socket = cell.users_socket();
    config.tcp_listen = cell.config.listen.map(|listen| listen.to_string());
    config.name = cell.config.server.clone();
    config.addresses = cell.config.addresses.clone();
    config.cell_name = Some(cell.config.name.clone());
    config.trusted = cell.config.trusted.clone();
    config.trusted_root = cell.config.trusted_root;
    config.audit = Some(cell.dir().join("audit"));
    config.audit_forward = cell.config.audit.as_ref().map(|audit| audit.forward.clone());
    config.rules = Some(cell.dir().join("rules"));
    if let Some(secs) = cell.config.cell_away_max {
        config.cell_away_max = Duration::from_secs(secs.into());
    }
    config.store.compress = cell.config.compress == Some(Compress::Zstd);
    config.store.encrypt = cell.config.encrypt;
    config.store.keys = Some(keeper);
    config.store.health = Some(cell.dir().join("health"));
    config.limits = cell.config.limits.unwrap_or_default();
    let place = cell.database();
    if matches!(place, CellPlace::Here(_)) {
        config.enters = vec![Name::new(VOLUME.as_bytes()).expect("a constant that is a name")];
    }
    config.cell = Some(place);
    config
}
