//! The time of day, in UTC, as folders and reports show it.

use time::UtcDateTime;

/// A second of the calendar.
pub struct Date(UtcDateTime);

impl Date {
    /// The present one.
    pub fn now() -> Self {
        Self(UtcDateTime::now())
    }

    /// So many seconds after 1970 began; none if no calendar has that year.
    pub fn at(unix_seconds: u64) -> Option<Self> {
        UtcDateTime::from_unix_timestamp(i64::try_from(unix_seconds).ok()?).ok().map(Self)
    }

    /// `20261115-024500`, for names.
    pub(crate) fn stamp(&self) -> String {
        self.text().replace(['-', ':'], "").replace(' ', "-")
    }

    /// `2026-11-15 02:45:00`, for people.
    pub fn text(&self) -> String {
        let (year, month, day) = self.0.to_calendar_date();
        let (hour, minute, second) = self.0.as_hms();
        format!("{year:04}-{:02}-{day:02} {hour:02}:{minute:02}:{second:02}", u8::from(month))
    }
}

#[cfg(test)]
mod tests {
    use super::Date;

    #[test]
    fn dates_have_the_same_width_always() {
        let date = |unix_seconds| Date::at(unix_seconds).unwrap();
        assert_eq!(date(951_782_400).stamp(), "20000229-000000");
        assert_eq!(date(1_794_710_700).stamp(), "20261115-024500");
        assert_eq!(date(1_794_710_700).text(), "2026-11-15 02:45:00");
        assert!(Date::at(u64::MAX).is_none());
    }
}
