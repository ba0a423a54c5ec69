//! How this client reaches its servers: `fs getcrypt`, `setcrypt` and `uuid`.

use std::process::ExitCode;

use clap::{Args, ValueEnum};
use local::failure::Failure;
use local::show;
use serde::Deserialize;
use serde_json::json;

use super::cache::Place;
use super::tree;

pub(super) const GETCRYPT_HELP: &str = "\
EXAMPLES
    rialto fs getcrypt

Connections to other machines are encrypted (TLS 1.3), unless the tree was mounted with
'clear' from a server that allows it.";

const SETCRYPT_HELP: &str = "\
EXAMPLES
    rialto fs setcrypt on

'on' checks that connections are encrypted. A mount without encryption is made so: 'rialto
mount --clear', where the server allows it.";

pub(super) const UUID_HELP: &str = "\
EXAMPLES
    rialto fs uuid

'rialto status --json' of a server lists its clients by this number. It belongs to the
directory of the mount's cache, and is another one for each cell.";

/// Whether connections are encrypted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum CryptLevel {
    On,
    Off,
    Auth,
    Clear,
}

/// Checks that connections to servers are encrypted.
#[derive(Args, Debug)]
#[command(after_help = SETCRYPT_HELP)]
pub struct Setcrypt {
    /// The level
    #[arg(long, value_name = "LEVEL", value_enum, ignore_case = true)]
    crypt: Option<CryptLevel>,
    /// LEVEL, instead of the option.
    #[arg(value_name = "LEVEL", value_enum, ignore_case = true, num_args = 0..=1)]
    words: Vec<CryptLevel>,
    #[command(flatten)]
    place: Place,
}

/// The attribute `rialto.connection`.
#[derive(Deserialize)]
struct Connection {
    client: Option<String>,
    encrypted: bool,
}

fn connection(place: &Place) -> Result<Connection, Failure> {
    let place = place.find()?;
    tree::ask_json(&place, "rialto.connection", "asking for the connection of the mount")
}

pub(super) fn crypt_level(place: &Place, json: bool) -> Result<ExitCode, Failure> {
    let Connection { encrypted, .. } = connection(place)?;
    let level = if encrypted { "crypt (data security)" } else { "clear" };
    show::answer(
        json,
        &json!({ "encrypted": encrypted }),
        format_args!("Security level is currently {level}."),
    );
    Ok(ExitCode::SUCCESS)
}

impl Setcrypt {
    pub(crate) fn run(self, json: bool) -> Result<ExitCode, Failure> {
        let what = "setting the encryption of connections";
        let wanted = self.crypt.or(self.words.first().copied()).ok_or_else(|| {
            Failure::new(what, "the level is missing").mend("give 'on'").wrong_usage()
        })?;
        let Connection { encrypted, .. } = connection(&self.place)?;
        match (wanted, encrypted) {
            (CryptLevel::On, true) => {
                if json {
                    show::json(&json!({ "encrypted": true }));
                }
                Ok(ExitCode::SUCCESS)
            }
            (CryptLevel::On, false) => Err(Failure::new(what, "the tree was mounted with 'clear'")
                .mend("mount it without that")),
            (CryptLevel::Off | CryptLevel::Auth | CryptLevel::Clear, _) => {
                Err(Failure::new(what, "a mount stays as it was made").mend(
                    "'rialto mount --clear' makes one in the clear, where the server lets it",
                ))
            }
        }
    }
}

pub(super) fn client_number(place: &Place, json: bool) -> Result<ExitCode, Failure> {
    let Connection { client, .. } = connection(place)?;
    let client = client.ok_or_else(|| {
        Failure::new("asking for the number of this client", "this directory is of no server")
            .mend("name a directory of a cell with -path")
    })?;
    let shown = dashed(&client);
    show::answer(json, &json!({ "client": client }), format_args!("UUID: {shown}"));
    Ok(ExitCode::SUCCESS)
}

/// 32 digits in the form of a UUID.
fn dashed(digits: &str) -> String {
    let mut shown = digits.to_owned();
    for at in [20, 16, 12, 8] {
        if shown.is_char_boundary(at) && at < shown.len() {
            shown.insert(at, '-');
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_has_the_form_of_a_uuid() {
        let digits = "00112233445566778899aabbccddeeff";
        assert_eq!(dashed(digits), "00112233-4455-6677-8899-aabbccddeeff");
        assert_eq!(dashed(""), "");
    }
}
