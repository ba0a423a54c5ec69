//! Foreign callers, and their calls of Rialto's services.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use afsfront::{PeerCall, Refusal, Services};
use rx::RxCaller;
use types::{
    Answer, Assembly, Call, Caller, Fault, PrincipalId, PtsCall, Timestamp, VolumeCall, VolumeId,
    VolumeInfo, WhichVolume,
};

use super::callers::{self, CallerNames, ProvedIdentity};
use super::hosts::HostSession;
use super::other_servers::OtherServers;
use crate::context::ServerContext;
use crate::loopback::wall;

/// The time for which a client that does not call trusts a promise. A break that it does not
/// receive, because the network is cut, is missed for so long at most.
const PROMISED_SECONDS: u32 = 1800;

/// As [`Services::pause`].
const PAUSE: Duration = Duration::from_millis(100);

/// See the head of the file.
pub(super) struct ForeignCaller<'a> {
    pub context: &'a Arc<ServerContext>,
    pub host_session: &'a HostSession,
    pub caller: Caller,
    /// Where it calls from.
    pub host: IpAddr,
    pub servers: &'a OtherServers,
}

impl ForeignCaller<'_> {
    /// The caller with this proof, at this host.
    ///
    /// # Errors
    /// Those of looking up the user.
    pub fn of<'a>(
        context: &'a Arc<ServerContext>,
        host_session: &'a HostSession,
        names: &CallerNames,
        servers: &'a OtherServers,
        (proof, host): (&RxCaller, IpAddr),
    ) -> Result<ForeignCaller<'a>, Fault> {
        let server = ForeignCaller { context, host_session, caller: Caller::ROOT, host, servers };
        let caller = match names.identity_of(proof) {
            ProvedIdentity::Nobody => callers::nobody(host),
            ProvedIdentity::Server => return Ok(server),
            ProvedIdentity::User(name) => {
                let id = names.number_of(&name, || server.number_of(&name))?;
                match id {
                    PrincipalId::NONE => callers::nobody(host),
                    id => callers::user(id, proof, host),
                }
            }
        };
        Ok(ForeignCaller { caller, ..server })
    }

    fn number_of(&self, name: &str) -> Result<PrincipalId, Fault> {
        let call = PtsCall::Numbers { names: vec![name.to_owned()] };
        match self.ask_as_server(Call::Pts { on_behalf: None, call: Box::new(call) })? {
            Answer::Names { names, .. } => {
                Ok(names.first().map_or(PrincipalId::NONE, |(id, _)| *id))
            }
            _ => Err(Fault::Medium),
        }
    }

    /// Before a user's first call the session becomes a user's, which is recorded.
    fn prove(&self) -> Result<(), Fault> {
        if self.host_session.is_proved.load(Ordering::Acquire) {
            return Ok(());
        }
        let _one_at_a_time = self.host_session.proving.lock();
        if !self.host_session.is_proved.load(Ordering::Acquire) {
            self.context.prove_foreign(self.host_session.session())?;
            self.host_session.is_proved.store(true, Ordering::Release);
        }
        Ok(())
    }

    fn call(&self, caller: &Caller, call: Call) -> Result<Answer, Fault> {
        let origin = self.host_session.slots.begin()?;
        self.context.perform_foreign(origin, caller, call);
        self.host_session.slots.wait(origin).flatten()
    }
}

impl Services for ForeignCaller<'_> {
    fn ask(&self, call: Call) -> Result<Answer, Fault> {
        if self.caller.who.level.is_proved() {
            self.prove()?;
        }
        self.call(&self.caller, call)
    }

    fn ask_as_server(&self, call: Call) -> Result<Answer, Fault> {
        self.call(&Caller::ROOT, call)
    }

    fn ask_as_nobody(&self, call: Call) -> Result<Answer, Fault> {
        self.call(&callers::nobody(self.host), call)
    }

    fn volume(&self, id: VolumeId) -> Result<VolumeInfo, Fault> {
        let volume = WhichVolume::Id(id);
        match self.ask_as_server(Call::Volume(VolumeCall::Examine { volume }))? {
            Answer::Volumes { volumes, .. } => volumes.into_iter().next().ok_or(Fault::NoVolume),
            _ => Err(Fault::Medium),
        }
    }

    fn assemble(&self, id: VolumeId) -> Result<Box<dyn Assembly>, Fault> {
        Ok(Box::new(vice::assemble(&self.context.vice, id)?))
    }

    fn refuses_afs(&self, id: VolumeId) -> Result<bool, Fault> {
        vice::refuses_afs(&self.context.vice, id)
    }

    fn call_server(
        &self,
        to: SocketAddr,
        service: u16,
        request: &[u8],
    ) -> Result<Box<dyn PeerCall>, Refusal> {
        self.servers.call(to, service, request)
    }

    fn pause(&self) {
        std::thread::sleep(PAUSE);
    }

    fn now(&self) -> Timestamp {
        wall()
    }

    fn promised_seconds(&self) -> u32 {
        PROMISED_SECONDS
    }
}
