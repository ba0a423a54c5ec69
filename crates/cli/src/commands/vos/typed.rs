//! Arguments as verbs take them: a volume, a place, a size, by options or by words without them.

use clap::Args;
use local::failure::Failure;
use types::{Name, VolumeId, VolumeKind, WhichVolume, is_volume_name};

/// The server and partition as typed.
#[derive(Args, Clone, Debug, Default)]
pub struct TypedSite {
    /// The server: its name, address or id; may be left out.
    #[arg(long, value_name = "MACHINE")]
    pub server: Option<String>,
    /// The partition, such as vicep (as 'rialto vos partinfo' shows it); may be left out.
    #[arg(long, value_name = "PARTITION")]
    pub partition: Option<String>,
}

/// A volume.
#[derive(Args, Debug)]
pub struct TypedVolume {
    /// The volume's name or number.
    #[arg(long, value_name = "VOLUME")]
    id: Option<String>,
    /// VOLUME, instead of the option.
    #[arg(value_name = "VOLUME", num_args = 0..=1)]
    words: Vec<String>,
}

/// A volume, and its site.
#[derive(Args, Clone, Debug)]
pub struct SitedVolume {
    #[command(flatten)]
    site: TypedSite,
    /// The volume's name or number.
    #[arg(long, value_name = "VOLUME")]
    id: Option<String>,
    /// [[SERVER] PARTITION] VOLUME, instead of the options.
    #[arg(value_name = "VOLUME", num_args = 0..=3)]
    words: Vec<String>,
}

/// The partitions of a verb: of all servers, of one, or a single one.
#[derive(Args, Debug)]
pub struct TypedPlace {
    #[command(flatten)]
    site: TypedSite,
    /// [SERVER] PARTITION, instead of the options.
    #[arg(value_name = "SERVER", num_args = 0..=2)]
    words: Vec<String>,
}

impl TypedVolume {
    pub(crate) fn name(self) -> Result<String, Failure> {
        last_word(&mut TypedSite::default(), self.words, self.id, "a volume")
    }
}

impl SitedVolume {
    /// The volume's name or number, and its site.
    pub(crate) fn parts(mut self) -> Result<(String, TypedSite), Failure> {
        Ok((last_word(&mut self.site, self.words, self.id, "a volume")?, self.site))
    }
}

impl TypedPlace {
    pub(crate) fn site(mut self) -> TypedSite {
        place(&mut self.site, self.words);
        self.site
    }
}

/// Parses a volume's number or name.
pub(crate) fn which(text: &str) -> Result<WhichVolume, Failure> {
    match text.parse() {
        Ok(0) | Err(_) => name(text).map(WhichVolume::Name),
        Ok(number) => Ok(WhichVolume::Id(VolumeId(number))),
    }
}

/// Parses a volume's name.
pub(crate) fn name(text: &str) -> Result<Name, Failure> {
    let good = text.bytes().all(|byte| byte.is_ascii_graphic());
    Name::new(text.as_bytes()).ok().filter(|_| good).ok_or_else(|| {
        Failure::new(format!("the name {text:?}"), "that cannot be a volume's name")
            .mend("use letters, digits, dots, hyphens and underscores")
    })
}

/// The name of a read-write volume that `what` makes.
pub(crate) fn read_write_name(what: &str, text: &str) -> Result<Name, Failure> {
    let valid = name(text)?;
    if is_volume_name(valid.as_bytes(), VolumeKind::ReadWrite) {
        return Ok(valid);
    }
    Err(Failure::new(what, "that cannot be a volume's name").mend(
        "use letters, digits, dots, hyphens and underscores; not only digits, no .backup, \
            .readonly or .snapshot at the end",
    ))
}

/// One word alone is a server, unless it has the form of a partition.
pub(crate) fn place(site: &mut TypedSite, words: Vec<String>) {
    let alone = words.len() == 1;
    for (at, word) in words.into_iter().enumerate() {
        if at == 1 || alone && word.starts_with('/') {
            site.partition.get_or_insert(word);
        } else {
            site.server.get_or_insert(word);
        }
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
pub(crate) fn quota(text: &str) -> Result<u64, String> {
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
