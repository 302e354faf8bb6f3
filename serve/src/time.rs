//! The time of day.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

const SECONDS_PER_DAY: u64 = 24 * 60 * 60;

/// Returns the time since 1970.
fn since_1970() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// Returns the seconds since 1970.
pub(crate) fn unix_time() -> u64 {
    since_1970().as_secs()
}

/// Returns the time in the format of RFC 3339.
pub(crate) fn rfc3339_now() -> String {
    let now = since_1970();
    rfc3339(now.as_secs(), now.subsec_nanos())
}

/// Returns a time in the format of RFC 3339, given its seconds since 1970.
pub(crate) fn rfc3339(seconds: u64, nanoseconds: u32) -> String {
    let (year, month, day) = date(seconds / SECONDS_PER_DAY);
    let second = seconds % SECONDS_PER_DAY;
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    let fraction = if nanoseconds > 0 { format!(".{nanoseconds:09}") } else { String::new() };
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}{fraction}Z")
}

/// Returns year, month and day, given the days since 1970. Years begin in March here, so that leap days are at their ends
/// (Hinnant, "chrono-Compatible Low-Level Date Algorithms").
fn date(days: u64) -> (u64, u64, u64) {
    const DAYS_PER_ERA: u64 = 146_097;
    const DAYS_BEFORE_1970: u64 = 719_468;
    let days = days + DAYS_BEFORE_1970;
    let (era, day_of_era) = (days / DAYS_PER_ERA, days % DAYS_PER_ERA);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / (DAYS_PER_ERA - 1)) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let (month, carry) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    (era * 400 + year_of_era + carry, month, day)
}

#[cfg(test)]
mod tests {
    use super::rfc3339;

    #[test]
    fn times_are_formatted() {
        for (seconds, nanoseconds, expected) in [
            (0, 0, "1970-01-01T00:00:00Z"),
            (951_782_400, 0, "2000-02-29T00:00:00Z"),
            (1_709_251_199, 5, "2024-02-29T23:59:59.000000005Z"),
            (4_107_542_400, 0, "2100-03-01T00:00:00Z"),
            (1_798_761_599, 123_456_789, "2026-12-31T23:59:59.123456789Z"),
        ] {
            assert_eq!(rfc3339(seconds, nanoseconds), expected);
        }
    }
}
