//! `rialto cell export`.

use std::process::ExitCode;

use local::failure::Failure;
use local::show;
use types::{ServerInfo, SiteKind, VolumeGroup};

use super::Section;
use super::entry::ExportLine;
use super::state::{People, fence_entry, groups, mandate_entry, open, rules};
use crate::commands::cell_client::CellOptions;

/// Prints the sections; none: all.
pub(super) fn run(options: &CellOptions, sections: &[Section]) -> Result<ExitCode, Failure> {
    let client = open(options)?;
    let wants = |section| sections.is_empty() || sections.contains(&section);
    let mut entries = Vec::new();
    if wants(Section::Users) || wants(Section::Groups) || wants(Section::Rules) {
        let people = People::fetch(&client)?;
        let section = |entry: &ExportLine| {
            if entry.kind == "user" { Section::Users } else { Section::Groups }
        };
        let principals = people.all.values().filter_map(|one| people.entry(one));
        entries.extend(principals.filter(|entry| wants(section(entry))));
        if wants(Section::Groups) {
            entries.extend(members(&people));
        }
        if wants(Section::Rules) {
            let (fences, mandates) = rules(&client)?;
            entries.extend(fences.iter().map(|fence| fence_entry(fence, &people)));
            entries.extend(mandates.iter().map(|mandate| mandate_entry(mandate, &people)));
        }
    }
    let servers = client.servers()?;
    if wants(Section::Servers) {
        entries.extend(servers.iter().map(server));
    }
    if wants(Section::Locations) {
        entries.extend(groups(&client)?.iter().map(|group| location(group, &servers)));
    }
    entries.sort();
    for entry in entries {
        if options.json { show::json(&entry.json()) } else { println!("{}", entry.text()) }
    }
    Ok(ExitCode::SUCCESS)
}

fn members(people: &People) -> Vec<ExportLine> {
    let of = |(group, members): (&_, &Vec<_>)| {
        let group = people.name(*group);
        let entry =
            |member: &_| ExportLine::new("member", &group).with("member", &people.name(*member));
        members.iter().map(entry).collect::<Vec<_>>()
    };
    people.members.iter().flat_map(of).collect()
}

fn server(server: &ServerInfo) -> ExportLine {
    let joined = |all: Vec<String>| (!all.is_empty()).then(|| all.join(","));
    ExportLine::new("server", &server.name)
        .with("id", &server.id)
        .with_some("addresses", joined(server.addresses.iter().map(ToString::to_string).collect()))
        .with_some("keys", joined(server.keys.iter().map(ToString::to_string).collect()))
}

fn location(group: &VolumeGroup, servers: &[ServerInfo]) -> ExportLine {
    let mut sites: Vec<String> = group
        .sites
        .iter()
        .map(|site| {
            let server = servers.iter().find(|one| one.id == site.server);
            let server = server.map_or_else(|| site.server.to_string(), |one| one.name.clone());
            let kind = match site.kind {
                SiteKind::ReadWrite => "rw",
                SiteKind::ReadOnly => "ro",
                SiteKind::Standby => "standby",
                SiteKind::AsyncStandby => "async-standby",
            };
            format!("{server}:{}:{kind}", site.partition)
        })
        .collect();
    sites.sort();
    ExportLine::new("location", String::from_utf8_lossy(group.name.as_bytes()))
        .with("id", &group.read_write.0)
        .with_some("readonly", group.read_only.map(|number| number.0))
        .with_some("backup", group.backup.map(|number| number.0))
        .with_some("sites", (!sites.is_empty()).then(|| sites.join(",")))
}
