//! `rialto cell sign`: signs a server's certificate where the key of the authority is off line.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, SystemTime};

use keys::{CellKeys, SignOrder};
use local::failure::{Doing, Failure};
use local::show;
use serde_json::json;

pub(super) const SIGN_HELP: &str = "\
EXAMPLES
    rialto keys authority --move-to /media/stick       on the server that has it
    rialto cell sign /media/stick/server.request --authority /media/stick \\
        --out /media/stick/signed
    rialto keys accept /media/stick/signed             on the server that asked

It needs no server and no network. The file of the request says the name and the roles:
compare them, and the key, with what 'rialto keys list' prints on that server. The key counts
when the cell's database lists it, which the certificate alone does not decide.";

const DAY: Duration = Duration::from_secs(24 * 3600);

#[derive(clap::Args, Debug)]
pub(super) struct SignOptions {
    /// The request: keys/server.request of the server that asks
    request: PathBuf,
    /// The directory with ca.key and ca.pem.
    #[arg(long, value_name = "DIR")]
    authority: PathBuf,
    /// Where the signed certificate goes.
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
    /// How long the certificate is valid.
    #[arg(long, value_name = "DAYS", default_value_t = 90,
        value_parser = clap::value_parser!(u16).range(1..=825))]
    days: u16,
}

impl SignOptions {
    pub(super) fn run(&self, json: bool) -> Result<ExitCode, Failure> {
        let what = || format!("signing {}", self.request.display());
        let order = SignOrder::read(&self.request).doing(what)?;
        let key = order.key().doing(what)?;
        let life = DAY * u32::from(self.days);
        let keys = CellKeys::of(&self.authority);
        let signed = order.sign(&keys, life, SystemTime::now()).doing(what)?;
        signed.write(&self.out).doing(what)?;
        show::answer(
            json,
            &json!({
                "cell": order.cell, "server": order.server, "roles": order.roles,
                "hosts": order.hosts, "key": key.to_string(), "days": self.days,
            }),
            format_args!(
                "signed for {} days: server {} of {}, roles {}, names {}\nkey {key}",
                self.days,
                order.server,
                order.cell,
                order.roles,
                order.hosts.join(", ")
            ),
        );
        Ok(ExitCode::SUCCESS)
    }
}
