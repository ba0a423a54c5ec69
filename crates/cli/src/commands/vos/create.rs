//! `vos create`.

use clap::Args;
use local::failure::Failure;
use types::{Fault, VolumeId};
use vos::{Job, NewVolume};

use super::context::{LocatedVolume, VosContext};
use super::model::{AccessModel, decide_by, first_list};
use super::show;
use super::typed::{TypedSite, last_word, quota, read_write_name};

const AFTER_HELP: &str = "\
EXAMPLES
    rialto vos create home.alice
    rialto vos create -name home.alice -partition vicep -maxquota 20G
    vos create afs1 a home.alice 20000000
    rialto vos create home.alice -encrypt-at-rest -model acl -acl alice all

Without server or partition it is made where most space is free. Repeating an interrupted
command finishes it. -encrypt is about the connection, as in OpenAFS: it is always encrypted.
The root directory of the volume belongs to the server's user, with mode 755.";

/// Makes a volume.
#[derive(Args, Debug)]
#[command(after_help = AFTER_HELP)]
pub struct Create {
    #[command(flatten)]
    site: TypedSite,
    /// The volume's name.
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Limit of its size: KiB, or with a unit (20G); 0: no limit [default: 0]
    #[arg(long, value_name = "SIZE", value_parser = quota)]
    maxquota: Option<u64>,
    /// Encrypt the content of its files on the disk [default: as set at the server]
    #[arg(long, conflicts_with = "plain_at_rest")]
    encrypt_at_rest: bool,
    /// Do not encrypt it there.
    #[arg(long, alias = "noencrypt")]
    plain_at_rest: bool,
    /// Access model: mode bits, or access lists [default: posix]
    #[arg(long, value_enum, value_name = "MODEL")]
    model: Option<AccessModel>,
    /// With -model acl: names with their rights in its root, beside administrators
    #[arg(long, num_args = 2.., value_names = ["NAME", "RIGHTS"], requires = "model")]
    acl: Vec<String>,
    /// Its number, which must be unused [default: the cell's next]
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u64).range(1..u64::MAX))]
    id: Option<u64>,
    /// [[[SERVER] PARTITION] NAME [SIZE]], instead of the options.
    #[arg(value_name = "NAME", num_args = 0..=4)]
    words: Vec<String>,
}

impl Create {
    pub(crate) fn run(mut self, context: &VosContext) -> Result<(), Failure> {
        if self.words.len() == 4 {
            let size = self.words.pop().unwrap_or_default();
            self.maxquota =
                Some(quota(&size).map_err(|why| Failure::new(format!("the quota {size}"), why))?);
        }
        let wanted = last_word(&mut self.site, self.words, self.name, "a name")?;
        let what = format!("making the volume {wanted}");
        let valid = read_write_name(&what, &wanted)?;
        let spot = context.roomiest(&self.site)?;
        let new = NewVolume {
            name: valid,
            id: self.id.map(VolumeId),
            server: spot.server,
            partition: spot.partition.name.clone(),
            quota_bytes: self.maxquota.unwrap_or(0),
            owner: (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw()),
            encrypt: (self.encrypt_at_rest || self.plain_at_rest).then_some(self.encrypt_at_rest),
        };
        let is_afs = context.is_afs(spot.server);
        if is_afs && (self.model == Some(AccessModel::Posix) || !self.acl.is_empty()) {
            let why = "access lists decide in a volume of a server of AFS";
            return Err(Failure::new(what, why)
                .mend("leave -model and -acl out; 'fs setacl' sets the list of its root"));
        }
        let list = first_list(context, spot.server, self.model, &self.acl)?;
        let mut no_keys = false;
        let make = |job: &Job<'_>| {
            vos::create(job, &new)
                .inspect_err(|error| no_keys = error.fault() == Some(Fault::Offline))
        };
        let made = context.lead(&what, make).map_err(|failure| match no_keys {
            true => Failure::new(&what, "its server gets no key to encrypt it with").mend(
                "the server's log has the reason, and 'rialto keys list' there shows its keys",
            ),
            false => failure,
        });
        let Some(info) = made? else { return Ok(()) };
        let made = LocatedVolume { server: spot.server, info };
        if self.model == Some(AccessModel::Acl) && !is_afs {
            // It is empty, and mounted nowhere yet.
            decide_by(context, &what, &made, Some(&list))?;
        }
        if context.json {
            local::show::json(&show::volume_json(context, &made));
        } else {
            let server = context.server_name(made.server);
            println!(
                "Volume {} created on partition {} of {server}",
                made.id.0, spot.partition.name
            );
        }
        Ok(())
    }
}
