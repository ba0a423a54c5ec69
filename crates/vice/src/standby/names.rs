//! The names of the snapshots that standbys need.

use types::{Fault, Name, ServerId, Timestamp, VolumeKind, is_volume_name};

/// The beginning of the names of all bases of a standby.
pub(super) fn base_prefix(volume: &Name, standby: ServerId) -> Vec<u8> {
    let digits = &standby.to_string()[..8];
    [volume.as_bytes(), b".standby-", digits.as_bytes(), b"-"].concat()
}

/// The name of a base.
///
/// # Errors
/// `Invalid` if the volume's name leaves no room.
pub(super) fn base_name(volume: &Name, standby: ServerId, epoch: u64) -> Result<Name, Fault> {
    snapshot(&[base_prefix(volume, standby), epoch.to_string().into_bytes()].concat())
}

/// The name of what a former server has and the new one may not have.
///
/// # Errors
/// As [`base_name`].
pub(super) fn surplus_name(volume: &Name, now: Timestamp) -> Result<Name, Fault> {
    let (year, month, day) = date(now.secs.div_euclid(86_400));
    let second = now.secs.rem_euclid(86_400);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    let end = format!(".surplus-{year:04}{month:02}{day:02}-{hour:02}{minute:02}{second:02}");
    snapshot(&[volume.as_bytes(), end.as_bytes()].concat())
}

fn snapshot(name: &[u8]) -> Result<Name, Fault> {
    if !is_volume_name(name, VolumeKind::Snapshot) {
        return Err(Fault::Invalid);
    }
    Name::new(name).map_err(|_| Fault::Invalid)
}

/// Year, month and day of a day since 1970, in the Gregorian calendar.
fn date(day: i64) -> (i64, i64, i64) {
    // Years begin in March here, so that the leap day is the last of one.
    let shifted = day + 719_468;
    let era = shifted.div_euclid(146_097);
    let of_era = shifted.rem_euclid(146_097);
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (year + era * 400 + i64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_bases_and_of_surplus() {
        let home = Name::new(b"home").unwrap();
        let server = ServerId(0xdead_beef_0123_4567_89ab_cdef_0123_4567);
        assert_eq!(base_name(&home, server, 12).unwrap().as_bytes(), b"home.standby-deadbeef-12");
        let at = |secs| surplus_name(&home, Timestamp::new(secs, 0)).unwrap();
        assert_eq!(at(0).as_bytes(), b"home.surplus-19700101-000000");
        assert_eq!(at(951_827_696).as_bytes(), b"home.surplus-20000229-123456");
        assert_eq!(at(1_795_737_599).as_bytes(), b"home.surplus-20261126-235959");
        let long = Name::new(&[b'a'; 190]).unwrap();
        assert_eq!(base_name(&long, server, 12), Err(Fault::Invalid));
    }
}
