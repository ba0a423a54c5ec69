//! The health of partitions' disks, from the report of their server (`docs/spec/health.md`).

use serde_json::Value;
use types::Timestamp;

use super::context::is_well;
use super::iso;

/// How a disk ails, from the health that the server's report gives; `None`: it is well, or the
/// server is of a version that does not observe it.
pub fn ailment(health: &Value) -> Option<String> {
    let state = health["state"].as_str().filter(|_| !is_well(health))?;
    let since = iso(Timestamp::new(health["since"].as_i64().unwrap_or(0), 0));
    let why = match health["last_error"].as_str().filter(|error| !error.is_empty()) {
        Some(error) => format!("{} errors, the last: {error}", health["errors"]),
        None => format!("{} of the last 64 flushes took above 1 s", health["slow_flushes"]),
    };
    Some(format!("{state} since {since}: {why}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::context::health_of;
    use super::*;

    #[test]
    fn ph2_ailments_have_their_time_and_cause() {
        let of = |state, errors, error| {
            json!({
                "state": state, "since": 86400, "errors": errors, "slow_flushes": 21,
                "last_error": error,
            })
        };
        let report = json!({ "partitions": [{ "name": "/vicepa", "health": of("well", 0, "") },
            { "name": "/vicepb", "health": of("failing", 2, "read_at: EIO") },
            { "name": "/vicepc", "health": of("slow", 0, "") }, { "name": "/vicepd" }] });
        let said = |name| ailment(&health_of(&report, name));
        assert_eq!(said("/vicepa"), None);
        assert_eq!(
            said("/vicepb").unwrap(),
            "failing since 1970-01-02T00:00:00Z: 2 errors, the last: read_at: EIO"
        );
        assert_eq!(
            said("/vicepc").unwrap(),
            "slow since 1970-01-02T00:00:00Z: 21 of the last 64 flushes took above 1 s"
        );
        assert_eq!(said("/vicepd"), None, "an older server");
        assert_eq!(ailment(&health_of(&Value::Null, "/vicepa")), None);
    }
}
