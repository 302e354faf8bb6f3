//! Dates. Templates have no access to a clock: the caller passes the date.

use std::fmt::Write as _;

const WEEKDAYS: [&str; 7] = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];
const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];

/// A local date and time, as given by the caller.
///
/// ```
/// use siskin_chat_template::Date;
///
/// assert_eq!(Date::from_unix(1_721_999_096).format("%d %b %Y"), "26 Jul 2024");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Date {
    days: i64,
    second: u32,
}

impl Date {
    /// Creates a date from a Unix timestamp in seconds. Add the user's UTC offset for local time.
    pub fn from_unix(seconds: i64) -> Self {
        Self { days: seconds.div_euclid(86_400), second: seconds.rem_euclid(86_400) as u32 }
    }

    /// Returns the current time in UTC.
    pub fn now() -> Self {
        use std::time::{SystemTime, UNIX_EPOCH};
        let seconds = match SystemTime::now().duration_since(UNIX_EPOCH) {
            Ok(since) => i64::try_from(since.as_secs()).unwrap_or(0),
            // The clock is before 1970.
            Err(_) => 0,
        };
        Self::from_unix(seconds)
    }

    /// Returns the year, the month from 1 and the day from 1, in the Gregorian calendar.
    fn civil(self) -> (i64, usize, i64) {
        // Years begin in March here, so that the leap day is the last day.
        let days = self.days + 719_468;
        let era = days.div_euclid(146_097);
        let day_of_era = days.rem_euclid(146_097);
        let year_of_era =
            (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
        let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let month = (5 * day_of_year + 2) / 153;
        let day = day_of_year - (153 * month + 2) / 5 + 1;
        let month = if month < 10 { month + 3 } else { month - 9 };
        (year_of_era + era * 400 + i64::from(month <= 2), month as usize, day)
    }

    fn day_of_year(self) -> i64 {
        let (year, month, day) = self.civil();
        let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
        let before = [0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334];
        before[month - 1] + day + i64::from(leap && month > 2)
    }

    /// Formats like Python's `strftime` in the C locale; unknown directives are copied.
    pub fn format(self, format: &str) -> String {
        let mut output = String::new();
        let mut characters = format.chars().peekable();
        while let Some(character) = characters.next() {
            if character != '%' {
                output.push(character);
                continue;
            }
            let bare = characters.next_if_eq(&'-').is_some();
            match characters.next() {
                Some(kind) => self.field(kind, bare, &mut output),
                None => output.push_str(if bare { "%-" } else { "%" }),
            }
        }
        output
    }

    fn field(self, kind: char, bare: bool, output: &mut String) {
        let (year, month, day) = self.civil();
        let (hour, minute, second) = (self.second / 3600, self.second / 60 % 60, self.second % 60);
        let weekday = WEEKDAYS[(self.days + 4).rem_euclid(7) as usize];
        let month_name = MONTHS[month - 1];
        let mut number = |value: i64, width: usize| {
            let width = if bare { 0 } else { width };
            let _ = write!(output, "{value:0width$}");
        };
        match kind {
            'd' => number(day, 2),
            'm' => number(month as i64, 2),
            'y' => number(year.rem_euclid(100), 2),
            'Y' => number(year, 0),
            'H' => number(i64::from(hour), 2),
            'I' => number(i64::from((hour + 11) % 12 + 1), 2),
            'M' => number(i64::from(minute), 2),
            'S' => number(i64::from(second), 2),
            'f' => number(0, 6),
            'j' => number(self.day_of_year(), 3),
            'w' => number((self.days + 4).rem_euclid(7), 0),
            'u' => number((self.days + 3).rem_euclid(7) + 1, 0),
            'e' => {
                let _ = if bare { write!(output, "{day}") } else { write!(output, "{day:2}") };
            }
            'A' => output.push_str(weekday),
            'a' => output.push_str(&weekday[..3]),
            'B' => output.push_str(month_name),
            'b' | 'h' => output.push_str(&month_name[..3]),
            'p' => output.push_str(if hour < 12 { "AM" } else { "PM" }),
            'F' => output.push_str(&self.format("%Y-%m-%d")),
            'D' | 'x' => output.push_str(&self.format("%m/%d/%y")),
            'T' | 'X' => output.push_str(&self.format("%H:%M:%S")),
            'R' => output.push_str(&self.format("%H:%M")),
            'c' => output.push_str(&self.format("%a %b %e %H:%M:%S %Y")),
            'n' => output.push('\n'),
            't' => output.push('\t'),
            '%' => output.push('%'),
            // A naive datetime has no time zone name and no UTC offset.
            'Z' | 'z' => {}
            other => output.extend(["%", if bare { "-" } else { "" }, other.encode_utf8(&mut [0; 4])]),
        }
    }
}
