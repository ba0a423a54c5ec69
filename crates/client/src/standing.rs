//! Who a server takes somebody for.

/// What a server says of who asks it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Standing {
    uid: u32,
    gid: u32,
    level: String,
}

impl Standing {
    /// What the report of a server says; `None`: nothing, as older ones.
    pub fn of(report: &str) -> Option<Standing> {
        let you = &serde_json::from_str::<serde_json::Value>(report).ok()?["you"];
        let number = |name: &str| you[name].as_u64().and_then(|number| u32::try_from(number).ok());
        Some(Standing { uid: number("uid")?, gid: number("gid")?, level: you["level"].as_str()?.to_owned() })
    }

    /// User and group, to mode bits.
    pub fn ids(&self) -> (u32, u32) {
        (self.uid, self.gid)
    }

    /// Whether what this machine says counts; of the machine's own superuser, who has no token.
    pub fn counts(&self) -> bool {
        self.level != "nobody"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_says_who_asks() {
        let said = Standing::of(r#"{"server":{},"you":{"uid":65534,"gid":7,"level":"nobody"}}"#).unwrap();
        assert_eq!((said.uid, said.gid, said.counts()), (65534, 7, false));
        assert!(Standing::of(r#"{"you":{"uid":0,"gid":0,"level":"named"}}"#).unwrap().counts());
        for none in ["", "{}", r#"{"you":{"uid":-1,"gid":0,"level":"named"}}"#, r#"{"you":null}"#] {
            assert_eq!(Standing::of(none), None, "{none}");
        }
    }
}
