//! `vos delentry`.

use clap::Args;
use local::failure::Failure;
use types::{Revised, VolumeGroup};

use super::context::{VosContext, text};
use super::typed::TypedSite;

const AFTER_HELP: &str = "\
EXAMPLES
    rialto vos delentry home.alice
    rialto vos delentry -prefix test. -dryrun       only list them
    rialto vos delentry -server afs2 -partition vicep

Only the cell's database is changed: servers keep the volumes, and 'rialto vos syncvldb'
enters them again. A group that is locked or in an operation stays.";

/// Removes the records of volumes from the database; servers keep the volumes.
#[derive(Args, Debug)]
#[command(after_help = AFTER_HELP)]
pub struct Delentry {
    /// Volumes, by name or number.
    #[arg(long, value_name = "VOLUME", num_args = 1..)]
    id: Vec<String>,
    /// All whose names begin so.
    #[arg(long, value_name = "PREFIX", conflicts_with = "id")]
    prefix: Option<String>,
    #[command(flatten)]
    site: TypedSite,
    /// The same as -id.
    #[arg(value_name = "VOLUME", conflicts_with_all = ["id", "prefix"])]
    words: Vec<String>,
}

impl Delentry {
    pub(crate) fn run(self, context: &VosContext) -> Result<(), Failure> {
        let named: Vec<String> = self.id.iter().chain(&self.words).cloned().collect();
        let by_site = self.site.server.is_some() || self.site.partition.is_some();
        let (mut groups, mut failed) = (Vec::new(), 0);
        let mut refused = |failure: Failure| {
            eprintln!("rialto vos: {failure}");
            failed += 1;
        };
        if named.is_empty() && self.prefix.is_none() && !by_site {
            return Err(Failure::new("reading the command", "a volume is missing")
                .mend("name it, or a -prefix, or a -server")
                .wrong_usage());
        }
        if named.is_empty() {
            groups = chosen(context, self.prefix.as_deref(), &self.site)?;
        }
        for name in named {
            match context.known(&name) {
                Ok(group) => groups.push(group),
                Err(failure) => refused(failure),
            }
        }
        let mut count = 0;
        for group in groups {
            let what = format!("removing the record of {}", text(&group.record.name));
            match context.lead(&what, |job| vos::forget(job, &group)) {
                Ok(()) => count += 1,
                Err(failure) => refused(failure),
            }
        }
        if context.json {
            local::show::json(&serde_json::json!({ "deleted": count, "failed": failed }));
        } else if !context.dry_run {
            println!("Deleted {count} VLDB entries");
        }
        if failed == 0 {
            return Ok(());
        }
        Err(Failure::new("removing records", format!("{failed} were not removed"))
            .mend("the lines above have the reasons"))
    }
}

fn chosen(
    context: &VosContext,
    prefix: Option<&str>,
    site: &TypedSite,
) -> Result<Vec<Revised<VolumeGroup>>, Failure> {
    let server = site.server.as_ref().map(|server| context.server(server)).transpose()?;
    let partitions = match &site.partition {
        Some(_) => {
            let names = context.spots(site)?.into_iter().map(|spot| spot.partition.name);
            Some(names.collect::<Vec<_>>())
        }
        None => None,
    };
    let is_at = |one: &types::Site| {
        server.is_none_or(|server| server == one.server)
            && partitions.as_ref().is_none_or(|names| names.contains(&one.partition))
    };
    let mut groups = Vec::new();
    context.each_group(&mut |some| {
        groups.extend(some.into_iter().filter(|seen| {
            let name = text(&seen.record.name);
            prefix.is_none_or(|prefix| name.starts_with(prefix))
                && seen.record.sites.iter().any(is_at)
        }));
        Ok(())
    })?;
    Ok(groups)
}
