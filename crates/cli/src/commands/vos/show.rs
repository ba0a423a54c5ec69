//! Volumes as OpenAFS shows them, and as JSON.

use std::io::{self, BufWriter, Write};

use local::failure::{Doing, Failure};
use serde_json::{Value, json};
use types::{Timestamp, VolumeInfo, VolumeKind, VolumeState};

use super::context::{LocatedVolume, VosContext, text};

/// Two letters for a kind.
pub fn kind(kind: VolumeKind) -> &'static str {
    match kind {
        VolumeKind::ReadWrite => "RW",
        VolumeKind::ReadOnly => "RO",
        VolumeKind::Backup => "BK",
        VolumeKind::Snapshot => "SN",
    }
}

pub fn state(state: VolumeState) -> &'static str {
    match state {
        VolumeState::Online => "On-line",
        VolumeState::Offline => "Off-line",
        VolumeState::Held => "On-line, held",
        VolumeState::Restoring => "On-line, being restored",
        VolumeState::Superseded => "Off-line, superseded by another server's",
        VolumeState::Arriving => "Off-line, arriving",
        VolumeState::TakingOver => "Off-line, taking over from a lost server",
    }
}

/// One line for a volume.
pub fn line(volume: &VolumeInfo) -> String {
    let (name, kind, state) = (text(&volume.name), kind(volume.kind), state(volume.state));
    format!(
        "{name:<32} {:>10} {kind} {:>10} K {state}",
        volume.id.0,
        volume.used_bytes.div_ceil(1024)
    )
}

pub fn volume_json(context: &VosContext, volume: &LocatedVolume) -> Value {
    json!({
        "id": volume.id.0, "name": text(&volume.name), "kind": kind(volume.kind),
        "state": state(volume.state),
        "tree": volume.tree.0, "epoch": volume.epoch,
        "clone_of": volume.origin.map(|origin| origin.0),
        "server": context.server_name(volume.server),
        "partition": context.name_of(volume.server, volume.partition),
        "created": iso(volume.created), "updated": iso(volume.updated),
        "quota_bytes": volume.quota_bytes, "quota_files": volume.quota_files,
        "used_bytes": volume.used_bytes, "used_files": volume.used_files,
        "encrypted": volume.encrypted.is_some(),
        "key": volume.encrypted.filter(|number| *number > 0),
    })
}

/// Its form on the disk, for people.
pub fn at_rest(volume: &VolumeInfo) -> String {
    match volume.encrypted {
        None => "not encrypted".to_owned(),
        Some(0) => "encrypted".to_owned(),
        Some(number) => format!("encrypted, with key {number} of its server"),
    }
}

/// Writes lines to the standard output, possibly a million.
pub(crate) fn write(
    put: impl FnOnce(&mut dyn FnMut(&str) -> Result<(), Failure>) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let doing = || "writing the answer".to_owned();
    let mut out = BufWriter::new(io::stdout().lock());
    put(&mut |text| writeln!(out, "{text}").doing(doing))?;
    out.flush().doing(doing)
}

/// A time as `Sun Nov 22 10:05:01 2026`, in UTC.
pub fn date(time: Timestamp) -> String {
    const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
    const MONTHS: [&str; 12] =
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let Civil { days, year, month, day, hour, minute, second } = civil(time);
    let (weekday, month) = (DAYS[days.rem_euclid(7) as usize], MONTHS[month as usize - 1]);
    format!("{weekday} {month} {day:>2} {hour:02}:{minute:02}:{second:02} {year}")
}

/// A time as `2026-11-22T10:05:01Z`.
pub fn iso(time: Timestamp) -> String {
    let Civil { year, month, day, hour, minute, second, .. } = civil(time);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

/// A time as part of a name: `20261122T100501Z`.
pub fn stamp(time: Timestamp) -> String {
    iso(time).replace(['-', ':'], "")
}

/// Parses a typed time: seconds since 1970, `2026-11-22`, `2026-11-22 10:05`, with seconds or a `T`
/// or a `Z`, or as OpenAFS's `vos` takes it, `11/22/2026 10:05`. UTC, like all times that are
/// shown.
pub fn typed(text: &str) -> Option<Timestamp> {
    if let Ok(secs) = text.parse() {
        return Some(Timestamp::new(secs, 0));
    }
    let text = text.strip_suffix(['Z', 'z']).unwrap_or(text);
    let (date, clock) = text.split_once(['T', 't', ' ']).unwrap_or((text, "0:0"));
    let number = |text: &str| text.trim().parse::<i64>().ok().filter(|number| *number >= 0);
    let numbers = |text: &str, by: char| text.split(by).map(number).collect::<Option<Vec<i64>>>();
    let (year, month, day) = match (
        date.contains('/'),
        numbers(date, if date.contains('/') { '/' } else { '-' })?.as_slice(),
    ) {
        (true, [month, day, year]) | (false, [year, month, day]) => (*year, *month, *day),
        _ => return None,
    };
    let (hour, minute, second) = match numbers(clock, ':')?.as_slice() {
        [hour, minute] => (*hour, *minute, 0),
        [hour, minute, second] => (*hour, *minute, *second),
        _ => return None,
    };
    let time =
        Timestamp::new(days_of(year, month, day) * 86_400 + hour * 3600 + minute * 60 + second, 0);
    let back = civil(time);
    // Otherwise it is no day of the calendar, or no time of the day.
    let is_it = (back.year, back.month, back.day) == (year, month, day)
        && hour < 24
        && minute < 60
        && second < 60;
    is_it.then_some(time)
}

/// Source: as `civil`, `days_from_civil`.
fn days_of(year: i64, month: i64, day: i64) -> i64 {
    let year = year - i64::from(month <= 2);
    let (era, year_of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let shifted_month = if month > 2 { month - 3 } else { month + 9 };
    let of_year = (153 * shifted_month + 2) / 5 + day - 1;
    era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + of_year - 719_468
}

struct Civil {
    days: i64,
    year: i64,
    month: i64,
    day: i64,
    hour: i64,
    minute: i64,
    second: i64,
}

/// The Gregorian calendar. Source: H. Hinnant, "chrono-Compatible Low-Level Date Algorithms",
/// `civil_from_days`.
fn civil(time: Timestamp) -> Civil {
    let (days, rest) = (time.secs.div_euclid(86_400), time.secs.rem_euclid(86_400));
    let shifted = days + 719_468;
    let (era, of_era) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    Civil { days, year, month, day, hour: rest / 3600, minute: rest / 60 % 60, second: rest % 60 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_taken_as_people_type_them() {
        let at = |text: &str| typed(text).map(iso);
        for text in
            ["2026-11-22 10:05", "2026-11-22T10:05:00", "11/22/2026 10:05", "11/22/2026 10:05:00"]
        {
            assert_eq!(at(text).as_deref(), Some("2026-11-22T10:05:00Z"), "{text}");
        }
        assert_eq!(at("2026-11-22").as_deref(), Some("2026-11-22T00:00:00Z"));
        for text in [
            "",
            "today",
            "2026-02-30",
            "2026-13-01",
            "2026-11-22 24:00",
            "22/11/2026",
            "1-2",
            "2026-11-22 1",
        ] {
            assert_eq!(at(text), None, "{text}");
        }
    }

    #[test]
    fn times_are_those_of_the_calendar() {
        // Values as `date -u` shows them.
        for (secs, shown, stamped) in [
            (0, "Thu Jan  1 00:00:00 1970", "19700101T000000Z"),
            (951_782_400, "Tue Feb 29 00:00:00 2000", "20000229T000000Z"),
            (1_795_341_901, "Sun Nov 22 10:05:01 2026", "20261122T100501Z"),
            (-1, "Wed Dec 31 23:59:59 1969", "19691231T235959Z"),
            (4_107_542_400, "Mon Mar  1 00:00:00 2100", "21000301T000000Z"),
        ] {
            let time = Timestamp::new(secs, 0);
            assert_eq!((date(time).as_str(), stamp(time).as_str()), (shown, stamped));
            if secs >= 0 {
                assert_eq!(typed(&iso(time)), Some(time));
                assert_eq!(typed(&secs.to_string()), Some(time));
            }
        }
    }
}
