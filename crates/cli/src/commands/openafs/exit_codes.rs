//! Exit codes of OpenAFS's programs, for scripts that compare them: a program that is called by
//! the name of one of them ends as that one does.

use std::ffi::OsStr;
use std::path::Path;
use std::process::ExitCode;

use local::failure::WRONG_USAGE;

use super::verbs::verbs;

/// Verbs of `vos` that end with 1 when they fail, and not with 255, as OpenAFS's program did in
/// `tests/openafs-session/recorded.txt`.
const VOS_FAILS_WITH_ONE: &[&str] =
    &["addsite", "changeloc", "delentry", "listvldb", "listvol", "lock", "move", "rename", "zap"];

/// The exit codes of a program of OpenAFS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProgramExit {
    fails: u8,
    wrong_usage: u8,
}

impl ProgramExit {
    /// Those of the program of this name with this line, which has full names; `None`: it is none
    /// of OpenAFS's suites.
    pub fn of(program: Option<&OsStr>, words: &[impl AsRef<OsStr>]) -> Option<ProgramExit> {
        let name = Path::new(program?).file_name()?.to_str()?;
        if name != "vos" {
            return ["fs", "pts"]
                .contains(&name)
                .then_some(ProgramExit { fails: 1, wrong_usage: 1 });
        }
        let verb = words
            .iter()
            .filter_map(|word| word.as_ref().to_str())
            .find(|word| verbs("vos").any(|row| row.name == *word));
        let with_one = verb.is_some_and(|verb| VOS_FAILS_WITH_ONE.contains(&verb));
        Some(ProgramExit { fails: if with_one { 1 } else { 255 }, wrong_usage: 255 })
    }

    /// OpenAFS's code for one of this program's.
    pub fn code(self, own: ExitCode) -> ExitCode {
        if own == ExitCode::SUCCESS {
            own
        } else if own == ExitCode::from(WRONG_USAGE) {
            ExitCode::from(self.wrong_usage)
        } else {
            ExitCode::from(self.fails)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_of_openafs_ends_with_its_codes() {
        let of = |line: &str, own: u8| {
            let words: Vec<&str> = line.split(' ').collect();
            let exit = ProgramExit::of(Some(OsStr::new(words[0])), &words[1..]);
            exit.map(|exit| exit.code(ExitCode::from(own)))
        };
        let some = |code: u8| Some(ExitCode::from(code));
        assert_eq!(of("/usr/sbin/vos examine nothere", 1), some(255));
        assert_eq!(of("vos listvldb nothere", 1), some(1));
        assert_eq!(of("vos --localauth listvol s z", 1), some(1));
        assert_eq!(of("vos listvol -z", 2), some(255));
        assert_eq!(of("vos create s a v", 3), some(255));
        assert_eq!(of("vos create s a v", 0), some(0));
        assert_eq!(of("pts examine nothere", 1), some(1));
        assert_eq!(of("pts zork", 2), some(1));
        assert_eq!(of("fs zork", 2), some(1));
        assert_eq!(of("rialto vos examine nothere", 1), None);
        assert_eq!(of("aklog", 1), None);
    }
}
