//! Clocks. No other module reads the time.

use std::sync::OnceLock;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Measures a duration.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stopwatch(Instant);

impl Stopwatch {
    pub(crate) fn start() -> Stopwatch {
        Stopwatch(Instant::now())
    }

    pub(crate) fn elapsed(self) -> Duration {
        self.0.elapsed()
    }
}

/// The start time of the program.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ProcessStart {
    pub(crate) unix_millis: u64,
    stopwatch: Stopwatch,
}

impl ProcessStart {
    pub(crate) fn uptime(self) -> Duration {
        self.stopwatch.elapsed()
    }
}

/// Returns the start time, which the first call sets; `main` calls this first.
pub(crate) fn process_start() -> ProcessStart {
    static PROCESS_START: OnceLock<ProcessStart> = OnceLock::new();
    *PROCESS_START.get_or_init(|| ProcessStart { unix_millis: unix_millis(), stopwatch: Stopwatch::start() })
}

/// Milliseconds since 1970.
pub(crate) fn unix_millis() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}

/// Formats milliseconds since 1970 as ISO 8601 in UTC.
pub(crate) fn format_iso8601(unix_millis: u64) -> String {
    let seconds = UNIX_EPOCH + Duration::from_millis(unix_millis);
    // `httpdate` has the calendar arithmetic: `Sun, 06 Nov 1994 08:49:37 GMT`.
    let date = httpdate::fmt_http_date(seconds);
    let mut words = date.split([' ', ',']).filter(|word| !word.is_empty()).skip(1);
    let (day, month, year, time) = (words.next(), words.next(), words.next(), words.next());
    let months = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let month = months.iter().position(|known| Some(*known) == month).map_or(0, |place| place + 1);
    let (day, year, time) = (day.unwrap_or_default(), year.unwrap_or_default(), time.unwrap_or_default());
    format!("{year}-{month:02}-{day}T{time}.{:03}Z", unix_millis % 1000)
}

/// Parses ISO 8601 in UTC, or a number of milliseconds, to milliseconds since 1970. Other offsets than `Z` are not
/// supported.
pub(crate) fn parse_iso8601(text: &str) -> Option<u64> {
    if let Ok(number) = text.parse() {
        return Some(number);
    }
    let (date, time) =
        text.trim_end_matches(['Z', 'z']).split_once(['T', 't', ' ']).unwrap_or((text, "00:00:00"));
    let (year, month, day) = parse_three_numbers(date, '-')?;
    let (time, fraction) = time.split_once('.').unwrap_or((time, ""));
    let time = if time.len() == 5 { format!("{time}:00") } else { time.to_owned() };
    let (hour, minute, second) = parse_three_numbers(&time, ':')?;
    let is_valid = (1970..10_000).contains(&year)
        && (1..=12).contains(&month)
        && (1..=31).contains(&day)
        && hour < 24
        && minute < 60
        && second < 61;
    if !is_valid {
        return None;
    }
    // Years begin in March here, so that a leap day is the last day of a year.
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let days = year * 365 + year / 4 - year / 100 + year / 400 + (month * 153 + 2) / 5 + day - 1 - 719_468;
    let millis: u64 = format!("{fraction:0<3}").get(..3)?.parse().ok()?;
    Some((((days * 24 + hour) * 60 + minute) * 60 + second) * 1000 + millis)
}

/// Parses three numbers with a separator.
fn parse_three_numbers(text: &str, separator: char) -> Option<(u64, u64, u64)> {
    let mut parts = text.splitn(3, separator).map(|part| part.parse::<u64>().ok());
    Some((parts.next()??, parts.next()??, parts.next()??))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_formatted_and_parsed() {
        // The output of `date -u -d @seconds`.
        let rows = [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_400_000, "2000-02-29T00:00:00.000Z"),
            (1_709_164_800_001, "2024-02-29T00:00:00.001Z"),
            (1_735_689_599_000, "2024-12-31T23:59:59.000Z"),
        ];
        for (millis, wanted) in rows {
            assert_eq!(format_iso8601(millis), wanted);
            assert_eq!(parse_iso8601(wanted), Some(millis));
        }
        assert_eq!(parse_iso8601("2024-02-29T00:00Z"), Some(1_709_164_800_000));
        assert_eq!(parse_iso8601("1709164800001"), Some(1_709_164_800_001));
        assert_eq!(parse_iso8601("yesterday"), None);
        assert_eq!(parse_iso8601(""), None);
    }
}
