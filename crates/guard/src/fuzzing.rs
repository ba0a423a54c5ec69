//! The properties that the fuzz targets check, so that plain tests run them too (feature
//! `fuzzing`).

use types::limits::PRINCIPAL_NAME_BYTES_MAX;
use types::{VolumeKind, is_volume_name};

use crate::rules::{base_name, pattern_has};
use crate::{Acl, Network, Rights, Token, check_group_name, check_user_name};

/// Bytes that parse as a list are its one form, and its text form parses to the same list.
pub fn acl(bytes: &[u8]) {
    if let Ok(list) = Acl::decode(bytes) {
        assert_eq!(list.encode(), bytes);
        assert_eq!(Acl::parse(&list.to_string()), Ok(list));
    }
    if let Ok(text) = std::str::from_utf8(bytes)
        && let Ok(list) = Acl::parse(text)
    {
        assert_eq!(Acl::decode(&list.encode()), Ok(list.clone()));
        assert_eq!(Acl::parse(&list.to_string()), Ok(list));
    }
}

/// Bytes that parse as a token are its one form.
pub fn token(bytes: &[u8]) {
    if let Ok((token, signature)) = Token::parse(bytes) {
        let again = token.with_signature(&signature);
        assert_eq!(again, bytes);
    }
}

/// Names of users, groups, machines, rights and volumes: an accepted text has one meaning, and
/// cannot be confused with another kind. Each line is a name, a network or rights; of two lines one
/// is a pattern, and the other the name of a volume.
pub fn names(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let mut lines = text.split('\n');
    let (name, other) = (lines.next().unwrap_or_default(), lines.next().unwrap_or_default());
    name_of_somebody(name);
    if let Ok(network) = name.parse::<Network>() {
        assert_eq!(network.to_string().parse(), Ok(network));
        assert!(network.has(network.address()));
        assert!(Network::around(network.address()).any(|around| around == network));
    }
    if let Ok(rights) = name.parse::<Rights>() {
        assert_eq!(rights.to_string().parse(), Ok(rights));
    }
    pattern(name, other);
}

fn name_of_somebody(name: &str) {
    let (user, group) = (check_user_name(name).is_ok(), check_group_name(name).is_ok());
    if user || group {
        // A number may stand wherever a name may, and lists have a line for each.
        assert!(
            name.parse::<i32>().is_err() && (1..=PRINCIPAL_NAME_BYTES_MAX).contains(&name.len())
        );
        assert!(!name.contains(|letter: char| letter.is_control() || letter.is_whitespace()));
        assert!(name.matches(':').count() <= usize::from(!user));
    }
    if user {
        let mut owned = format!("{name}:friends");
        assert_eq!(
            check_group_name(&owned).is_ok(),
            owned.len() <= PRINCIPAL_NAME_BYTES_MAX,
            "users own groups"
        );
        owned.push_str(":x");
        assert!(check_group_name(&owned).is_err());
    }
}

/// A pattern that matches a volume matches its copies, and no volume that it does not name.
fn pattern(pattern: &str, volume: &str) {
    let base = base_name(volume);
    assert!(volume.starts_with(base));
    let has = pattern_has(pattern, volume);
    match pattern.strip_suffix('*') {
        Some(beginning) => assert_eq!(has, base.starts_with(beginning)),
        None => assert_eq!(has, pattern == base || pattern == volume),
    }
    // Snapshots of `a.snapshot` would be those of `a`, so no volume has such a name.
    let can_be = is_volume_name(volume.as_bytes(), VolumeKind::ReadWrite);
    if has && base == volume && can_be && !base.contains(".snapshot.") {
        for copy in [".backup", ".readonly", ".snapshot.x"] {
            assert!(
                pattern_has(pattern, &format!("{volume}{copy}")),
                "{pattern:?} has {volume:?} and not its {copy}"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    #[test]
    fn snapshots_of_names_that_end_like_snapshots() {
        for names in [
            "home.*\nhome.snapshot",
            "home.*\nhome.snapshot.snapshot",
            "home.snap*\nhome.snapshots",
        ] {
            super::names(names.as_bytes());
        }
    }

    proptest! {
        #[test]
        fn random_bytes_are_no_names_or_good_ones(
            bytes in prop::collection::vec(any::<u8>(), 0..80),
        ) {
            super::names(&bytes);
        }

        #[test]
        fn random_text_is_no_name_or_a_good_one(text in "[-a-z0-9:@*./ \
            ]{0,70}(\n[a-z.*]{0,12}(.backup|.readonly|.snapshot.[a-z]{0,2}){0,2})?") {
            super::names(text.as_bytes());
        }
    }
}
