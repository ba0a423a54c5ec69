//! Checks of a cell in the network, from a machine without its server.

use local::ask::TIMEOUT;

use super::Finding;
use crate::reach::Reach;

/// Less than this of a login is left, in seconds.
const SHORT_SECS: i64 = 600;

/// Checks that the cell answers, which user this machine is there, and its servers' partitions.
pub fn examine(way: Reach) -> Vec<Finding> {
    const CHECK: &str = "cell";
    let reached = match way.open(None, TIMEOUT) {
        Ok(reached) => reached,
        Err(failure) => {
            let mend = "check the network, the cell's servers, and the login with 'rialto tokens'";
            return vec![Finding::fail(CHECK, failure.to_string(), mend)];
        }
    };
    let mut findings =
        vec![Finding::ok(CHECK, format!("{} answers, {}", reached.name, reached.way()))];
    findings.push(login(reached.user.as_deref(), reached.login_ends));
    match reached.asking.report() {
        Ok(report) => {
            findings.extend(crate::commands::status::stopped(&report).into_iter().map(|stopped| {
                Finding::fail("partitions", stopped, "read that server's log and check the disk")
            }));
            findings.extend(crate::commands::status::unwell(&report).into_iter().map(|unwell| {
                Finding::warn("partitions", unwell, "check the disk; 'rialto vos evacuate' helps")
            }));
        }
        Err(failure) => {
            let mend = "check with 'rialto status' on its machine that it runs";
            findings.push(Finding::fail("server", failure.to_string(), mend));
        }
    }
    findings
}

fn login(user: Option<&str>, ends: Option<i64>) -> Finding {
    const CHECK: &str = "login";
    let now = crate::commands::now_secs();
    match (user, ends) {
        (Some(user), Some(ends)) if ends - now < SHORT_SECS => Finding::warn(
            CHECK,
            format!("{user}, for {} s more", (ends - now).max(0)),
            format!("'rialto login {user}' makes another"),
        ),
        (Some(user), _) => Finding::ok(CHECK, user.to_owned()),
        (None, _) => Finding::warn(
            CHECK,
            "there is no login, so little is shown",
            "'rialto login NAME' does that",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Severity;

    #[test]
    fn a_login_that_ends_soon_is_a_warning() {
        let now = crate::commands::now_secs();
        assert_eq!(login(Some("joe"), Some(now + 3600)).level, Severity::Ok);
        assert_eq!(login(Some("joe"), Some(now + 60)).level, Severity::Warn);
        assert_eq!(login(None, None).level, Severity::Warn);
    }
}
