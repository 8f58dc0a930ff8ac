//! How near another member is: how long it takes until it has answered a question.
//!
//! A link that is there anew is measured by some questions, one after the other, before the first view with whoever is at its other end.
//! The shortest time counts: what makes a time longer is the load of the two machines, and not the way between them.

use std::time::Duration;

use nettorrent_engine::rng::mix;

/// How many answers are enough to know how long one takes.
const N_ANSWERS: u32 = 5;

/// What is known of one of the others.
#[derive(Default)]
pub(super) struct RoundTrip {
    shortest: Option<Duration>,
    /// How many answers have come over the present link.
    n_answers: u32,
    /// The question that was asked last and is not answered, and when that was.
    asked: Option<(u32, Duration)>,
    n_asked: u32,
    /// Known to nobody else: who could guess the number of a question would answer it before it is asked, and seem near.
    salt: u64,
}

impl RoundTrip {
    /// Of somebody of whom nothing is known.
    pub(super) fn new(salt: u64) -> Self {
        Self { salt, ..Self::default() }
    }

    /// The number of the next question, if there is anything to ask. An answer is waited for so long.
    pub(super) fn question(&mut self, now: Duration, patience: Duration) -> Option<u32> {
        let is_awaited = self.asked.is_some_and(|(_, at)| now < at + patience);
        if self.n_answers == N_ANSWERS || is_awaited {
            return None;
        }
        self.n_asked = self.n_asked.wrapping_add(1);
        let number = mix(self.salt ^ u64::from(self.n_asked)) as u32;
        self.asked = Some((number, now));
        Some(number)
    }

    /// The question of this number is answered.
    pub(super) fn on_answer(&mut self, now: Duration, number: u32) {
        let Some((_, asked)) = self.asked.take_if(|(awaited, _)| *awaited == number) else { return };
        let took = now.saturating_sub(asked);
        // What was measured over an earlier link says nothing about this one.
        let shortest = self.shortest.filter(|_| self.n_answers > 0);
        self.shortest = Some(shortest.map_or(took, |shortest| shortest.min(took)));
        self.n_answers += 1;
    }

    /// The link broke, or goes by another way. What is known holds until something else is.
    pub(super) fn break_off(&mut self) {
        (self.n_answers, self.asked) = (0, None);
    }

    /// How long it takes, if that is known.
    pub(super) fn shortest(&self) -> Option<Duration> {
        self.shortest
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{N_ANSWERS, RoundTrip};

    const PATIENCE: Duration = Duration::from_secs(1);

    fn millis(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    /// Asks once, and has the answer take so long.
    fn measure(round_trip: &mut RoundTrip, at: u64, takes: u64) {
        let number = round_trip.question(millis(at), PATIENCE).expect("there is something to ask");
        assert_eq!(round_trip.question(millis(at), PATIENCE), None, "one after the other");
        round_trip.on_answer(millis(at + takes), number);
    }

    #[test]
    fn the_shortest_of_some_answers_counts() {
        let mut round_trip = RoundTrip::default();
        for (k, takes) in [40, 30, 900, 31, 50].into_iter().enumerate() {
            measure(&mut round_trip, 1000 * k as u64, takes);
        }
        assert_eq!(round_trip.shortest(), Some(millis(30)));
        assert_eq!((N_ANSWERS, round_trip.question(millis(9000), PATIENCE)), (5, None));
    }

    #[test]
    fn a_new_link_is_measured_anew_and_until_then_the_old_time_holds() {
        let mut round_trip = RoundTrip::default();
        measure(&mut round_trip, 0, 2);
        let lost = round_trip.question(millis(10), PATIENCE).unwrap();
        round_trip.break_off();
        round_trip.on_answer(millis(11), lost);
        assert_eq!(round_trip.shortest(), Some(millis(2)));
        measure(&mut round_trip, 20, 80);
        assert_eq!(round_trip.shortest(), Some(millis(80)));
    }

    #[test]
    fn a_question_that_is_lost_is_asked_again() {
        let mut round_trip = RoundTrip::default();
        let first = round_trip.question(millis(0), PATIENCE).unwrap();
        assert_eq!(round_trip.question(millis(999), PATIENCE), None);
        let second = round_trip.question(millis(1000), PATIENCE).unwrap();
        // The first answer is not taken for the second, which would seem near.
        round_trip.on_answer(millis(1001), first);
        assert_eq!(round_trip.shortest(), None);
        round_trip.on_answer(millis(1070), second);
        assert_eq!(round_trip.shortest(), Some(millis(70)));
    }
}
