//! `vos convertROtoRW`.

use clap::Args;
use local::failure::Failure;
use serde_json::json;
use types::SiteKind;

use super::context::{VosContext, text};
use super::sites::needed_server;
use super::typed::SitedVolume;

const AFTER_HELP: &str = "\
EXAMPLES
    rialto vos convertROtoRW afs2 vicep home.alice
    rialto vos convertROtoRW -server afs2 -partition vicep -id home.alice
    rialto vos convertROtoRW afs2 vicep home.alice -dryrun    only check

For a volume whose server is lost: the read-only copy on the given server becomes the
read-write volume, with the state of the last release. Clients go on with it by themselves:
they send again what they had not made stable; what the lost server alone had is lost. The
volume serves after half a minute, when no client can trust the lost server any more, and has
no quota ('vos setfields -maxquota'). The copy stays a read-only site.

If the lost server comes back it does not serve the volume. 'rialto vos zap SERVER PARTITION
VOLUME' removes what it has of it. A volume whose server answers is moved: 'rialto vos move'.
Repeating an interrupted command finishes it.";

/// Makes the read-write volume of a read-only copy, because its server is lost.
#[derive(Args, Debug)]
#[command(name = "convertROtoRW", after_help = AFTER_HELP)]
pub struct ConvertRoToRw {
    #[command(flatten)]
    volume: SitedVolume,
    /// Take a copy that lacks the last release too.
    #[arg(long)]
    force: bool,
}

impl ConvertRoToRw {
    pub(crate) fn run(self, context: &VosContext) -> Result<(), Failure> {
        let (wanted, site) = self.volume.parts()?;
        let server = context.server(needed_server(&site)?)?;
        let group = context.known(&wanted)?;
        let (name, server_name) = (text(&group.record.name), context.server_name(server));
        let what = format!("converting the copy of {name} on {server_name}");
        let is_copy =
            |site: &&types::Site| site.server == server && site.kind == SiteKind::ReadOnly;
        let partition = group.record.sites.iter().find(is_copy).map(|site| site.partition.clone());
        if let (Some(named), Some(known)) = (&site.partition, &partition)
            && named.trim_start_matches('/') != known.trim_start_matches('/')
        {
            return Err(Failure::new(what, format!("its copy there is on {known}"))
                .mend(format!("name that partition: {}", known.trim_start_matches('/'))));
        }
        let taken = context.lead(&what, |job| vos::take_over(job, group, server, self.force))?;
        if context.dry_run {
            return Ok(());
        }
        let partition = partition.unwrap_or_default();
        local::show::answer(
            context.json,
            &json!({
                "volume": name, "server": server_name, "partition": partition,
                "from": taken.from.map(|from| context.server_name(from)),
                "epoch": taken.copy.epoch,
            }),
            format_args!(
                "Volume {name} is read-write on server {server_name} partition {partition}, as it \
                 was released"
            ),
        );
        Ok(())
    }
}
