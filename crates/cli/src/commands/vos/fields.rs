//! `vos online`, `vos offline` and `vos setfields`.

use clap::Args;
use local::failure::Failure;
use serde_json::json;
use types::{VolumeCall, VolumeChange, VolumeInfo, VolumeState};

use super::context::{LocatedVolume, VosContext, text};
use super::model::{AccessModel, set_model};
use super::typed::{SitedVolume, quota};

pub(super) const ONLINE_HELP: &str = "\
EXAMPLES
    rialto vos online home.alice
    rialto vos online -server afs1 -partition vicep -id home.alice";

pub(super) const OFFLINE_HELP: &str = "\
EXAMPLES
    rialto vos offline home.alice

Its users get errors until 'vos online'. Nothing is lost: clients send their changes first.";

const SETFIELDS_HELP: &str = "\
EXAMPLES
    rialto vos setfields home.alice -maxquota 20G
    rialto vos setfields home.alice -maxfiles 100000
    rialto vos setfields -id 536870915 -maxquota 0        no limit
    rialto vos setfields home.alice -readtimes on         stat shows when files were read
    rialto vos setfields home.alice -afs off              its clients of AFS are refused
    rialto vos setfields home.alice -model acl --dry-run  whose access would change
    rialto vos setfields home.alice -model acl
    rialto vos setfields home.alice -model acl -acl alice all system:authuser read

With -model acl access lists give the rights, and not mode bits: the root gets a list with
all rights for system:administrators, and the entries of -acl; its owner may change it. It
applies to everything below, except where there is a list from an earlier time. With -model
posix mode bits give the rights again; lists below the root stay without effect.
RIGHTS are as in 'rialto fs setacl --help'.";

/// Whether an option is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum OnOff {
    On,
    Off,
}

/// Changes the limits and options of a volume.
#[derive(Args, Debug)]
#[command(after_help = SETFIELDS_HELP)]
pub struct VosSetfields {
    #[command(flatten)]
    volume: SitedVolume,
    /// Limit of its size: KiB, or with a unit (20G); 0: no limit.
    #[arg(
        long, value_name = "SIZE", value_parser = quota,
        required_unless_present_any = ["maxfiles", "model", "readtimes", "afs"],
    )]
    maxquota: Option<u64>,
    /// Limit of its files; 0: no limit.
    #[arg(long, value_name = "COUNT")]
    maxfiles: Option<u64>,
    /// Whether reads of its files are recorded as their access times, as Linux's relatime does.
    #[arg(long, value_name = "on|off", value_parser = clap::value_parser!(OnOff))]
    readtimes: Option<OnOff>,
    /// Whether clients of AFS are served, where access lists decide.
    #[arg(long, value_name = "on|off", value_parser = clap::value_parser!(OnOff))]
    afs: Option<OnOff>,
    /// Access model: access lists, or mode bits.
    #[arg(long)]
    model: Option<AccessModel>,
    /// Entries of the first list of the root, with -model acl: names with their rights.
    #[arg(long = "acl", value_name = "NAME RIGHTS", num_args = 2.., requires = "model")]
    acl: Vec<String>,
}

fn change(
    context: &VosContext,
    volume: SitedVolume,
    what: &str,
    change: VolumeChange,
) -> Result<(), Failure> {
    let (wanted, site) = volume.parts()?;
    let LocatedVolume { server, info: VolumeInfo { id, name, .. } } =
        context.volume(&wanted, &site)?;
    let call = VolumeCall::SetFields { id, change };
    let done = context.change(&format!("{what} {}", text(&name)), server, call)?.is_some();
    if done && context.json {
        local::show::json(&json!({
            "id": id.0, "name": text(&name), "quota_bytes": change.quota_bytes,
            "quota_files": change.quota_files,
            "state": change.state.map(super::show::state), "read_times": change.read_times,
            "afs": change.afs,
        }));
    }
    Ok(())
}

pub(super) fn bring_online(volume: SitedVolume, context: &VosContext) -> Result<(), Failure> {
    let online = VolumeChange { state: Some(VolumeState::Online), ..VolumeChange::default() };
    change(context, volume, "bringing back the volume", online)
}

pub(super) fn take_offline(volume: SitedVolume, context: &VosContext) -> Result<(), Failure> {
    let offline = VolumeChange { state: Some(VolumeState::Offline), ..VolumeChange::default() };
    change(context, volume, "taking off the volume", offline)
}

impl VosSetfields {
    pub(crate) fn run(self, context: &VosContext) -> Result<(), Failure> {
        if let Some(model) = self.model {
            let (wanted, site) = self.volume.clone().parts()?;
            set_model(context, &context.volume(&wanted, &site)?, model, &self.acl)?;
            let others = [self.maxquota.is_some(), self.maxfiles.is_some(), self.afs.is_some()];
            if self.readtimes.is_none() && !others.contains(&true) {
                return Ok(());
            }
        }
        let fields = VolumeChange {
            quota_bytes: self.maxquota,
            quota_files: self.maxfiles,
            state: None,
            read_times: self.readtimes.map(|times| times == OnOff::On),
            afs: self.afs.map(|afs| afs == OnOff::On),
        };
        change(context, self.volume, "changing the fields of the volume", fields)
    }
}
