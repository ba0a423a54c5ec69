//! The permitted names of users, groups and host sets.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use types::Fault;
use types::limits::PRINCIPAL_NAME_BYTES_MAX;

/// Begins the names of groups that the cell itself has; no user has this name.
const SYSTEM: &str = "system";

/// The beginning of the names of groups that stand for the users of another realm.
const REALM_GROUP: &str = "system:authuser@";

/// The name of the group that a user of another realm is in by the user's name alone, if the cell
/// has that group: `system:authuser@example.org` for `joe@example.org`. `None`: the user is one of
/// this cell.
pub(crate) fn realm_group(user: &str) -> Option<String> {
    user.split_once('@').map(|(_, realm)| format!("{REALM_GROUP}{realm}"))
}

/// Whether a group with this name stands for the users of another realm.
pub(crate) fn is_realm_group(name: &str) -> bool {
    name.starts_with(REALM_GROUP)
}

/// Checks the name of a user: `joe`, or `joe@example.org` of another cell or realm, which is
/// written in lower case.
///
/// # Errors
/// `Invalid`, `NameTooLong`.
pub fn check_user_name(name: &str) -> Result<(), Fault> {
    check_text(name)?;
    let sound = name.split_once('@').is_none_or(|(who, realm)| !who.is_empty() && is_realm(realm));
    if sound && !name.contains(':') && name != SYSTEM { Ok(()) } else { Err(Fault::Invalid) }
}

/// Whether it is the canonical name of a realm. Administrators would take names that differ only in
/// the realm's case for one user, and the cell for two.
fn is_realm(text: &str) -> bool {
    !text.is_empty() && !text.contains('@') && text == text.to_lowercase()
}

/// Checks the name of a group: `owner:name`, or `name`. The realm in `system:authuser@REALM` is
/// written in lower case, as it is in the names of its users.
///
/// # Errors
/// `Invalid`, `NameTooLong`.
pub fn check_group_name(name: &str) -> Result<(), Fault> {
    check_text(name)?;
    let sound = match name.split_once(':') {
        Some((owner, rest)) => !owner.is_empty() && !rest.is_empty() && !rest.contains(':'),
        None => true,
    };
    let known = name.strip_prefix(REALM_GROUP).is_none_or(is_realm);
    if sound && known { Ok(()) } else { Err(Fault::Invalid) }
}

/// A name must differ from a number and from a line of a list.
fn check_text(name: &str) -> Result<(), Fault> {
    if name.len() > PRINCIPAL_NAME_BYTES_MAX {
        return Err(Fault::NameTooLong);
    }
    let is_odd = |letter: char| letter.is_control() || letter.is_whitespace();
    if name.is_empty() || name.contains(is_odd) || name.parse::<i64>().is_ok() {
        return Err(Fault::Invalid);
    }
    Ok(())
}

/// The part before the colon.
pub(crate) fn prefix(name: &str) -> Option<&str> {
    name.split_once(':').map(|(prefix, _)| prefix)
}

/// All addresses that begin with the same bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Network {
    address: IpAddr,
    bits: u8,
}

impl Network {
    /// The network of `bits` bits that contains an address.
    pub fn of(address: IpAddr, bits: u8) -> Network {
        let address = address.to_canonical();
        match address {
            IpAddr::V4(ip) => {
                let bits = bits.min(32);
                let mask = u32::MAX.checked_shl(32 - u32::from(bits)).unwrap_or(0);
                Network { address: std::net::Ipv4Addr::from_bits(ip.to_bits() & mask).into(), bits }
            }
            IpAddr::V6(ip) => {
                let bits = bits.min(128);
                let mask = u128::MAX.checked_shl(128 - u32::from(bits)).unwrap_or(0);
                Network { address: std::net::Ipv6Addr::from_bits(ip.to_bits() & mask).into(), bits }
            }
        }
    }

    /// Every network that contains an address, the largest first.
    pub fn around(address: IpAddr) -> impl Iterator<Item = Network> {
        let address = address.to_canonical();
        (0..=Network::bits_max(address)).map(move |bits| Network::of(address, bits))
    }

    /// Whether the network contains the address.
    pub fn has(&self, address: IpAddr) -> bool {
        Network::of(address, self.bits) == *self
    }

    /// The first address.
    pub fn address(&self) -> IpAddr {
        self.address
    }

    /// The number of bits that all addresses have in common.
    pub fn bits(&self) -> u8 {
        self.bits
    }

    fn bits_max(address: IpAddr) -> u8 {
        if address.is_ipv4() { 32 } else { 128 }
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.bits)
    }
}

impl FromStr for Network {
    type Err = Fault;

    /// Accepts an address, or an address with a prefix length after which all bits are zero.
    fn from_str(text: &str) -> Result<Network, Fault> {
        let (address, bits) =
            text.split_once('/').map_or((text, None), |(address, bits)| (address, Some(bits)));
        let address: IpAddr = address.parse().map_err(|_| Fault::Invalid)?;
        let bits = match bits {
            Some(bits) => bits.parse().map_err(|_| Fault::Invalid)?,
            None => Network::bits_max(address.to_canonical()),
        };
        let network = Network::of(address, bits);
        if network.bits == bits && network.address == address.to_canonical() {
            Ok(network)
        } else {
            Err(Fault::Invalid)
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_network_is_what_it_is_shown_as(
            ip in any::<IpAddr>(),
            bits in 0..140_u8,
            text in "[0-9a-f:./]{0,24}",
        ) {
            let network = Network::of(ip, bits);
            prop_assert_eq!(network.to_string().parse(), Ok(network));
            prop_assert!(Network::around(ip).any(|around| around == network));
            if let Ok(network) = text.parse::<Network>() {
                prop_assert_eq!(network.to_string().parse(), Ok(network));
            }
        }

        #[test]
        fn a_name_is_neither_a_number_nor_more_than_a_word(name in ".{0,70}") {
            for good in [check_user_name(&name), check_group_name(&name)] {
                if good == Ok(()) {
                    let odd = |letter: char| letter.is_control() || letter.is_whitespace();
                    let number = name.parse::<i32>().is_ok();
                    prop_assert!(!name.chars().any(odd) && !number);
                    prop_assert!(!name.is_empty() && name.len() <= PRINCIPAL_NAME_BYTES_MAX);
                }
            }
        }
    }

    #[test]
    fn names() {
        for good in ["joe", "joe@example.org", "joe/admin", "j.o-e_7"] {
            assert_eq!(check_user_name(good), Ok(()), "{good}");
        }
        for bad in [
            "",
            "joe:x",
            "system",
            "joe@",
            "@x",
            "a@b@c",
            "joe@Example.org",
            "17",
            "-4",
            "jo e",
            "jo\ne",
        ] {
            assert_eq!(check_user_name(bad), Err(Fault::Invalid), "{bad:?}");
        }
        assert_eq!(check_user_name(&"x".repeat(64)), Err(Fault::NameTooLong));
        assert_eq!(check_user_name(&"x".repeat(63)), Ok(()));
        for good in [
            "staff",
            "joe:friends",
            "system:backup",
            "system:authuser@example.org",
            "joe@example.org:friends",
        ] {
            assert_eq!(check_group_name(good), Ok(()), "{good}");
        }
        let bad_realms = ["system:authuser@", "system:authuser@Example.org", "system:authuser@a@b"];
        for bad in ["", ":x", "joe:", "a:b:c", "-204", "a: b"].into_iter().chain(bad_realms) {
            assert_eq!(check_group_name(bad), Err(Fault::Invalid), "{bad:?}");
        }
    }

    #[test]
    fn m12_the_name_alone_identifies_a_realm_and_its_group() {
        assert_eq!(realm_group("joe"), None);
        assert_eq!(realm_group("joe/admin"), None);
        assert_eq!(realm_group("joe@example.org").as_deref(), Some("system:authuser@example.org"));
        assert!(
            is_realm_group("system:authuser@example.org") && !is_realm_group("system:authuser")
        );
        assert!(!is_realm_group("joe:authuser@example.org"));
    }

    #[test]
    fn networks_have_one_spelling() {
        for (text, shown) in [
            ("10.1.0.0/16", "10.1.0.0/16"),
            ("::1", "::1/128"),
            ("0.0.0.0/0", "0.0.0.0/0"),
            ("192.168.7.9", "192.168.7.9/32"),
            ("::ffff:10.0.0.1", "10.0.0.1/32"),
            ("fe80::/10", "fe80::/10"),
        ] {
            assert_eq!(
                text.parse::<Network>().map(|network| network.to_string()),
                Ok(shown.to_owned()),
                "{text}"
            );
        }
        for bad in ["10.1.0.1/16", "10.0.0.0/33", "x", "10.0.0.0/", "10.0.0.0/-1", "fe80::1/10"] {
            assert_eq!(bad.parse::<Network>(), Err(Fault::Invalid), "{bad}");
        }
        let around: Vec<String> =
            Network::around([10, 1, 2, 3].into()).map(|network| network.to_string()).collect();
        assert_eq!(around.len(), 33);
        assert!(
            around.contains(&"10.1.0.0/16".to_owned())
                && around.contains(&"10.1.2.3/32".to_owned())
        );
    }
}
