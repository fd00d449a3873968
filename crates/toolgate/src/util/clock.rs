//! Time. Nothing else in the crate reads a clock, so that tests can use a manual one.

#[cfg(feature = "http")]
use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The clock of a server.
#[derive(Clone, Debug)]
pub(crate) struct Clock(ClockSource);

#[derive(Clone, Debug)]
enum ClockSource {
    System {
        started: Instant,
    },
    #[cfg_attr(not(test), allow(dead_code))]
    Manual(Arc<AtomicU64>),
}

/// The current time of tokio's timers, for deadlines. Tests pause it.
pub(crate) fn timer_now() -> tokio::time::Instant {
    tokio::time::Instant::now()
}

impl Clock {
    /// The clock of the machine.
    pub(crate) fn system() -> Clock {
        Clock(ClockSource::System { started: Instant::now() })
    }

    /// A manual clock for tests, which only [`Clock::advance`] moves.
    #[cfg(test)]
    pub(crate) fn manual() -> Clock {
        Clock(ClockSource::Manual(Arc::new(AtomicU64::new(0))))
    }

    /// Moves a manual clock.
    #[cfg(test)]
    pub(crate) fn advance(&self, by: Duration) {
        if let ClockSource::Manual(nanos) = &self.0 {
            let by = u64::try_from(by.as_nanos()).unwrap_or(u64::MAX);
            nanos.fetch_add(by, Ordering::Relaxed);
        }
    }

    /// Time since the clock was created. Monotonic.
    #[inline]
    pub(crate) fn uptime(&self) -> Duration {
        match &self.0 {
            ClockSource::System { started } => started.elapsed(),
            ClockSource::Manual(nanos) => Duration::from_nanos(nanos.load(Ordering::Relaxed)),
        }
    }

    /// The uptime in nanoseconds. 64 bits hold six centuries.
    pub(crate) fn uptime_nanos(&self) -> u64 {
        let up = self.uptime();
        // Avoids 128-bit arithmetic: this is read twice for each call.
        up.as_secs() * 1_000_000_000 + u64::from(up.subsec_nanos())
    }

    /// Seconds since 1970, for values that other processes read.
    pub(crate) fn unix_secs(&self) -> u64 {
        self.unix_millis() / 1000
    }

    /// Milliseconds since 1970.
    pub(crate) fn unix_millis(&self) -> u64 {
        match &self.0 {
            ClockSource::System { .. } => SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .map_or(0, |since| u64::try_from(since.as_millis()).unwrap_or(u64::MAX)),
            ClockSource::Manual(nanos) => nanos.load(Ordering::Relaxed) / 1_000_000,
        }
    }
}

#[cfg(feature = "http")]
thread_local! {
    /// The last formatted date of this thread, and until when it is valid.
    static HTTP_DATE_CACHE: Cell<Option<(tokio::time::Instant, [u8; 29])>> = const { Cell::new(None) };
}

/// The current date in HTTP format. It is formatted once a second; `now` is compared with the end of that second.
#[cfg(feature = "http")]
pub(crate) fn current_http_date(now: tokio::time::Instant) -> [u8; 29] {
    if let Some((until, date)) = HTTP_DATE_CACHE.get()
        && now < until
    {
        return date;
    }
    let millis = Clock::system().unix_millis();
    let date = format_http_date(millis / 1000);
    HTTP_DATE_CACHE.set(Some((now + Duration::from_millis(1000 - millis % 1000), date)));
    date
}

/// Formats seconds since 1970 as an HTTP date (RFC 9110, 5.6.7).
#[cfg(feature = "http")]
fn format_http_date(unix: u64) -> [u8; 29] {
    const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
    const MONTHS: [&str; 12] =
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let (days, second) = (unix / 86_400, unix % 86_400);
    let (year, month, day) = civil_from_days(days);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    let (weekday, month) = (DAYS[(days % 7) as usize], MONTHS[(month as usize + 11) % 12]);
    let text = format!("{weekday}, {day:02} {month} {year:04} {hour:02}:{minute:02}:{second:02} GMT");
    // Years of five digits do not fit.
    text.into_bytes().try_into().unwrap_or([b'0'; 29])
}

/// Formats milliseconds since 1970 as ISO 8601, in UTC.
pub(crate) fn format_iso8601(unix_millis: u64) -> String {
    let (seconds, millis) = (unix_millis / 1000, unix_millis % 1000);
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    let (year, month, day) = civil_from_days(days);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{millis:03}Z")
}

/// Converts a number of days since 1970 to year, month and day. Years start in March here, so that the leap day is the last
/// one; 400 years always have the same number of days.
fn civil_from_days(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let (cycle, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (cycle * 400 + year + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn iso_dates_match_the_calendar() {
        // The output of `date -u -d @seconds`.
        let rows = [
            (0, "1970-01-01T00:00:00.000Z"),
            (86_399_999, "1970-01-01T23:59:59.999Z"),
            (951_782_400_000, "2000-02-29T00:00:00.000Z"),
            (951_868_800_000, "2000-03-01T00:00:00.000Z"),
            (1_078_012_800_000, "2004-02-29T00:00:00.000Z"),
            (1_709_164_800_001, "2024-02-29T00:00:00.001Z"),
            (1_735_689_599_000, "2024-12-31T23:59:59.000Z"),
            (1_740_787_200_000, "2025-03-01T00:00:00.000Z"),
            (4_107_542_400_000, "2100-03-01T00:00:00.000Z"),
            (253_402_300_799_999, "9999-12-31T23:59:59.999Z"),
        ];
        for (millis, wanted) in rows {
            assert_eq!(format_iso8601(millis), wanted);
        }
    }

    #[cfg(feature = "http")]
    #[test]
    fn http_dates_match_the_rfc() {
        // The example of RFC 9110, and the output of `date -u -R -d @seconds`.
        let rows = [
            (784_111_777, "Sun, 06 Nov 1994 08:49:37 GMT"),
            (0, "Thu, 01 Jan 1970 00:00:00 GMT"),
            (951_782_400, "Tue, 29 Feb 2000 00:00:00 GMT"),
            (1_735_689_599, "Tue, 31 Dec 2024 23:59:59 GMT"),
        ];
        for (unix, wanted) in rows {
            assert_eq!(str::from_utf8(&format_http_date(unix)).unwrap(), wanted);
        }
    }

    #[test]
    fn consecutive_days_are_consecutive_dates() {
        let lengths = |year: u64| {
            let leap = year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
            [31, if leap { 29 } else { 28 }, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31]
        };
        let mut days = 0;
        for year in 1970..2410 {
            for (month, length) in (1..).zip(lengths(year)) {
                for day in 1..=length {
                    assert_eq!(civil_from_days(days), (year, month, day));
                    days += 1;
                }
            }
        }
    }

    #[test]
    fn the_system_clock_runs() {
        let clock = Clock::system();
        let first = clock.uptime_nanos();
        assert!(clock.uptime_nanos() >= first);
        assert!(clock.unix_millis() / 1000 <= clock.unix_secs());
        assert!(clock.unix_millis() > 1_600_000_000_000, "this century");
    }
}
