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
    toname: Option<String>,
    /// The server of the copy.
    #[arg(long, value_name = "MACHINE")]
    toserver: Option<String>,
    /// The partition of the copy.
    #[arg(long, value_name = "PARTITION")]
    topartition: Option<String>,
    /// VOLUME, or VOLUME FROMSERVER FROMPARTITION NAME SERVER PARTITION, instead of the options.
    #[arg(value_name = "VOLUME", num_args = 0..=6)]
    words: Vec<String>,
}

impl Copy {
    pub(crate) fn run(mut self, context: &VosContext) -> Result<(), Failure> {
        if self.words.len() == 6 {
            let rest = self.words.split_off(1);
            // The cell knows where the volume is.
            if let [_, _, name, server, partition] = &rest[..] {
                self.toname.get_or_insert_with(|| name.clone());
                self.toserver.get_or_insert_with(|| server.clone());
                self.topartition.get_or_insert_with(|| partition.clone());
            }
        }
        let wanted = last_word(&mut TypedSite::default(), self.words, self.id, "a volume")?;
        let Some(toname) = self.toname else {
            return Err(Failure::new("reading the command", "the copy's name is missing")
                .mend("name it with -toname")
                .wrong_usage());
        };
        let what = format!("copying the volume {wanted} to {toname}");
        let to = read_write_name(&what, &toname)?;
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
            println!("Volume {wanted} copied to {toname} on {server} {}", spot.partition.name);
        }
        Ok(())
    }
}
