//! Calls about a whole volume, and about the server.

use serde_json::json;
use store::{VolumeFacts, VolumeQuota};
use types::{Answer, Caller, Fault, Fid, PrincipalId, SessionId, VolumeId, VolumeStatus};

use super::CallOutcome;
use crate::Vice;
use crate::change::Change;
use crate::service::CallContext;
use crate::volumes::ViceVolume;

/// Volumes in a report at most: it is one message.
const VOLUMES_REPORTED_MAX: usize = 100;
/// Sessions in a report at most: it is one message.
const SESSIONS_REPORTED_MAX: usize = 200;

impl Vice {
    pub(super) fn volume_status(&self, fid: Fid) -> Result<CallOutcome, Fault> {
        let volume = self.volume(fid.volume)?;
        let status = self.status_with(&volume, volume.store.quota())?;
        Ok(CallOutcome::Answer(Answer::Volume(status)))
    }

    fn status_with(&self, volume: &ViceVolume, quota: VolumeQuota) -> Result<VolumeStatus, Fault> {
        let (usage, space) = (volume.store.usage(), volume.partition.space()?);
        Ok(VolumeStatus {
            quota_bytes: quota.bytes,
            quota_files: quota.files,
            used_bytes: usage.bytes,
            used_files: usage.files,
            partition_bytes: space.total_bytes,
            partition_free_bytes: space.free_bytes,
        })
    }

    /// A quota below the usage is allowed: the volume then cannot grow.
    pub(super) fn set_quota(
        &self,
        ask: &mut CallContext<'_>,
        fid: Fid,
        bytes: u64,
        files: u64,
    ) -> Result<CallOutcome, Fault> {
        let volume = self.volume(fid.volume)?;
        volume.need_writable()?;
        self.need_all_back(ask, fid.volume)?;
        let quota = VolumeQuota { bytes, files };
        let mut change = Change::new(&volume);
        change.update.set_quota(quota);
        let answer = Answer::Volume(self.status_with(&volume, quota)?);
        self.commit(ask, change, answer)
    }

    pub(super) fn scrub_report(&self, start: bool) -> Result<CallOutcome, Fault> {
        let hook = self.scrub.lock();
        let hook = hook.as_ref().ok_or(Fault::Unsupported)?;
        Ok(CallOutcome::Answer(Answer::Report(hook(start))))
    }

    /// Sizes of tables and counts of calls, as JSON.
    pub(super) fn report(&self, ask: &CallContext<'_>) -> Result<String, Fault> {
        let Caller { uid, gid, who, groups } = ask.caller;
        let you = json!({
            "uid": uid,
            "gid": gid,
            "groups": groups.as_deref().unwrap_or_default(),
            "level": format!("{:?}", who.level).to_lowercase(),
        });
        if !who.level.is_proved() {
            // An anonymous caller gets no more, so no more is gathered.
            return Ok(json!({ "you": you }).to_string());
        }
        let core = self.core.lock();
        let counts = core.leases.counts();
        let (queued, pending, grace) =
            (core.queue.len(), core.pending.len(), !core.leases.may_change());
        let parked = core.parked.len();
        drop(core);
        let listed = self
            .partitions
            .iter()
            .map(|partition| partition.volumes().list(VolumeId(0), VOLUMES_REPORTED_MAX));
        let listed: Vec<_> = listed.collect::<Result<_, _>>().unwrap_or_else(|error| {
            tracing::error!(%error, "the volumes cannot be listed; the report contains none");
            Vec::new()
        });
        let volumes: Vec<_> =
            listed.iter().flatten().take(VOLUMES_REPORTED_MAX).map(volume_report).collect();
        let calls: serde_json::Map<_, _> = self
            .counters
            .snapshot()
            .into_iter()
            .map(|(name, count)| (name.to_owned(), count.into()))
            .collect();
        let partitions: Vec<_> = self.partitions.by_name().map(partition_report).collect();
        let mut report = json!({
            "you": you,
            "partitions": partitions,
            "sessions": counts.sessions,
            "promises": counts.promises,
            "promised_files": counts.promised_files,
            "held_files": counts.held_files,
            "holds": counts.holds,
            "nobody_sessions": counts.anonymous_sessions,
            "bounds_met": {
                "promises": counts.limits_met.all,
                "promises_per_session": counts.limits_met.sessions,
                "promises_per_host": counts.limits_met.hosts,
                "locks": counts.limits_met.locks,
                "holds": counts.limits_met.holds,
            },
            "locks": counts.locks,
            "lock_waits": counts.lock_waits,
            "changes_waiting_for_breaks": pending,
            "calls_waiting_for_grace": queued,
            "delegations": counts.delegations,
            "delegated_children": counts.delegated_children,
            "calls_waiting_for_delegations": parked,
            "grace": grace,
            "volumes": volumes,
            "calls": calls,
            "refusals": self.refusals.report(),
        });
        // Only administrators see the other callers.
        let fields = report
            .as_object_mut()
            .filter(|_| ask.caller.is_superuser() || self.is_chief(ask.caller));
        if let Some(fields) = fields {
            fields.insert("who".to_owned(), self.sessions_report());
        }
        Ok(report.to_string())
    }

    fn is_chief(&self, caller: &Caller) -> bool {
        caller.who.level.is_proved() && self.cps(caller).is_ok_and(|cps| cps.is_administrator())
    }

    /// Sessions, and the callers of each.
    fn sessions_report(&self) -> serde_json::Value {
        let core = self.core.lock();
        let mut sessions: Vec<_> = core.slots.actors();
        sessions.sort_unstable_by_key(|(session, _)| *session);
        let one = |(session, actors): &(SessionId, Vec<Caller>)| {
            let client =
                core.leases.owner(*session).map(|(client, _)| format!("{:032x}", client.0));
            let users: Vec<_> = actors.iter().map(user_report).collect();
            json!({ "session": session.0, "client": client, "users": users })
        };
        sessions.iter().take(SESSIONS_REPORTED_MAX).map(one).collect()
    }
}

/// Includes the reason if the partition accepts no more changes.
fn partition_report((name, partition): (&str, &store::Partition)) -> serde_json::Value {
    json!({ "name": name, "stopped": partition.stopped() })
}

fn user_report(caller: &Caller) -> serde_json::Value {
    let who = caller.who;
    let token = (who.token != 0).then(|| format!("{:032x}", who.token));
    json!({
        "uid": (who.level.is_proved() && who.token == 0).then_some(caller.uid),
        "principal": (who.principal != PrincipalId::ANONYMOUS).then_some(who.principal.0),
        "level": format!("{:?}", who.level).to_lowercase(), "host": who.host, "token": token,
    })
}

fn volume_report(volume: &VolumeFacts) -> serde_json::Value {
    let VolumeFacts { usage, quota, .. } = volume;
    json!({
        "id": volume.id.0,
        "name": String::from_utf8_lossy(volume.name.as_bytes()),
        "used_bytes": usage.bytes,
        "used_files": usage.files,
        "quota_bytes": quota.bytes,
        "quota_files": quota.files,
    })
}
