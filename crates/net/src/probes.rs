//! How many bytes a peer gives to those who want to know how fast it can be reached: so few that training does not suffer.

use std::time::Duration;

use crate::inbox::LinkId;
use crate::service::MOST_PROBE_BYTES;

/// What is as short as any other answer is given to everybody.
const SHORT: usize = 1 << 10;
/// After a long answer, nobody gets another for so long.
const PAUSE: Duration = Duration::from_millis(200);

/// Who has asked for bytes.
#[derive(Debug, Default)]
pub(crate) struct Probes {
    /// To whom bytes were given last.
    last: Option<LinkId>,
    not_before: Duration,
}

impl Probes {
    /// How many bytes somebody gets who asks for so many; `is_sent` says whether a link has let out all that it was given.
    pub(crate) fn admit(
        &mut self,
        now: Duration,
        link: LinkId,
        n_bytes: usize,
        is_sent: impl Fn(LinkId) -> bool,
    ) -> usize {
        if n_bytes <= SHORT {
            return n_bytes;
        }
        if now < self.not_before || self.last.is_some_and(|last| !is_sent(last)) {
            return 0;
        }
        (self.last, self.not_before) = (Some(link), now + PAUSE);
        n_bytes.min(MOST_PROBE_BYTES)
    }
}

#[cfg(test)]
mod tests {
    use super::{PAUSE, Probes, SHORT};
    use crate::inbox::LinkId;
    use crate::service::MOST_PROBE_BYTES;
    use std::time::Duration;

    #[test]
    fn one_at_a_time_gets_so_much_and_no_more() {
        let mut probes = Probes::default();
        let mut ask = |now: u32, link, n_bytes, is_sent| probes.admit(now * PAUSE, LinkId(link), n_bytes, |_| is_sent);
        assert_eq!(ask(0, 1, usize::MAX, true), MOST_PROBE_BYTES);
        assert_eq!(ask(0, 2, 1 << 20, true), 0, "too soon");
        assert_eq!(ask(0, 2, SHORT, false), SHORT, "costs no more than any question");
        assert_eq!(ask(1, 2, 1 << 20, false), 0, "the first is not done");
        assert_eq!(ask(2, 2, 1 << 20, true), 1 << 20);
        assert_eq!(probes.admit(2 * PAUSE + Duration::from_millis(1), LinkId(1), 1 << 20, |_| true), 0);
    }
}
