//! The time of day, in UTC, as folders and reports show it.

use std::time::SystemTime;

/// A second of the calendar.
pub struct Date {
    year: u64,
    month: u64,
    day: u64,
    hour: u64,
    minute: u64,
    second: u64,
}

impl Date {
    /// The present one.
    pub fn now() -> Self {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        Self::of(since.map_or(0, |since| since.as_secs()))
    }

    fn of(unix_seconds: u64) -> Self {
        let (days, rest) = (unix_seconds / 86_400, unix_seconds % 86_400);
        // The civil calendar in years that begin in March, so that the leap day comes last.
        let shifted = days + 719_468;
        let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
        let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
        let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let march_month = (5 * day_of_year + 2) / 153;
        let day = day_of_year - (153 * march_month + 2) / 5 + 1;
        let month = if march_month < 10 { march_month + 3 } else { march_month - 9 };
        let year = era * 400 + year_of_era + u64::from(month <= 2);
        Self { year, month, day, hour: rest / 3_600, minute: rest / 60 % 60, second: rest % 60 }
    }

    /// `20261115-024500`, for names.
    pub fn stamp(&self) -> String {
        let Self { year, month, day, hour, minute, second } = self;
        format!("{year:04}{month:02}{day:02}-{hour:02}{minute:02}{second:02}")
    }

    /// `2026-11-15 02:45:00`, for people.
    pub fn text(&self) -> String {
        let Self { year, month, day, hour, minute, second } = self;
        format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}")
    }
}

#[cfg(test)]
mod tests {
    use super::Date;

    #[test]
    fn dates_are_right() {
        assert_eq!(Date::of(0).stamp(), "19700101-000000");
        assert_eq!(Date::of(951_782_399).stamp(), "20000228-235959");
        assert_eq!(Date::of(951_782_400).stamp(), "20000229-000000");
        assert_eq!(Date::of(1_794_710_700).stamp(), "20261115-024500");
        assert_eq!(Date::of(1_794_710_700).text(), "2026-11-15 02:45:00");
    }
}
