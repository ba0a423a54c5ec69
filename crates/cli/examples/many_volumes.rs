//! Makes many volumes of a server: `many_volumes SERVER PARTITION PREFIX FIRST COUNT` makes
//! PREFIX00000 and so on from the number FIRST. For tests: a command for each would take longer
//! than the test itself.

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use celldb::RemoteCellDb;
use client::{ClientOptions, Endpoint};
use local::ask::Asking;
use types::{Busy, Name, ServerId};
use vos::{Job, JobEvent, JobLeader, NewVolume, ServerConnections};

/// So many are made at the same time.
const THREADS: usize = 4;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("many_volumes: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [server, partition, prefix, first, count] = arguments.as_slice() else {
        return Err("SERVER PARTITION PREFIX FIRST COUNT".into());
    };
    let endpoint: Endpoint = server.parse()?;
    let asking = Asking::reach(endpoint.clone(), ClientOptions::default())
        .map_err(|failure| failure.to_string())?;
    let me = asking.me().map_err(|failure| failure.to_string())?.id;
    let (first, count): (usize, usize) = (first.parse()?, count.parse()?);
    let next = AtomicUsize::new(first);
    std::thread::scope(|scope| {
        let make = || -> Result<()> {
            let db = Arc::new(RemoteCellDb::at(endpoint.clone(), ClientOptions::default()));
            let servers =
                ServerConnections::new(db, [(me, endpoint.clone())], ClientOptions::default());
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= first + count {
                    return Ok(());
                }
                make_one(&servers, me, partition, &format!("{prefix}{number:05}"))?;
            }
        };
        let making: Vec<_> = (0..THREADS).map(|_| scope.spawn(make)).collect();
        making
            .into_iter()
            .try_for_each(|thread| thread.join().map_err(|_| "a thread panicked".to_owned())?)
    })
}

fn make_one(
    servers: &ServerConnections,
    server: ServerId,
    partition: &str,
    name: &str,
) -> Result<()> {
    let is_over = |_: &Busy| false;
    let who = JobLeader { by: "example".into(), now_secs: &|| 0, is_over: &is_over };
    let tell = |_: JobEvent<'_>| {};
    let new = NewVolume {
        name: Name::new(name.as_bytes())?,
        id: None,
        server,
        partition: partition.to_owned(),
        quota_bytes: 0,
        owner: (0, 0),
        encrypt: None,
    };
    vos::create(&Job { servers, who, dry_run: false, tell: &tell }, &new)?;
    Ok(())
}
