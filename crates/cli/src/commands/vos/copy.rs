//! `vos copy`.

use clap::Args;
use local::failure::Failure;
use vos::NewVolume;

use super::context::{LocatedVolume, VosContext};
use super::show;
use super::typed::{TypedSite, last_word, read_write_name};

const AFTER_HELP: &str = "\
EXAMPLES
    rialto vos copy home.alice -toname home.alice.test
    rialto vos copy -id home.alice -toname home.alice.test -toserver afs2 -topartition vicep

The copy is an independent volume, with a number and a history of its own, and the current
state of the other. Without server or partition it is made where most space is free.
Repeating an interrupted command finishes it.";

/// Makes a new volume of the current state of a volume.
#[derive(Args, Debug)]
#[command(after_help = AFTER_HELP)]
pub struct Copy {
    /// The volume's name or number.
    #[arg(long, value_name = "VOLUME", required_unless_present = "words")]
    id: Option<String>,
    /// The copy's name.
    #[arg(long, value_name = "NAME")]
    toname: String,
    /// The server of the copy.
    #[arg(long, value_name = "MACHINE")]
    toserver: Option<String>,
    /// The partition of the copy.
    #[arg(long, value_name = "PARTITION")]
    topartition: Option<String>,
    /// VOLUME, instead of the option.
    #[arg(value_name = "VOLUME", num_args = 0..=1)]
    words: Vec<String>,
}

impl Copy {
    pub(crate) fn run(self, context: &VosContext) -> Result<(), Failure> {
        let wanted = last_word(&mut TypedSite::default(), self.words, self.id, "a volume")?;
        let what = format!("copying the volume {wanted} to {}", self.toname);
        let to = read_write_name(&what, &self.toname)?;
        let of = context.known(&wanted)?;
        let spot =
            context.roomiest(&TypedSite { server: self.toserver, partition: self.topartition })?;
        let new = NewVolume {
            name: to,
            id: None,
            server: spot.server,
            partition: spot.partition.name.clone(),
            quota_bytes: 0,
            owner: (0, 0),
            encrypt: None,
        };
        let Some(info) = context.lead(&what, |job| vos::copy(job, &of, &new))? else {
            return Ok(());
        };
        let made = LocatedVolume { server: spot.server, info };
        if context.json {
            local::show::json(&show::volume_json(context, &made));
        } else {
            let server = context.server_name(made.server);
            println!(
                "Volume {wanted} copied to {} on {server} {}",
                self.toname, spot.partition.name
            );
        }
        Ok(())
    }
}
