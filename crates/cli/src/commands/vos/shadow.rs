//! `vos shadow`.

use clap::Args;
use local::failure::Failure;
use types::{Name, VolumeGroup, VolumeId, WhichVolume};
use vos::NewShadow;

use super::context::{LocatedPartition, LocatedVolume, VosContext, text};
use super::show;
use super::typed::{TypedSite, last_word, name};

const AFTER_HELP: &str = "\
EXAMPLES
    rialto vos shadow home.alice -toserver second -topartition vicep
    rialto vos shadow home.alice -toserver second -incremental       only what changed is sent
    rialto vos shadow home.alice -toserver second -toname alice.monday -offline
    rialto vos clone -server second -id home.alice.shadow -toname alice.again -readwrite

A shadow is a read-only copy of a volume at another server, for disaster recovery. The
database does not name it, so no client is sent there, and 'vos syncvldb' does not enter it.
It outlives the volume; 'vos clone -readwrite' and 'vos dump' make a volume of it. Repeating
the command brings it up to date, or finishes an interrupted one. The volume's server keeps
the state that the shadow has as NAME.base or NAME.base2, to send only what changed since:
'vos remove' removes these and the shadow.";

/// Makes a shadow of a volume at another server, or brings one up to date.
#[derive(Args, Debug)]
#[command(after_help = AFTER_HELP)]
pub struct Shadow {
    /// The volume's name or number.
    #[arg(long, value_name = "VOLUME", required_unless_present = "words")]
    id: Option<String>,
    /// The server of the shadow.
    #[arg(long, value_name = "MACHINE")]
    toserver: Option<String>,
    /// The partition of the shadow [default: where it is, or where most space is free]
    #[arg(long, value_name = "PARTITION")]
    topartition: Option<String>,
    /// The shadow's name [default: VOLUME.shadow]
    #[arg(long, value_name = "NAME")]
    toname: Option<String>,
    /// The shadow's number [default: the cell's next]
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u64).range(1..u64::MAX))]
    toid: Option<u64>,
    /// Take the shadow offline.
    #[arg(long)]
    offline: bool,
    /// VOLUME, or VOLUME FROMSERVER FROMPARTITION SERVER PARTITION, instead of the options.
    #[arg(value_name = "VOLUME", num_args = 0..=5)]
    words: Vec<String>,
}

impl Shadow {
    pub(crate) fn run(mut self, context: &VosContext) -> Result<(), Failure> {
        if self.words.len() == 5 {
            let rest = self.words.split_off(1);
            // The cell knows where the volume is.
            if let [_, _, server, partition] = &rest[..] {
                self.toserver.get_or_insert_with(|| server.clone());
                self.topartition.get_or_insert_with(|| partition.clone());
            }
        }
        let wanted = last_word(&mut TypedSite::default(), self.words, self.id, "a volume")?;
        let Some(toserver) = self.toserver else {
            return Err(Failure::new("reading the command", "the shadow's server is missing")
                .mend("name it with -toserver")
                .wrong_usage());
        };
        let toname = self.toname.as_deref().map(name).transpose()?;
        let group = context.known(&wanted)?;
        let called = text(&group.record.name);
        let site = TypedSite { server: Some(toserver), partition: self.topartition };
        let spot = self::spot(context, &group.record, site, toname.as_ref())?;
        let (server, partition) = (spot.server, spot.partition.name);
        let new = NewShadow {
            name: toname,
            number: self.toid.map(VolumeId),
            server,
            partition: partition.clone(),
            is_offline: self.offline,
        };
        let from = group.record.read_write_site().cloned();
        let number = group.record.read_write.0;
        let what = format!("shadowing the volume {called}");
        let Some(info) = context.lead(&what, |job| vos::shadow(job, group, &new))? else {
            return Ok(());
        };
        let made = LocatedVolume { server, info };
        if context.json {
            local::show::json(&show::volume_json(context, &made));
            return Ok(());
        }
        let from = from.map_or_else(String::new, |site| {
            format!(" from {} {}", context.server_name(site.server), site.partition)
        });
        println!(
            "Volume {number} shadowed{from} to {} {partition}: {} ({})",
            context.server_name(server),
            text(&made.name),
            made.id.0
        );
        Ok(())
    }
}

/// The partition of the shadow: the typed one, that which the server uses for the group already, or
/// the roomiest.
fn spot(
    context: &VosContext,
    group: &VolumeGroup,
    mut site: TypedSite,
    toname: Option<&Name>,
) -> Result<LocatedPartition, Failure> {
    if let (None, Some(typed)) = (&site.partition, &site.server) {
        let server = context.server(typed)?;
        let shadow = toname.map_or_else(
            || name(&format!("{}.shadow", text(&group.name))),
            |name| Ok(name.clone()),
        )?;
        let known = group.sites.iter().find(|one| one.server == server);
        site.partition = known.map(|one| one.partition.clone()).or_else(|| {
            let found = vos::find(&context.reach, &WhichVolume::Name(shadow), Some(server)).ok()?;
            Some(context.name_of(server, found.volume().partition))
        });
    }
    context.roomiest(&site)
}
