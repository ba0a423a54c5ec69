//! `vos remove` and `vos zap`.

use clap::Args;
use local::cell::VOLUME;
use local::failure::Failure;
use serde_json::json;
use types::{ServerId, VolumeCall, VolumeInfo};

use super::context::{VosContext, text};
use super::typed::{SitedVolume, which};

const AFTER_HELP: &str = "\
EXAMPLES
    rialto vos remove home.alice
    rialto vos remove -server afs1 -partition vicep -id 536870915
    rialto vos remove home.alice.backup        only this volume of its group

It disappears at once: programs that use it get errors. Its space is freed in the
background. A read-write volume takes its backup volume with it; its snapshots and its
read-only sites at other servers stay.";

const ZAP_HELP: &str = "\
EXAMPLES
    rialto vos zap vicep home.alice
    rialto vos zap -id 536870915 -backup       its backup volume too

The database is neither asked nor changed: for volumes that 'vos remove' cannot remove. Data
that never became a volume is given up with 'vos abandon'.";

/// Removes a volume.
#[derive(Args, Debug)]
#[command(after_help = AFTER_HELP)]
pub struct Remove {
    #[command(flatten)]
    volume: SitedVolume,
    /// Remove even the root of the cell's tree.
    #[arg(long)]
    force: bool,
}

/// Removes a volume without asking any database.
#[derive(Args, Debug)]
#[command(after_help = ZAP_HELP)]
pub struct Zap {
    #[command(flatten)]
    remove: Remove,
    /// Remove its backup volume too.
    #[arg(long)]
    backup: bool,
}

impl Remove {
    pub(crate) fn run(self, context: &VosContext) -> Result<(), Failure> {
        let (wanted, site) = self.volume.parts()?;
        let found = match context.found(&wanted, &site) {
            Ok(found) => found,
            Err(missing) => return finish(context, &wanted, missing),
        };
        let volume = found.volume().clone();
        let what = confirmed_action(&volume, self.force)?;
        context.lead(&what, |job| vos::remove(job, &found))?;
        if !context.dry_run {
            report(context, &volume, found.server);
        }
        Ok(())
    }
}

impl Zap {
    pub(crate) fn run(self, context: &VosContext) -> Result<(), Failure> {
        let Zap { remove: Remove { volume, force }, backup } = self;
        let (wanted, site) = volume.parts()?;
        let group = context.group(&wanted, &site)?;
        let (volume, others) = group.split_first().expect("a group has a volume");
        let of_it = others.iter().filter(|other| backup && other.kind == types::VolumeKind::Backup);
        for volume in of_it.chain([volume]) {
            let what = confirmed_action(volume, force)?;
            if context.change(&what, volume.server, VolumeCall::Remove { id: volume.id })?.is_some()
            {
                report(context, volume, volume.server);
            }
        }
        Ok(())
    }
}

/// The action for people; refuses the root of the tree without `force`.
fn confirmed_action(volume: &VolumeInfo, force: bool) -> Result<String, Failure> {
    let (name, what) = (
        text(&volume.name),
        format!("removing the volume {} ({})", text(&volume.name), volume.id.0),
    );
    if name == VOLUME && !force {
        return Err(Failure::new(what, "it is the root of the cell's tree")
            .mend("if you mean it, add -force"));
    }
    Ok(what)
}

/// Finishes an interrupted removal of a volume that no server has any more.
fn finish(context: &VosContext, wanted: &str, missing: Failure) -> Result<(), Failure> {
    let volume = which(wanted)?;
    if !context.lead(&format!("removing {wanted}"), |job| vos::finish_removal(job, &volume))? {
        return Err(missing);
    }
    local::show::answer(
        context.json,
        &json!({ "removed": wanted, "finished": true }),
        format_args!("An interrupted removal of {wanted} is now complete"),
    );
    Ok(())
}

fn report(context: &VosContext, volume: &VolumeInfo, server: ServerId) {
    let (name, server_name) = (text(&volume.name), context.server_name(server));
    if context.json {
        local::show::json(&json!({ "removed": volume.id.0, "name": name, "server": server_name }));
    } else {
        let partition = context.name_of(server, volume.partition);
        println!("Volume {} on partition {partition} server {server_name} deleted", volume.id.0);
    }
}
