//! The effective identity that a server uses for a caller.

use std::sync::Arc;

use serde_json::Value;

/// The caller's identity in a server's report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EffectiveIdentity {
    ids: Ids,
    level: String,
}

/// A user and its groups, for the check of mode bits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ids {
    /// The user.
    pub uid: u32,
    /// The user's primary group.
    pub gid: u32,
    /// The supplementary groups.
    pub groups: Arc<[u32]>,
}

impl EffectiveIdentity {
    /// From a server's report; `None`: the report has no identity, as that of an older server.
    pub fn of(report: &str) -> Option<EffectiveIdentity> {
        let you = &serde_json::from_str::<Value>(report).ok()?["you"];
        let number = |value: &Value| value.as_u64().and_then(|number| u32::try_from(number).ok());
        let groups = you["groups"].as_array().into_iter().flatten().filter_map(number).collect();
        let ids = Ids { uid: number(&you["uid"])?, gid: number(&you["gid"])?, groups };
        Some(EffectiveIdentity { ids, level: you["level"].as_str()?.to_owned() })
    }

    /// The ids for the check of mode bits.
    pub fn ids(&self) -> &Ids {
        &self.ids
    }

    /// Does the server accept the user numbers of this machine? Valid for a report to the machine's
    /// superuser without token.
    pub fn is_trusted(&self) -> bool {
        !matches!(&*self.level, "nobody" | "enrolling")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_has_the_callers_identity() {
        let said = EffectiveIdentity::of(
            r#"{"server":{},"you":{"uid":65534,"gid":7,"groups":[8,9],"level":"nobody"}}"#,
        )
        .unwrap();
        assert_eq!(
            (said.is_trusted(), said.ids()),
            (false, &Ids { uid: 65534, gid: 7, groups: [8, 9].into() })
        );
        assert!(
            EffectiveIdentity::of(r#"{"you":{"uid":0,"gid":0,"level":"named"}}"#)
                .unwrap()
                .is_trusted()
        );
        let enrolling = r#"{"you":{"uid":65534,"gid":65534,"level":"enrolling"}}"#;
        assert!(
            !EffectiveIdentity::of(enrolling).unwrap().is_trusted(),
            "a server whose key is not listed is served as nobody"
        );
        for none in ["", "{}", r#"{"you":{"uid":-1,"gid":0,"level":"named"}}"#, r#"{"you":null}"#] {
            assert_eq!(EffectiveIdentity::of(none), None, "{none}");
        }
    }
}
