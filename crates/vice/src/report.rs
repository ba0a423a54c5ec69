//! The server's report: sizes of tables and counts of calls, as JSON.

use serde_json::json;
use store::{HealthReport, VolumeFacts};
use types::{Caller, Fault, PrincipalId, SessionId, VolumeId};

use crate::audit::Audit;
use crate::base::CallCounters;
use crate::call::CallContext;
use crate::cell::Identities;
use crate::sessions::{Coherence, Requests};
use crate::volumes::Partitions;

/// Volumes in a report at most: it is one message.
const VOLUMES_REPORTED_MAX: usize = 100;
/// Sessions in a report at most: it is one message.
const SESSIONS_REPORTED_MAX: usize = 200;

/// The parts that are reported.
pub(crate) struct Reported<'a> {
    pub partitions: &'a Partitions,
    pub coherence: &'a Coherence,
    pub requests: &'a Requests,
    pub counters: &'a CallCounters,
    pub audit: &'a Audit,
    pub identities: &'a Identities,
}

/// Sizes of tables and counts of calls, as JSON.
pub(crate) fn report(of: &Reported<'_>, ask: &CallContext<'_>) -> Result<String, Fault> {
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
    let leases = of.coherence.leases();
    let (counts, grace) = (leases.counts(), !leases.may_change());
    drop(leases);
    let pending = of.coherence.pending_changes();
    let (queued, parked) = of.requests.waiting();
    let listed = of
        .partitions
        .iter()
        .map(|partition| partition.volumes().list(VolumeId(0), VOLUMES_REPORTED_MAX));
    let listed: Vec<_> = listed.collect::<Result<_, _>>().unwrap_or_else(|error| {
        tracing::error!(%error, "the volumes cannot be listed; the report contains none");
        Vec::new()
    });
    let volumes: Vec<_> =
        listed.iter().flatten().take(VOLUMES_REPORTED_MAX).map(volume_report).collect();
    let calls: serde_json::Map<_, _> = of
        .counters
        .snapshot()
        .into_iter()
        .map(|(name, count)| (name.to_owned(), count.into()))
        .collect();
    let partitions: Vec<_> = of.partitions.by_name().map(partition_report).collect();
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
            "opens": counts.limits_met.opens,
        },
        "locks": counts.locks,
        "lock_waits": counts.lock_waits,
        "opens": counts.opens,
        "changes_waiting_for_breaks": pending,
        "calls_waiting_for_grace": queued,
        "delegations": counts.delegations,
        "delegated_children": counts.delegated_children,
        "calls_waiting_for_delegations": parked,
        "grace": grace,
        "volumes": volumes,
        "calls": calls,
        "refusals": of.audit.refusals(),
    });
    // Only administrators see the other callers.
    let fields = report
        .as_object_mut()
        .filter(|_| ask.caller.is_superuser() || is_chief(of.identities, ask.caller));
    if let Some(fields) = fields {
        fields.insert("who".to_owned(), sessions_report(of));
    }
    Ok(report.to_string())
}

fn is_chief(identities: &Identities, caller: &Caller) -> bool {
    caller.who.level.is_proved() && identities.cps(caller).is_ok_and(|cps| cps.is_administrator())
}

/// Sessions, and the callers of each.
fn sessions_report(of: &Reported<'_>) -> serde_json::Value {
    let mut sessions = of.requests.actors();

    sessions.sort_unstable_by_key(|(session, _)| *session);
    let leases = of.coherence.leases();
    let one = |(session, actors): &(SessionId, Vec<Caller>)| {
        let client =
            leases.sessions().owner(*session).map(|(client, _)| format!("{:032x}", client.0));
        let users: Vec<_> = actors.iter().map(user_report).collect();
        json!({ "session": session.0, "client": client, "users": users })
    };
    sessions.iter().take(SESSIONS_REPORTED_MAX).map(one).collect()
}

/// Includes the reason if the partition accepts no more changes, and the health of its disk (PH-2).
fn partition_report((name, partition): (&str, &store::Partition)) -> serde_json::Value {
    let HealthReport { state, since, errors, slow_flushes, last_error } = partition.health();
    let health = json!({
        "state": state.word(), "since": since.secs, "errors": errors,
        "slow_flushes": slow_flushes, "last_error": last_error,
    });
    let (stopped, format) = (partition.stopped(), partition.format());
    json!({ "name": name, "stopped": stopped, "format": format, "health": health })
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
