//! How long a new ticket is good.

use std::time::Duration;

use clap::Args;
use nettorrent_net::clock::Clock;
use nettorrent_net::policy::TicketLimits;

/// Limits of a new ticket.
#[derive(Args)]
pub(crate) struct TicketLimitArguments {
    /// How many may join with the ticket [default: any number].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4096))]
    ticket_uses: Option<u32>,
    /// How long one may join with the ticket, such as 90s, 30m, 2h or 7d [default: as long as the swarm lives].
    #[arg(long, value_name = "TIME", value_parser = duration)]
    ticket_expires: Option<Duration>,
}

impl TicketLimitArguments {
    /// The limits of a ticket that is made now.
    pub(crate) fn limits(&self) -> TicketLimits {
        let ends = self.ticket_expires.map(|time| Clock::System.now().saturating_add(time.as_secs()));
        TicketLimits { uses: self.ticket_uses, ends }
    }

    /// `, 3 times, for 2 hours`; nothing if there are none.
    pub(crate) fn text(&self) -> String {
        let uses = self.ticket_uses.map(|uses| if uses == 1 { ", once".into() } else { format!(", {uses} times") });
        let time = self.ticket_expires.map(|time| format!(", for {}", indicatif::HumanDuration(time)));
        [uses, time].into_iter().flatten().collect()
    }
}

const UNITS: [(char, u64); 4] = [('s', 1), ('m', 60), ('h', 60 * 60), ('d', 24 * 60 * 60)];

/// A length of time, as people write it.
fn duration(text: &str) -> Result<Duration, String> {
    let seconds = UNITS.iter().find_map(|(letter, seconds)| {
        let number: u64 = text.trim().strip_suffix(*letter)?.trim().parse().ok()?;
        number.checked_mul(*seconds)
    });
    let seconds = seconds.filter(|seconds| *seconds > 0);
    let hint = || "not a length of time: write a number and s, m, h or d, for example 2h".to_owned();
    seconds.map(Duration::from_secs).ok_or_else(hint)
}

#[cfg(test)]
mod tests {
    use super::duration;

    #[test]
    fn times_are_read_as_people_write_them() {
        for (text, seconds) in [("90s", 90), ("30m", 1800), ("2h", 7200), ("7 d", 604_800)] {
            assert_eq!(duration(text).map(|time| time.as_secs()), Ok(seconds), "{text}");
        }
        for text in ["", "2", "h", "0s", "-1h", "1.5h", "2y", "18446744073709551615d"] {
            assert!(duration(text).unwrap_err().contains("for example 2h"), "{text}");
        }
    }
}
