//! Who a server takes somebody for.

use std::sync::Arc;

use serde_json::Value;

/// What a server says of who asks it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EffectiveIdentity {
    ids: Ids,
    level: String,
}

/// A user and his groups, as mode bits know them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ids {
    /// The user.
    pub uid: u32,
    /// His first group.
    pub gid: u32,
    /// The others.
    pub groups: Arc<[u32]>,
}

impl EffectiveIdentity {
    /// What the report of a server says; `None`: nothing, as older ones.
    pub fn of(report: &str) -> Option<EffectiveIdentity> {
        let you = &serde_json::from_str::<Value>(report).ok()?["you"];
        let number = |value: &Value| value.as_u64().and_then(|number| u32::try_from(number).ok());
        let groups = you["groups"].as_array().into_iter().flatten().filter_map(number).collect();
        let ids = Ids { uid: number(&you["uid"])?, gid: number(&you["gid"])?, groups };
        Some(EffectiveIdentity { ids, level: you["level"].as_str()?.to_owned() })
    }

    /// Who he is to mode bits.
    pub fn ids(&self) -> &Ids {
        &self.ids
    }

    /// Whether what this machine says counts; of the machine's own superuser, who has no token.
    pub fn is_trusted(&self) -> bool {
        !matches!(&*self.level, "nobody" | "enrolling")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_says_who_asks() {
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
            "a server whose key is not listed is nobody"
        );
        for none in ["", "{}", r#"{"you":{"uid":-1,"gid":0,"level":"named"}}"#, r#"{"you":null}"#] {
            assert_eq!(EffectiveIdentity::of(none), None, "{none}");
        }
    }
}
