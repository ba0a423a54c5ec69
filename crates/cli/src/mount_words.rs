//! Options of a mount as mount(8), fstab and `rialto mount -o` write them: words between commas.
//!
//! Some the kernel applies ([`mount::MountOptions`]), some are those of `rialto mount` without the
//! dashes, and some are for mount(8), systemd or the administrator alone. Any other is an error
//! that names it: an option that is misspelt must not be silently left out.

use std::time::Duration;

use local::failure::Failure;
use mount::{AccessTimes, MountOptions};

/// Words for mount(8), systemd and other readers of fstab, and those that every mount has.
const OF_OTHERS: [&str; 25] = [
    "defaults",
    "auto",
    "noauto",
    "user",
    "nouser",
    "users",
    "owner",
    "group",
    "_netdev",
    "nofail",
    "async",
    "nosuid",
    "nodev",
    "silent",
    "loud",
    "mand",
    "nomand",
    "iversion",
    "noiversion",
    "lazytime",
    "nolazytime",
    "allow_other",
    "default_permissions",
    "comment",
    "remount",
];

/// The same with a value; what the table of mounts shows of a FUSE mount comes back at a remount.
const OF_OTHERS_WITH_VALUE: [&str; 11] = [
    "user", "comment", "uhelper", "helper", "user_id", "group_id", "max_read", "fd", "rootmode",
    "fsname", "subtype",
];

const LABELS: [&str; 4] = ["context", "fscontext", "defcontext", "rootcontext"];

/// The options of one mount.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MountWords {
    /// An existing mount is to be changed.
    pub remount: bool,
    /// Options of `rialto mount`, by their long names without dashes, with their values.
    pub own: Vec<(String, Option<String>)>,
    /// The words that the kernel applies, in their order.
    kernel: Vec<String>,
    /// How long a program waits for a server that is away; `None`: for ever.
    pub patience: Option<Duration>,
}

impl MountWords {
    /// Parses the words.
    ///
    /// # Errors
    /// Names the first word that is no option.
    pub fn parse(text: &[String]) -> Result<MountWords, Failure> {
        let mut all = MountWords::default();
        let words: Vec<String> = text.iter().flat_map(|text| split(text)).collect();
        words.iter().filter(|word| !word.is_empty()).try_for_each(|word| all.take(word))?;
        Ok(all)
    }

    fn take(&mut self, word: &str) -> Result<(), Failure> {
        let (name, value) =
            word.split_once('=').map_or((word, None), |(name, value)| (name, Some(value)));
        let own = |value: Option<&str>| (name.replace('_', "-"), value.map(str::to_owned));
        match (name, value) {
            (name, _) if name.starts_with("x-") || name.starts_with("X-") => {}
            ("remount", None) => self.remount = true,
            (name, None) if OF_OTHERS.contains(&name) => {}
            (name, Some(_)) if OF_OTHERS_WITH_VALUE.contains(&name) => {}
            _ if apply(&mut MountOptions::default(), word) => self.kernel.push(word.to_owned()),
            ("suid" | "dev", None) => {
                return Err(refuse(
                    word,
                    "a server must not give programs with the rights of \
                    others, or devices, to its clients",
                ));
            }
            ("hard", None) => self.patience = None,
            ("soft", Some(seconds)) => self.patience = Some(patience(seconds)?),
            ("encrypt" | "flat" | "keep" | "dynroot" | "clear", None) => self.own.push(own(None)),
            (
                "cell" | "volume" | "keeper" | "cache" | "cache-dir" | "cache_dir" | "cache-size"
                | "cache_size" | "dir" | "cells" | "cellservdb" | "name-server" | "name_server"
                | "transport",
                Some(value),
            ) if !value.is_empty() => self.own.push(own(Some(value))),
            _ => {
                return Err(refuse(word, "there is no such option")
                    .mend("'rialto mount --help' has all of them"));
            }
        }
        Ok(())
    }

    /// Applies the kernel's words to these options.
    pub fn change(&self, options: &mut MountOptions) {
        for word in &self.kernel {
            let is_known = apply(options, word);
            debug_assert!(is_known, "only known words are collected");
        }
    }
}

/// Seconds of `soft=SECONDS`.
///
/// # Errors
/// If it is no number above zero.
pub fn patience(text: &str) -> Result<Duration, Failure> {
    match text.parse::<u32>() {
        Ok(seconds) if seconds > 0 => Ok(Duration::from_secs(u64::from(seconds))),
        _ => Err(refuse(&format!("soft={text}"), "write a number of seconds")),
    }
}

fn refuse(word: &str, why: &str) -> Failure {
    Failure::new(format!("reading the mount option '{word}'"), why)
}

/// Applies a word that the kernel knows; false: it is none.
fn apply(options: &mut MountOptions, word: &str) -> bool {
    match word {
        "ro" => options.read_only = true,
        "rw" => options.read_only = false,
        "noexec" => options.no_exec = true,
        "exec" => options.no_exec = false,
        "noatime" => options.access_times = AccessTimes::Never,
        "strictatime" => options.access_times = AccessTimes::Always,
        "atime" | "relatime" | "norelatime" | "nostrictatime" => {
            options.access_times = AccessTimes::Relative;
        }
        "nodiratime" => options.no_dir_times = true,
        "diratime" => options.no_dir_times = false,
        "nosymfollow" => options.no_symlinks = true,
        "symfollow" => options.no_symlinks = false,
        word => match word.split_once('=') {
            Some((name, value)) if LABELS.contains(&name) && !value.is_empty() => {
                options.labels.retain(|(other, _)| other != name);
                options.labels.push((name.to_owned(), value.to_owned()));
            }
            _ => return false,
        },
    }
    true
}

/// Words between commas; a comma between quotation marks is a part of its word.
fn split(text: &str) -> Vec<String> {
    let (mut words, mut quoted) = (vec![String::new()], false);
    for letter in text.chars() {
        match letter {
            '"' => quoted = !quoted,
            ',' if !quoted => words.push(String::new()),
            other => words.last_mut().expect("there is one from the start").push(other),
        }
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Result<MountWords, Failure> {
        MountWords::parse(&[text.to_owned()])
    }

    #[test]
    fn words_of_mount_and_of_fstab_are_accepted() {
        let words = of("rw,nosuid,nodev,noexec,noatime,_netdev,nofail,x-systemd.automount,\
            allow_other,ro,cache=/c,flat,soft=30,context=\"u:r:t:s0:c1,c2\"")
        .unwrap();
        let mut options = MountOptions::default();
        words.change(&mut options);
        assert!(options.read_only && options.no_exec);
        assert_eq!(options.access_times, AccessTimes::Never);
        assert_eq!(options.labels, [("context".to_owned(), "u:r:t:s0:c1,c2".to_owned())]);
        assert_eq!(words.patience, Some(Duration::from_secs(30)));
        assert_eq!(
            words.own,
            [("cache".to_owned(), Some("/c".to_owned())), ("flat".to_owned(), None)]
        );
        assert!(!words.remount && of("remount,rw").unwrap().remount);
        assert_eq!(of("soft=5,hard").unwrap().patience, None);
    }

    #[test]
    fn an_unknown_word_is_named() {
        for word in ["nosiud", "soft", "soft=x", "soft=0", "cell=", "suid", "dev", "sync", "ro=1"] {
            let failure = of(&format!("rw,{word},noexec")).unwrap_err().to_string();
            assert!(failure.contains(&format!("'{word}'")), "{failure}");
        }
    }
}
