//! `rialto cell invite`, `invitations` and `uninvite`: how a further server is let into the cell.

use std::process::ExitCode;

use client::CallError;
use fabric::tls::Fingerprint;
use guard::JoinCode;
use local::failure::Failure;
use local::show;
use serde_json::json;
use types::{Answer, Call, CellCall, Fault, Invitation, PrincipalId, ServerRoles};

use crate::commands::cell_client::{CELL_AWAY, CellClient, CellOptions, odd};
use crate::commands::rules::seconds;

pub(super) const INVITE_HELP: &str = "\
EXAMPLES
    rialto cell invite
    rialto cell invite --name afs2 --for 30m
    rialto cell invite --role file --uses 3 --for 1d

It prints one line. On the new machine 'rialto up --join LINE' makes a server of it; type the
line there, or bring it over a way that nobody else reads: its holder becomes a server of the
cell, once. A new server gets a certificate for a key of its own, the keys that sign tokens,
and nothing of the authority.

Roles: 'file' may have volumes. 'users' may act for users and administrators at other
servers: logins, pts and vos through that server work; as long as its key counts, its thief
has the cell. Without it, log in and administer through another server. 'database' may copy
the cell's database, with the hashes of passwords, as 'backup cell' there does.";

pub(super) const UNINVITE_HELP: &str = "\
EXAMPLES
    rialto cell invitations
    rialto cell uninvite 42

A server that an invitation has let in stays: 'rialto keys withdraw' and 'rialto vos
changeaddr -remove' end it.";

/// The most addresses in a code: the new server asks one of them for all others.
const ADDRESSES_MAX: usize = 4;
/// Invitations in one answer.
const AT_ONCE: u32 = 100;

#[derive(clap::Args, Debug)]
pub(super) struct InviteOptions {
    /// The new server's name in the cell [default: its machine's, or what 'up --server' says]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// How long the line is valid, such as 30m, 1h or 1d; 30 days at most.
    #[arg(long = "for", value_name = "TIME", default_value = "1h", value_parser = seconds)]
    time: u64,
    /// The roles of the new server, beside serving its clients: file, users, database.
    #[arg(long, value_name = "ROLES", default_value = "file,users")]
    role: ServerRoles,
    /// How many servers the line lets in.
    #[arg(long, value_name = "NUMBER", default_value_t = 1, conflicts_with = "name",
        value_parser = clap::value_parser!(u32).range(1..=64))]
    uses: u32,
    /// Where the new server reaches this cell, if not at the addresses that 'rialto vos listaddrs'
    /// shows. May be given several times.
    #[arg(long, value_name = "HOST:PORT")]
    address: Vec<String>,
}

impl InviteOptions {
    pub(super) fn run(&self, options: &CellOptions) -> Result<ExitCode, Failure> {
        const DOING: &str = "inviting a server";
        let client = CellClient::open(options, refused)?;
        let report = client.reached.asking.report()?;
        let authority = report["server"]["authority"].as_str();
        let authority = authority.and_then(|print| print.parse::<Fingerprint>().ok());
        let authority = authority.ok_or_else(|| {
            Failure::new(DOING, "the cell has no authority: it does not listen in the network")
                .mend("set listen in cell.toml, then 'rialto down' and 'rialto up'")
        })?;
        let addresses = self.addresses(&client)?;
        let code = JoinCode::random(&client.reached.name, addresses, authority.0);
        let call = CellCall::Invite {
            public: code.signer().public(),
            seconds: self.time,
            uses: self.uses,
            roles: self.role.bits(),
            by: PrincipalId::NONE,
            name: self.name.clone().unwrap_or_default(),
        };
        let Answer::Number(number) = client.ask(DOING, Call::Cell(call))? else {
            return Err(odd(DOING));
        };
        let text = code.text();
        if options.json {
            show::json(&json!({
                "number": number.0, "code": &*text, "roles": self.role.to_string(),
                "seconds": self.time, "uses": self.uses, "name": self.name,
            }));
        } else {
            eprintln!(
                "invitation {} for a server with the roles {}; on the new machine, within {}:\n\
                 rialto up --join LINE",
                number.0,
                self.role,
                show::duration(self.time)
            );
            println!("{}", &*text);
        }
        Ok(ExitCode::SUCCESS)
    }

    fn addresses(&self, client: &CellClient) -> Result<Vec<String>, Failure> {
        if !self.address.is_empty() {
            return Ok(self.address.clone());
        }
        // The server that answers first: it is known to run.
        let me = client.me()?;
        let others = client.servers()?.into_iter().filter(|one| one.id != me.id);
        let first = |one: types::ServerInfo| one.addresses.into_iter().next();
        let all = me.addresses.clone().into_iter().chain(others.filter_map(first));
        let all: Vec<String> = all.take(ADDRESSES_MAX).map(|address| address.to_string()).collect();
        if all.is_empty() {
            return Err(Failure::new("inviting a server", "no server has an address for others")
                .mend("name one with --address, or set listen in cell.toml"));
        }
        Ok(all)
    }
}

/// Lists all invitations.
pub(super) fn list(options: &CellOptions) -> Result<ExitCode, Failure> {
    const DOING: &str = "listing invitations";
    let client = CellClient::open(options, refused)?;
    let mut all: Vec<Invitation> = Vec::new();
    loop {
        let after = all.last().map_or(0, |one| one.number);
        let call = Call::Cell(CellCall::Invitations { after, max: AT_ONCE });
        let Answer::Invitations { invitations, end } = client.ask(DOING, call)? else {
            return Err(odd(DOING));
        };
        let is_last = end || invitations.is_empty();
        all.extend(invitations);
        if is_last {
            break;
        }
    }
    let now = now();
    if options.json {
        for one in &all {
            let used: Vec<_> = one
                .used
                .iter()
                .map(
                    |used| json!({ "name": used.name, "key": used.key.to_string(), "at": used.at }),
                )
                .collect();
            show::json(&json!({
                "number": one.number, "name": one.name, "roles": one.roles.to_string(),
                "uses": one.uses, "used": used, "since": one.since, "until": one.until,
                "by": one.by.0, "state": state(one, now),
            }));
        }
        return Ok(ExitCode::SUCCESS);
    }
    let rows = all
        .iter()
        .map(|one| {
            let used: Vec<&str> = one.used.iter().map(|used| used.name.as_str()).collect();
            let left = u64::try_from(one.until - now).unwrap_or(0);
            vec![
                one.number.to_string(),
                state(one, now).to_owned(),
                one.roles.to_string(),
                if one.name.is_empty() { "any".to_owned() } else { one.name.clone() },
                format!("{} of {}", one.used.len(), one.uses),
                used.join(", "),
                if left > 0 { show::duration(left) } else { String::new() },
            ]
        })
        .collect();
    let titles = ["number", "state", "roles", "name", "used", "servers", "left"];
    println!("{}", show::table(&titles, &[0], rows));
    Ok(ExitCode::SUCCESS)
}

fn state(one: &Invitation, now: i64) -> &'static str {
    if one.used.len() >= one.uses as usize {
        "used"
    } else if one.until <= now {
        "ended"
    } else {
        "open"
    }
}

fn now() -> i64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs().cast_signed())
}

/// Ends an invitation.
pub(super) fn end(options: &CellOptions, number: u64) -> Result<ExitCode, Failure> {
    let client = CellClient::open(options, refused)?;
    let doing = format!("ending invitation {number}");
    client.ask(&doing, Call::Cell(CellCall::Uninvite { number }))?;
    show::answer(
        options.json,
        &json!({ "number": number }),
        format_args!("{number}: lets no server in any more"),
    );
    Ok(ExitCode::SUCCESS)
}

fn refused(doing: &str, error: &CallError) -> Failure {
    let mend = match error.fault() {
        Some(Fault::NotPermitted) => "only members of system:administrators may",
        Some(Fault::NotFound) => "'rialto cell invitations' shows the numbers",
        Some(Fault::Conflict) => "a server has that name: choose another with --name",
        Some(Fault::NoSpace) => "there are 256: end some with 'rialto cell uninvite'",
        Some(Fault::Invalid) => "30 days is the longest time",
        Some(Fault::Unsupported) => "the server is older than invitations, or has no database",
        Some(Fault::CellAway) => CELL_AWAY,
        _ => return Failure::new(doing, error),
    };
    Failure::new(doing, error).mend(mend)
}
