//! Joins and losses of a run, each put together from what several peers tell of it.

use nettorrent_swarm::PeerId;
use nettorrent_swarm::record::LossCause;

use crate::history::History;

/// A peer that came, or came back, and took over the others' state.
#[derive(Clone, Debug, PartialEq)]
pub struct JoinSummary {
    /// When that was over.
    pub at_s: f64,
    /// Who.
    pub peer: PeerId,
    /// How much of the state came over links.
    pub n_bytes: u64,
    /// How long that took.
    pub state_s: f64,
    /// From whom it came.
    pub donors: Vec<PeerId>,
    /// How long it took from when it began to look for the others until its first round counted; none for one that had been
    /// there before, or that has not come so far.
    pub round_s: Option<f64>,
}

/// A member that was lost.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LossSummary {
    /// When training went on, or the run ended.
    pub at_s: f64,
    /// Who.
    pub lost: PeerId,
    /// Why.
    pub cause: LossCause,
    /// The first view without it.
    pub view: u32,
    /// How long it took from its last sign of life until the others were in that view: the longest that one of them tells.
    pub detection_s: f64,
    /// How long it took from there until a round counted again at all who tell; none if none did.
    pub recovery_s: Option<f64>,
}

impl History {
    /// Peers that joined or came back, in the order of time.
    pub fn join_summaries(&self) -> Vec<JoinSummary> {
        let mut joins: Vec<JoinSummary> = Vec::new();
        let mut covered = vec![false; self.states_received.len()];
        for (at_s, joined) in &self.joined {
            let (peer, round_s) = (joined.peer, Some(joined.round_s));
            let mut join = JoinSummary { at_s: *at_s, peer, n_bytes: 0, state_s: 0.0, donors: Vec::new(), round_s };
            for ((received_s, received), covered) in self.states_received.iter().zip(&mut covered) {
                if received.peer == joined.peer && received_s <= at_s && !std::mem::replace(covered, true) {
                    join.n_bytes += received.n_bytes;
                    join.state_s += received.seconds;
                    join.donors.extend(&received.donors);
                }
            }
            join.donors.sort_unstable();
            join.donors.dedup();
            joins.push(join);
        }
        let others = self.states_received.iter().zip(covered).filter(|(_, covered)| !covered);
        joins.extend(others.map(|((at_s, received), _)| JoinSummary {
            at_s: *at_s,
            peer: received.peer,
            n_bytes: received.n_bytes,
            state_s: received.seconds,
            donors: received.donors.clone(),
            round_s: None,
        }));
        joins.sort_by(|a, b| a.at_s.total_cmp(&b.at_s));
        joins
    }

    /// Members that were lost, in the order of time. Each is told of by all others.
    pub fn loss_summaries(&self) -> Vec<LossSummary> {
        let mut losses: Vec<LossSummary> = Vec::new();
        for (at_s, told) in &self.losses {
            let known = losses.iter_mut().find(|known| (known.lost, known.view) == (told.lost, told.view));
            let Some(known) = known else {
                losses.push(LossSummary {
                    at_s: *at_s,
                    lost: told.lost,
                    cause: told.cause,
                    view: told.view,
                    detection_s: told.detection_s,
                    recovery_s: told.recovery_s,
                });
                continue;
            };
            known.at_s = known.at_s.max(*at_s);
            if known.cause == LossCause::Told {
                known.cause = told.cause;
            }
            known.detection_s = known.detection_s.max(told.detection_s);
            known.recovery_s = known.recovery_s.into_iter().chain(told.recovery_s).reduce(f64::max);
        }
        losses
    }
}

#[cfg(test)]
mod tests {
    use nettorrent_swarm::PeerId;
    use nettorrent_swarm::record::LossCause;

    use crate::event::{Event, Joined, Line, Loss, StateReceived};
    use crate::history::History;

    fn history(events: Vec<(f64, Event)>) -> History {
        let mut history = History::default();
        events.into_iter().for_each(|(at_s, event)| history.add(Line { at_s, event }));
        history
    }

    fn loss(teller: u64, cause: LossCause, detection_s: f64, recovery_s: Option<f64>) -> Event {
        Event::Loss(Loss { peer: PeerId(teller), lost: PeerId(3), cause, view: 2, detection_s, recovery_s })
    }

    #[test]
    fn what_several_tell_of_a_loss_is_one_loss() {
        let history = history(vec![
            (5.0, loss(0, LossCause::Told, 1.0, Some(0.5))),
            (6.0, loss(1, LossCause::Silent, 1.5, Some(0.75))),
            (7.0, loss(2, LossCause::Told, 1.25, None)),
        ]);
        let [loss] = history.loss_summaries()[..] else { panic!("one loss") };
        assert_eq!((loss.lost, loss.cause, loss.at_s), (PeerId(3), LossCause::Silent, 7.0));
        assert_eq!((loss.detection_s, loss.recovery_s), (1.5, Some(0.75)));
    }

    #[test]
    fn a_join_has_the_state_that_came_before_it_and_a_return_has_its_own_line() {
        let received = |donor: u64| {
            let (peer, donors) = (PeerId(3), vec![PeerId(donor)]);
            Event::StateReceived(StateReceived { peer, n_bytes: 100, seconds: 2.0, donors })
        };
        let joined = Event::Joined(Joined { peer: PeerId(3), admission_s: 0.5, round_s: 4.0 });
        let history = history(vec![(3.0, received(0)), (4.0, joined), (9.0, received(1))]);
        let joins = history.join_summaries();
        let lines: Vec<_> = joins.iter().map(|join| (join.at_s, join.n_bytes, join.round_s)).collect();
        assert_eq!(lines, [(4.0, 100, Some(4.0)), (9.0, 100, None)]);
        assert_eq!(joins[1].donors, [PeerId(1)]);
    }
}
