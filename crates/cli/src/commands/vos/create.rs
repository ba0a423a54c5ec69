//! `vos create`.

use clap::Args;
use local::failure::Failure;
use types::{Fault, VolumeId, VolumeKind, is_volume_name};
use vos::{Job, NewVolume};

use super::context::{LocatedVolume, TypedSite, VosContext, name};
use super::model::{AccessModel, decide_by, first_list};
use super::show;

const AFTER_HELP: &str = "\
EXAMPLES
    rialto vos create home.alice
    rialto vos create -name home.alice -partition b -maxquota 20G
    vos create afs1 a home.alice 20000000
    rialto vos create home.alice -encrypt -model acl -acl alice all

Without server or partition it is made where most space is free. Repeating an interrupted
command finishes it.
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
    #[arg(long, conflicts_with = "noencrypt")]
    encrypt: bool,
    /// Do not encrypt it.
    #[arg(long)]
    noencrypt: bool,
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
    /// # Errors
    /// The refusal of a server, with its remedy.
    pub fn run(mut self, context: &VosContext) -> Result<(), Failure> {
        if self.words.len() == 4 {
            let size = self.words.pop().unwrap_or_default();
            self.maxquota =
                Some(quota(&size).map_err(|why| Failure::new(format!("the quota {size}"), why))?);
        }
        let wanted = last_word(&mut self.site, self.words, self.name, "a name")?;
        let what = format!("making the volume {wanted}");
        let valid = name(&wanted)?;
        if !is_volume_name(valid.as_bytes(), VolumeKind::ReadWrite) {
            return Err(Failure::new(what, "that cannot be a volume's name").mend(
                "use letters, digits, dots, hyphens and underscores; not only digits, no .backup, \
                    .readonly or .snapshot at the end",
            ));
        }
        let spot = context.roomiest(&self.site)?;
        let new = NewVolume {
            name: valid,
            id: self.id.map(VolumeId),
            server: spot.server,
            partition: spot.partition.name.clone(),
            quota_bytes: self.maxquota.unwrap_or(0),
            owner: (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw()),
            encrypt: if self.encrypt || self.noencrypt { Some(self.encrypt) } else { None },
        };
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
        if self.model == Some(AccessModel::Acl) {
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

/// Assigns words without options: the last is the subject of the verb, before it come the partition
/// and the server.
///
/// # Errors
/// If there are too many words, or an option is given twice.
pub fn last_word(
    site: &mut TypedSite,
    mut words: Vec<String>,
    option: Option<String>,
    what: &str,
) -> Result<String, Failure> {
    let last = match (option, words.pop()) {
        (Some(option), None) => option,
        (None, Some(word)) => word,
        (Some(option), Some(word)) => {
            words.push(word);
            option
        }
        (None, None) => {
            return Err(Failure::new("reading the command", format!("{what} is missing")));
        }
    };
    if let Some(partition) = words.pop() {
        site.partition.get_or_insert(partition);
    }
    if let Some(server) = words.pop() {
        site.server.get_or_insert(server);
    }
    if words.is_empty() {
        Ok(last)
    } else {
        Err(Failure::new("reading the command", format!("{words:?} are too many arguments"))
            .mend("'--help' shows the order"))
    }
}

/// Parses a quota: `20000` (KiB), `20M`, `20G` or `1T`, into bytes.
///
/// # Errors
/// A message for the argument parser.
pub fn quota(text: &str) -> Result<u64, String> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let shift = match unit {
        "" | "K" | "k" | "KiB" => 10,
        "M" | "MiB" => 20,
        "G" | "GiB" => 30,
        "T" | "TiB" => 40,
        _ => return Err("write KiB, or a number with K, M, G or T".to_owned()),
    };
    let number: u64 =
        number.parse().map_err(|_| "write KiB, or a number with K, M, G or T".to_owned())?;
    number.checked_mul(1 << shift).ok_or_else(|| "too large".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotas_are_in_kib_unless_they_say_otherwise() {
        assert_eq!(quota("20000"), Ok(20_000 << 10));
        assert_eq!(quota("20G"), Ok(20 << 30));
        assert_eq!(quota("0"), Ok(0));
        for text in ["", "G", "-1", "5 sheep", "99999999999T"] {
            assert!(quota(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn words_are_server_partition_and_what_it_is_about() {
        let sorted = |line: &str, option: Option<&str>| {
            let mut site = TypedSite::default();
            let words = line.split_whitespace().map(str::to_owned).collect();
            let last = last_word(&mut site, words, option.map(str::to_owned), "a name").ok()?;
            Some((site.server.unwrap_or_default(), site.partition.unwrap_or_default(), last))
        };
        let owned = |server: &str, partition: &str, last: &str| {
            Some((server.into(), partition.into(), last.into()))
        };
        assert_eq!(sorted("home", None), owned("", "", "home"));
        assert_eq!(sorted("a home", None), owned("", "a", "home"));
        assert_eq!(sorted("afs1 a home", None), owned("afs1", "a", "home"));
        assert_eq!(sorted("afs1 a", Some("home")), owned("afs1", "a", "home"));
        assert_eq!(sorted("", None), None);
        assert_eq!(sorted("one afs1 a home", None), None);
    }
}
