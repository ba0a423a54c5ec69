//! `rialto cell remove-server`: ends a server of the cell: its keys, its sessions, its record.

use std::process::ExitCode;

use client::CallError;
use local::failure::Failure;
use local::show;
use serde_json::json;
use types::{
    Answer, Call, CellCall, GuardCall, Revised, ServerId, SiteKind, VolumeGroup, VolumeId,
};

use crate::commands::cell_client::{CellClient, CellOptions, odd};
use crate::commands::rules::{RulesClient, confirmed};

pub(super) const REMOVE_HELP: &str = "\
EXAMPLES
    rialto vos evacuate -server afs2 -withgroup    while it still answers
    rialto cell remove-server afs2
    rialto cell remove-server afs2 --lost          it never comes back

Every server refuses its key within a second and for ever, sessions with it end, mounts
refuse it when they hear of it, and the database forgets it. Without --lost nothing is done
as long as a volume has its only site there. With --lost the command lists these volumes:
restore them from dumps or released copies, and take the old entries away with
'rialto vos delentry'. If the server that had the key of the authority is lost, make a new
one: 'rialto keys rotate authority' where a copy of the key is.

EXIT CODES
    0  done
    1  refused or failed, or a server did not confirm: the message names it
    3  no cell there, or its server does not run";

/// Groups in one answer.
const AT_ONCE: u32 = 500;

#[derive(clap::Args, Debug)]
pub(super) struct RemoveOptions {
    /// Its name or id: 'rialto vos listaddrs -printuuid' lists them.
    server: String,
    /// Also if volumes have their only site there: they are lost with it.
    #[arg(long)]
    lost: bool,
    /// Only print what would be done.
    #[arg(long, short = 'n')]
    dry_run: bool,
}

/// The volumes that a server has.
#[derive(Default)]
struct Volumes {
    /// Nothing of them is anywhere else.
    lost: Vec<String>,
    /// The read-write volume is there, and released copies are elsewhere.
    copied: Vec<String>,
    /// Only released copies are there: their sites go with the server.
    sites: Vec<Revised<VolumeGroup>>,
}

impl Volumes {
    fn of(server: ServerId, groups: Vec<Revised<VolumeGroup>>) -> Volumes {
        let mut found = Volumes::default();
        for seen in groups {
            let group = &seen.record;
            let name = String::from_utf8_lossy(group.name.as_bytes()).into_owned();
            let here = |site: &&types::Site| site.server == server;
            if !group.sites.iter().any(|site| site.server == server) {
                continue;
            }
            let is_home =
                group.sites.iter().filter(here).any(|site| site.kind == SiteKind::ReadWrite);
            let is_elsewhere = group.sites.iter().any(|site| site.server != server);
            match (is_home, is_elsewhere) {
                (true, true) => found.copied.push(name),
                (_, false) => found.lost.push(name),
                (false, true) => found.sites.push(seen),
            }
        }
        found
    }
}

impl RemoveOptions {
    pub(super) fn run(&self, options: &CellOptions) -> Result<ExitCode, Failure> {
        let doing = format!("removing the server {}", self.server);
        let rules = RulesClient::open(options)?;
        let server = rules.server(&self.server)?;
        let cell = CellClient::open(options, refused)?;
        let me = cell.me()?;
        if me.id == server {
            return Err(Failure::new(doing, "it is the server that is asked")
                .mend("run this on another server of the cell, or name one with --via"));
        }
        let volumes = Volumes::of(server, all_groups(&cell, &doing)?);
        let kept = volumes.lost.len() + volumes.copied.len();
        if kept > 0 && !self.lost {
            let names = volumes.lost.iter().chain(&volumes.copied).take(5).cloned();
            let names = names.collect::<Vec<_>>().join(", ");
            return Err(Failure::new(
                doing,
                format!(
                    "it has the only read-write site of {kept} \
                volumes: {names}{}",
                    if kept > 5 { ", ..." } else { "" }
                ),
            )
            .mend("'rialto vos evacuate' moves them; if the server is lost, use --lost"));
        }
        if !self.dry_run {
            self.remove(&cell, &doing, &volumes, server)?;
        }
        let (done, missing) = if self.dry_run {
            ("would be removed", Vec::new())
        } else {
            let call = GuardCall::WithdrawKeys { server };
            let Answer::Enforced { missing, .. } = rules.ask(&doing, call)? else {
                return Err(odd(&doing));
            };
            let missing = rules.server_names(&missing);
            forget(&cell, &doing, server)?;
            ("removed", missing)
        };
        if options.json {
            show::json(&json!({
                "server": server.to_string(), "removed": !self.dry_run, "lost": volumes.lost,
                "copied": volumes.copied, "sites": volumes.sites.len(), "missing": missing,
            }));
        } else {
            println!("{done}: {}, and {} released sites there", self.server, volumes.sites.len());
            for name in &volumes.lost {
                println!("lost: {name}: restore it from a dump");
            }
            for name in &volumes.copied {
                let next = "a released copy can take over ('vos convertROtoRW')";
                println!("read-write site lost: {name}: {next}");
            }
        }
        confirmed(&doing, &missing)
    }

    /// Takes the released sites of the server off the records.
    fn remove(
        &self,
        cell: &CellClient,
        doing: &str,
        volumes: &Volumes,
        server: ServerId,
    ) -> Result<(), Failure> {
        for Revised { record, revision } in &volumes.sites {
            let mut group = record.clone();
            group.sites.retain(|site| site.server != server);
            let call = CellCall::PutGroup { group: Box::new(group), expected: *revision };
            cell.ask(doing, Call::Cell(call))?;
        }
        Ok(())
    }
}

fn all_groups(cell: &CellClient, doing: &str) -> Result<Vec<Revised<VolumeGroup>>, Failure> {
    let mut all: Vec<Revised<VolumeGroup>> = Vec::new();
    loop {
        let after = all.last().map_or(VolumeId(0), |seen| seen.record.read_write);
        let call = CellCall::Groups { after, max: AT_ONCE };
        let Answer::Groups { groups, end } = cell.ask(doing, Call::Cell(call))? else {
            return Err(odd(doing));
        };
        let is_last = end || groups.is_empty();
        all.extend(groups);
        if is_last {
            return Ok(all);
        }
    }
}

/// Removes the record, which lists no keys any more.
fn forget(cell: &CellClient, doing: &str, server: ServerId) -> Result<(), Failure> {
    let Answer::Servers(servers) = cell.ask(doing, Call::Cell(CellCall::Servers))? else {
        return Err(odd(doing));
    };
    let Some(seen) = servers.into_iter().find(|seen| seen.record.id == server) else {
        return Ok(());
    };
    let call = CellCall::RemoveServer { id: server, expected: seen.revision };
    cell.ask(doing, Call::Cell(call)).map(drop)
}

fn refused(doing: &str, error: &CallError) -> Failure {
    Failure::new(doing, error).mend("run the command again: it goes on where it stopped")
}

#[cfg(test)]
mod tests {
    use types::{Name, Revision, Site};

    use super::*;

    #[test]
    fn sj6_a_volume_without_another_site_is_lost_with_its_server() {
        let group = |name: &str, sites: &[(u128, SiteKind)]| {
            let site = |(server, kind): &(u128, SiteKind)| Site {
                server: ServerId(*server),
                partition: "vicep".into(),
                kind: *kind,
                epoch: 0,
            };
            let name = Name::new(name.as_bytes()).unwrap();
            let mut record = VolumeGroup::new(name, VolumeId(1), site(&sites[0]));
            record.sites = sites.iter().map(site).collect();
            Revised { record, revision: Revision(1) }
        };
        let (home, copy) = (SiteKind::ReadWrite, SiteKind::ReadOnly);
        let found = Volumes::of(
            ServerId(2),
            vec![
                group("elsewhere", &[(1, home), (3, copy)]),
                group("lost", &[(2, home)]),
                group("lost too", &[(2, home), (2, copy)]),
                group("copied", &[(2, home), (3, copy)]),
                group("a site", &[(1, home), (2, copy)]),
            ],
        );
        assert_eq!(
            (found.lost, found.copied),
            (vec!["lost".to_owned(), "lost too".to_owned()], vec!["copied".to_owned()])
        );
        assert_eq!(found.sites.len(), 1);
    }
}
