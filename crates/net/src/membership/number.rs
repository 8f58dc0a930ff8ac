//! Numbers of views: they rise, and no two proposers come up with the same.

use nettorrent_swarm::view::PeerId;

/// How many of the lower bits are the proposer's mark; the counter lies above them.
const MARK_BITS: u32 = 12;

/// How far one message can raise the highest number that is known. Views change seldom, so peers of one swarm are never that far
/// apart for long; without a bound, one message would use all numbers up.
const MAX_STEPS: u32 = 1024;

/// What to take a number for that somebody else names, where this one is the highest known: itself, if it is in reach.
pub(super) fn within_reach(known: u32, named: u32) -> u32 {
    named.min(known.saturating_add(MAX_STEPS << MARK_BITS))
}

/// A proposer's way of choosing numbers.
///
/// ```text
/// counter: 20 bits   join index: 8 bits   salt: 4 bits
/// ```
///
/// The mark is made of the join index rather than of a hash, because then it differs among any 256 peers that came one after the
/// other. The salt tells apart those who took one join index at the same time, and a peer from an earlier life that it does not
/// remember; for the latter the first step is random, too.
///
/// Should two proposers choose the same number nevertheless, their views have no member in common that remembers both,
/// because a member agrees to a number once. So nobody can take one for the other.
pub(super) struct Numbers {
    mark: u32,
    step: u32,
}

impl Numbers {
    /// The numbers of this peer; `salt` is random.
    pub(super) fn new(proposer: PeerId, salt: u64) -> Self {
        Self { mark: (proposer.join_index() & 0xff) << 4 | salt as u32 & 0xf, step: 1 + ((salt >> 8) & 0x3f) as u32 }
    }

    /// A number above another. There is none when numbers have run out.
    pub(super) fn next(&mut self, above: u32) -> Option<u32> {
        let counter = (above >> MARK_BITS) + std::mem::replace(&mut self.step, 1);
        (counter < 1 << (u32::BITS - MARK_BITS)).then_some(counter << MARK_BITS | self.mark)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use nettorrent_swarm::view::PeerId;

    use super::{Numbers, within_reach};

    #[test]
    fn numbers_rise_until_they_run_out() {
        let mut numbers = Numbers::new(PeerId::new(3, 0xabcd), u64::MAX);
        let mut number = 0;
        while let Some(higher) = numbers.next(number) {
            assert!(higher > number);
            number = higher;
        }
        assert_eq!(number >> 12, (1 << 20) - 1);
        assert_eq!(numbers.next(u32::MAX), None);
    }

    #[test]
    fn one_message_does_not_use_numbers_up() {
        assert_eq!((within_reach(7, 3), within_reach(7, 9 << 12)), (3, 9 << 12));
        let mut n_messages = 0;
        let mut known = 0;
        while known < u32::MAX {
            known = within_reach(known, u32::MAX);
            n_messages += 1;
        }
        assert_eq!(n_messages, 1024);
    }

    #[test]
    fn neighbours_never_choose_the_same() {
        let choice =
            |join_index| Numbers::new(PeerId::new(join_index, 77), u64::from(join_index) * 0x9e37_79b9).next(7);
        assert_eq!((1000..1256).map(choice).collect::<BTreeSet<_>>().len(), 256);
    }
}
