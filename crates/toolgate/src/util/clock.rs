//! Time. Nothing else in the house reads a clock, so that tests can turn one by hand.

#[cfg(feature = "http")]
use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Where the house gets its time from.
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

/// Now, on the clock that tokio's timers go by: the one to reckon deadlines with. Tests pause it.
pub(crate) fn timer_now() -> tokio::time::Instant {
    tokio::time::Instant::now()
}

impl Clock {
    /// The machine's clocks.
    pub(crate) fn system() -> Clock {
        Clock(ClockSource::System { started: Instant::now() })
    }

    /// A clock that stands still until [`Clock::advance`] moves it.
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

    /// Time since the house opened; never steps back.
    #[inline]
    pub(crate) fn uptime(&self) -> Duration {
        match &self.0 {
            ClockSource::System { started } => started.elapsed(),
            ClockSource::Manual(nanos) => Duration::from_nanos(nanos.load(Ordering::Relaxed)),
        }
    }

    /// The same in nanoseconds, of which 64 bits hold six centuries.
    pub(crate) fn uptime_nanos(&self) -> u64 {
        let up = self.uptime();
        // No 128 bits on the way: this is read twice for each call.
        up.as_secs() * 1_000_000_000 + u64::from(up.subsec_nanos())
    }

    /// Seconds since 1970, for what must be understood by other processes.
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
    /// The date as it was last written on this thread, and until when it holds.
    static HTTP_DATE_CACHE: Cell<Option<(tokio::time::Instant, [u8; 29])>> = const { Cell::new(None) };
}

/// The date as HTTP writes it. It is made anew once a second; `now` says whether that is over.
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

/// RFC 9110, 5.6.7.
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
    // Years of five digits have no place in it; nobody will see them.
    text.into_bytes().try_into().unwrap_or([b'0'; 29])
}

/// Milliseconds since 1970 as people and programs read them: ISO 8601, in UTC.
pub(crate) fn format_iso8601(unix_millis: u64) -> String {
    let (seconds, millis) = (unix_millis / 1000, unix_millis % 1000);
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    let (year, month, day) = civil_from_days(days);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{millis:03}Z")
}

/// Year, month and day of a number of days since 1970. Years begin in March here, so that the day which is
/// sometimes missing is the last one; 400 of them always have the same number of days.
fn civil_from_days(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (era * 400 + year + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
        // What `date -u -d @seconds` says.
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
    fn dates_are_written_as_http_does() {
        // The example of RFC 9110, and what `date -u -R -d @seconds` says.
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
    fn each_day_follows_the_one_before() {
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
    fn the_clocks_of_the_machine_run() {
        let clock = Clock::system();
        let first = clock.uptime_nanos();
        assert!(clock.uptime_nanos() >= first);
        assert!(clock.unix_millis() / 1000 <= clock.unix_secs());
        assert!(clock.unix_millis() > 1_600_000_000_000, "this century");
    }
}
