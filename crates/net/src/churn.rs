//! How long joins take, how long it takes to notice that a member is lost, and how long until training goes on without it.
//!
//! Each peer measures that for itself, by its own clock: it is handed what it hears, what its membership notes and what its peer
//! records.

use std::collections::BTreeMap;
use std::time::Duration;

use nettorrent_swarm::record::{Event, LossCause};
use nettorrent_swarm::{PeerId, View};

use crate::membership::{Note, Why};

/// What is known of members that come and go.
#[derive(Default)]
pub(crate) struct Churn {
    heard: BTreeMap<PeerId, Heard>,
    /// Why those do not take part any more whom the next view will leave out.
    causes: BTreeMap<PeerId, LossCause>,
    /// Losses after which no round has counted yet.
    open: Vec<Loss>,
    joining: Joining,
}

/// When a peer was heard last.
#[derive(Clone, Copy, Default)]
struct Heard {
    at_all: Duration,
    about_training: Duration,
}

/// What a peer was heard of with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sign {
    /// Something: a thread that answers others does that however its computation is.
    Life,
    /// A message about training.
    Training,
}

struct Loss {
    who: PeerId,
    cause: LossCause,
    view: u32,
    detection: Duration,
    /// When the view without it was there.
    since: Duration,
    /// Whether the members of that view, or of a later one, have agreed on whose state goes on.
    is_agreed: bool,
}

#[derive(Clone, Copy, Default)]
enum Joining {
    /// It began with the others, or is long there.
    #[default]
    No,
    Began(Duration),
    /// It began then, and was let in then.
    Admitted(Duration, Duration),
}

impl Churn {
    /// This peer begins to join others who train.
    pub(crate) fn join(&mut self, now: Duration) {
        self.joining = Joining::Began(now);
    }

    /// Something has come from a peer.
    pub(crate) fn hear(&mut self, now: Duration, peer: PeerId, sign: Sign) {
        let heard = self.heard.entry(peer).or_default();
        heard.at_all = now;
        if sign == Sign::Training {
            heard.about_training = now;
        }
        if self.causes.get(&peer) == Some(&LossCause::Disconnected) {
            self.causes.remove(&peer);
        }
    }

    /// The last link with a peer has broken.
    pub(crate) fn disconnect(&mut self, peer: PeerId) {
        self.causes.entry(peer).or_insert(LossCause::Disconnected);
    }

    /// The membership has something to tell. What this peer knows itself counts for more than what it is told.
    pub(crate) fn on_note(&mut self, note: &Note) {
        let (who, cause) = match note {
            Note::Lost { peer, why } => (*peer, cause(*why)),
            Note::Left(peer) => (*peer, LossCause::Left),
            Note::Stuck(peer) | Note::Withholds { peer, .. } => (*peer, LossCause::Stuck),
            Note::LeftOut { member, .. } => (member.id, LossCause::Unreachable),
            Note::Returned(member) | Note::Joined { member, .. } => {
                self.causes.remove(&member.id);
                return;
            }
            Note::Suspected(_) | Note::TooFew { .. } | Note::Renewed { .. } | Note::OutOfNumbers => return,
        };
        let known = self.causes.entry(who).or_insert(cause);
        if cause != LossCause::Told {
            *known = cause;
        }
        // It may be known only when the others have gone on without it.
        let is_open = |loss: &&mut Loss| loss.who == who && loss.cause == LossCause::Told;
        self.open.iter_mut().filter(is_open).for_each(|loss| loss.cause = cause);
    }

    /// One view follows another.
    pub(crate) fn on_view(&mut self, now: Duration, before: &View, after: &View) {
        for &who in before.members.iter().filter(|who| after.rank(**who).is_none()) {
            let cause = self.causes.remove(&who).unwrap_or(LossCause::Told);
            let heard = self.heard.get(&who).copied().unwrap_or(Heard { at_all: now, about_training: now });
            let last = if cause == LossCause::Stuck { heard.about_training } else { heard.at_all };
            let (view, detection) = (after.number, now.saturating_sub(last));
            self.open.push(Loss { who, cause, view, detection, since: now, is_agreed: false });
        }
        self.causes.retain(|who, _| after.rank(*who).is_none());
        self.heard.retain(|who, _| after.rank(*who).is_some());
        // Whoever agrees to a view lives.
        for &who in &*after.members {
            self.hear(now, who, Sign::Training);
        }
    }

    /// The peer records something; what follows from it is returned.
    pub(crate) fn on_event(&mut self, now: Duration, event: &Event) -> Vec<Event> {
        match event {
            Event::View { view, members, .. } => {
                self.open.iter_mut().filter(|loss| loss.view <= *view).for_each(|loss| loss.is_agreed = true);
                if let (Joining::Began(began), true) = (self.joining, members.len() > 1) {
                    self.joining = Joining::Admitted(began, now);
                }
                Vec::new()
            }
            Event::Round { .. } => self.go_on(now),
            _ => Vec::new(),
        }
    }

    /// A round counts.
    fn go_on(&mut self, now: Duration) -> Vec<Event> {
        let open = std::mem::take(&mut self.open);
        let (over, open): (Vec<Loss>, Vec<Loss>) = open.into_iter().partition(|loss| loss.is_agreed);
        self.open = open;
        let mut events: Vec<Event> = over.iter().map(|loss| loss.event(Some(now.saturating_sub(loss.since)))).collect();
        if let Joining::Admitted(began, admitted) = self.joining {
            self.joining = Joining::No;
            let [admission_s, round_s] = [admitted, now].map(|at| at.saturating_sub(began).as_secs_f64());
            events.push(Event::Joined { admission_s, round_s });
        }
        events
    }

    /// The run ends: what is left to be told.
    pub(crate) fn end(&mut self) -> Vec<Event> {
        std::mem::take(&mut self.open).iter().map(|loss| loss.event(None)).collect()
    }
}

impl Loss {
    fn event(&self, recovery: Option<Duration>) -> Event {
        let Self { who, cause, view, detection, .. } = *self;
        let (detection_s, recovery_s) = (detection.as_secs_f64(), recovery.map(|recovery| recovery.as_secs_f64()));
        Event::Lost { who, cause, view, detection_s, recovery_s }
    }
}

fn cause(why: Why) -> LossCause {
    match why {
        Why::Silent => LossCause::Silent,
        Why::Ended => LossCause::Ended,
        Why::CutOff => LossCause::CutOff,
        Why::Told { .. } => LossCause::Told,
        Why::NoAnswer => LossCause::Unreachable,
        Why::Left => LossCause::Left,
        Why::Removed => LossCause::Removed,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use nettorrent_swarm::record::{Event, LossCause};
    use nettorrent_swarm::{PeerId, View};

    use super::{Churn, Sign};
    use crate::membership::{Note, Why};

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn view(number: u32, members: &[u64]) -> View {
        View::new(number, members.iter().copied().map(PeerId).collect())
    }

    fn agreed(number: u32, n_members: u64) -> Event {
        let members = (0..n_members).map(PeerId).collect();
        Event::View { view: number, members, donor: PeerId(0), was_behind: false, round: 0, sites: Vec::new() }
    }

    fn round() -> Event {
        Event::Round {
            epoch: 0,
            round: 1,
            n_samples: 8,
            n_samples_all: 16,
            loss: 1.0,
            n_correct: 4,
            lr: 0.1,
            compute_s: 0.5,
            wait_s: 0.25,
            encode_s: 0.0,
            decode_s: 0.0,
            send_s: 0.0,
            staleness: 0,
            sent_bytes: 0,
            received_bytes: 0,
        }
    }

    #[test]
    fn a_loss_is_told_when_a_round_counts_in_a_view_that_all_agreed_on() {
        let mut churn = Churn::default();
        churn.hear(at(1), PeerId(2), Sign::Training);
        churn.hear(at(3), PeerId(2), Sign::Life);
        churn.on_note(&Note::Lost { peer: PeerId(2), why: Why::Silent });
        churn.on_note(&Note::Lost { peer: PeerId(2), why: Why::Told { by: PeerId(1) } });
        churn.on_view(at(10), &view(1, &[0, 1, 2]), &view(2, &[0, 1]));
        // A round that was about to end when the view came says nothing about the new one.
        assert_eq!(churn.on_event(at(10), &round()), []);
        assert_eq!(churn.on_event(at(11), &agreed(2, 2)), []);
        let (who, cause, recovery_s) = (PeerId(2), LossCause::Silent, Some(4.0));
        let lost = Event::Lost { who, cause, view: 2, detection_s: 7.0, recovery_s };
        assert_eq!(churn.on_event(at(14), &round()), [lost]);
        assert_eq!(churn.on_event(at(15), &round()), []);
    }

    #[test]
    fn a_link_that_breaks_is_a_cause_until_the_peer_is_heard_again() {
        let causes = |is_heard: bool| {
            let mut churn = Churn::default();
            churn.disconnect(PeerId(1));
            if is_heard {
                churn.hear(at(1), PeerId(1), Sign::Life);
            }
            churn.on_view(at(2), &view(1, &[0, 1]), &view(2, &[0]));
            // What is known later counts only if nothing was known before.
            churn.on_note(&Note::Lost { peer: PeerId(1), why: Why::Silent });
            let [Event::Lost { cause, .. }] = churn.end()[..] else { panic!("one loss") };
            cause
        };
        assert_eq!((causes(false), causes(true)), (LossCause::Disconnected, LossCause::Silent));
    }

    #[test]
    fn of_one_that_is_stuck_only_training_is_a_sign_of_life() {
        let mut churn = Churn::default();
        churn.hear(at(1), PeerId(1), Sign::Training);
        churn.hear(at(9), PeerId(1), Sign::Life);
        churn.on_note(&Note::Stuck(PeerId(1)));
        churn.on_view(at(10), &view(1, &[0, 1]), &view(2, &[0]));
        let (who, cause) = (PeerId(1), LossCause::Stuck);
        assert_eq!(churn.end(), [Event::Lost { who, cause, view: 2, detection_s: 9.0, recovery_s: None }]);
        assert_eq!(churn.end(), []);
    }

    #[test]
    fn a_join_is_told_when_its_first_round_counts() {
        let mut churn = Churn::default();
        churn.join(at(1));
        churn.on_event(at(2), &agreed(1, 1));
        assert_eq!(churn.on_event(at(3), &round()), []);
        churn.on_event(at(4), &agreed(2, 3));
        assert_eq!(churn.on_event(at(9), &round()), [Event::Joined { admission_s: 3.0, round_s: 8.0 }]);
        assert_eq!(churn.on_event(at(10), &round()), []);
    }
}
