//! `vos listaddrs` and `vos changeaddr`: the servers of the cell.

use std::net::{IpAddr, SocketAddr};

use clap::Args;
use local::failure::Failure;
use serde_json::json;
use types::{Revised, ServerId, ServerInfo, ServerRoles};

use super::context::VosContext;
use super::show;

const LISTADDRS_HELP: &str = "\
EXAMPLES
    rialto vos listaddrs
    rialto vos listaddrs -printuuid
    rialto vos listaddrs --json | jq -r .name";

const CHANGEADDR_HELP: &str = "\
EXAMPLES
    rialto vos changeaddr 10.0.0.1 10.0.0.2           the server has moved
    rialto vos changeaddr -oldaddr 10.0.0.1 -remove   removes a server

A server enters its addresses when it starts: this is for one that cannot, or no longer
exists. A server with sites of volumes is not removed. The keys of a removed server are
withdrawn.";

/// Lists the servers of the cell and their addresses.
#[derive(Args, Debug)]
#[command(after_help = LISTADDRS_HELP)]
pub struct Listaddrs {
    /// Show their ids, the keys by which other servers know them, and the roles of those that do
    /// not have all.
    #[arg(long)]
    printuuid: bool,
    /// Show only this server.
    #[arg(long, value_name = "MACHINE")]
    host: Option<String>,
}

/// Changes the address of a server, or removes it from the database.
#[derive(Args, Debug)]
#[command(after_help = CHANGEADDR_HELP)]
pub struct Changeaddr {
    /// The old address, or the server's name.
    #[arg(long, value_name = "ADDRESS")]
    oldaddr: Option<String>,
    /// The new address; with a port, if that changed too.
    #[arg(long, value_name = "ADDRESS", conflicts_with = "remove")]
    newaddr: Option<String>,
    /// Remove the server.
    #[arg(long)]
    remove: bool,
    /// OLD [NEW], instead of the options.
    #[arg(value_name = "ADDRESS", num_args = 0..=2)]
    words: Vec<String>,
}

impl Listaddrs {
    pub(crate) fn run(self, context: &VosContext) -> Result<(), Failure> {
        let only = self.host.as_ref().map(|host| context.server(host)).transpose()?;
        let chosen: Vec<_> =
            context.servers().iter().filter(|one| only.is_none_or(|only| only == one.id)).collect();
        // A database's server that is older than roles has none to tell.
        let limited = context.db().access().limited_servers().unwrap_or_default();
        show::write(|put| {
            let mut lines = chosen.iter().map(|server| self.shown(context, server, &limited));
            lines.try_for_each(|line| put(&line))
        })
    }

    fn shown(
        &self,
        context: &VosContext,
        server: &ServerInfo,
        limited: &[(ServerId, ServerRoles)],
    ) -> String {
        let limits = limited.iter().find(|(id, _)| *id == server.id).map(|(_, roles)| *roles);
        let addresses: Vec<_> = server.addresses.iter().map(ToString::to_string).collect();
        if context.json {
            let keys: Vec<_> = server.keys.iter().map(ToString::to_string).collect();
            let id = server.id.to_string();
            return json!({
                "id": id, "name": server.name, "addresses": addresses, "keys": keys,
                "roles": limits.unwrap_or(ServerRoles::ALL).to_string(),
            })
            .to_string();
        }
        let reached = if addresses.is_empty() {
            "only from its own machine".to_owned()
        } else {
            addresses.join(" ")
        };
        let line = format!("{:<24} {reached}", server.name);
        if !self.printuuid {
            return line;
        }
        let keys: String =
            server.keys.iter().map(|key| format!("\n{:<24} {key}", "  key")).collect();
        let roles = limits.map(|roles| format!("\n{:<24} {roles}", "  roles"));
        format!("UUID: {}\n{line}{}{keys}", server.id, roles.unwrap_or_default())
    }
}

impl Changeaddr {
    pub(crate) fn run(self, context: &VosContext) -> Result<(), Failure> {
        let mut words = self.words.into_iter();
        let missing =
            |what: &str| Failure::new("reading the command", format!("{what} is missing"));
        let old = self.oldaddr.or_else(|| words.next()).ok_or_else(|| missing("the address"))?;
        let what = format!("changing the server at {old}");
        let id = context.server(&old)?;
        let known =
            context.db().servers().map_err(|error| context.refusal(&what, &error.into()))?;
        let seen = known.into_iter().find(|seen| seen.record.id == id);
        let seen = seen.ok_or_else(|| Failure::new(&what, "the database does not have it"))?;
        if self.remove {
            return remove(context, &what, &seen);
        }
        let new = self
            .newaddr
            .or_else(|| words.next())
            .ok_or_else(|| missing("the new address, or -remove,"))?;
        change(context, &what, seen, &old, &new)
    }
}

fn change(
    context: &VosContext,
    what: &str,
    seen: Revised<ServerInfo>,
    old: &str,
    new: &str,
) -> Result<(), Failure> {
    let Revised { record: mut server, revision } = seen;
    let mut changed = 0;
    for address in &mut server.addresses {
        if address.ip().to_string() == old || address.to_string() == old {
            *address = with_port(new, address.port()).map_err(|why| Failure::new(what, why))?;
            changed += 1;
        }
    }
    if changed == 0 {
        return Err(
            Failure::new(what, "it has no such address").mend("'rialto vos listaddrs' shows them")
        );
    }
    if context.dry_run {
        eprintln!("would be done: {what} to {new}");
        return Ok(());
    }
    context
        .db()
        .put_server(&server, revision)
        .map_err(|error| context.refusal(what, &error.into()))?;
    println!("Changed {old} to {new} of the server {}", server.name);
    Ok(())
}

fn with_port(text: &str, port: u16) -> Result<SocketAddr, String> {
    let bare = || text.parse::<IpAddr>().map(|ip| SocketAddr::new(ip, port));
    text.parse().or_else(|_| bare()).map_err(|_| format!("{text} is no address"))
}

fn remove(context: &VosContext, what: &str, seen: &Revised<ServerInfo>) -> Result<(), Failure> {
    let id = seen.record.id;
    let mut sites = 0;
    context.each_group(&mut |groups| {
        sites += groups
            .iter()
            .flat_map(|group| &group.record.sites)
            .filter(|site| site.server == id)
            .count();
        Ok(())
    })?;
    if sites > 0 {
        let why = format!("the database has {sites} sites there");
        return Err(Failure::new(what, why).mend(
            "move or remove those volumes first, or correct the records with 'vos syncserv'",
        ));
    }
    if context.dry_run {
        eprintln!("would be done: remove the server {}", seen.record.name);
        return Ok(());
    }
    context
        .db()
        .remove_server(id, seen.revision)
        .map_err(|error| context.refusal(what, &error.into()))?;
    println!("Removed the server {}", seen.record.name);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_keeps_its_port_unless_it_says_another() {
        assert_eq!(with_port("10.0.0.2", 7), Ok("10.0.0.2:7".parse().unwrap()));
        assert_eq!(with_port("10.0.0.2:8", 7), Ok("10.0.0.2:8".parse().unwrap()));
        assert!(with_port("ten", 7).is_err());
    }
}
