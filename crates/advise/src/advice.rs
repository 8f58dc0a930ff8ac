//! Which strategy to take, if any is sooner at the target than one machine alone, and why.

use nettorrent_figures::Unit;
use nettorrent_swarm::strategy::Payload;
use serde::Serialize;

use crate::predict::Forecast;
use crate::trial::Trial;
use crate::verdict::{Learning, Verdict};

/// What stands in the place of a strategy's name for one machine alone.
pub(crate) const ALONE: &str = "alone";

/// A strategy, or one machine alone, and what is known of it.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Judged {
    /// Its name.
    pub strategy: String,
    /// How fast it is.
    #[serde(flatten)]
    pub forecast: Forecast,
    /// Whether it learns.
    #[serde(flatten)]
    pub verdict: Verdict,
    /// How long it takes to the target, without tests; none if it does not get there.
    pub seconds: Option<f64>,
    /// What was found out by simulating it, if it was.
    pub trial: Option<Trial>,
    /// What peers exchange; nothing if there is only one.
    #[serde(skip)]
    pub payload: Option<Payload>,
}

/// What to take.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Advice {
    /// The strategy's name, or [`ALONE`].
    pub strategy: String,
    /// Why, in words.
    pub reason: String,
    /// What to be careful about, in words.
    pub caveats: Vec<String>,
}

/// How exact forecasts are: what is no further apart than this is taken to be equally fast.
const EXACTNESS: f64 = 1.25;

impl Judged {
    /// The time by which they are sorted; those who do not get to the target come last, by their speed.
    pub(crate) fn rank_s(&self) -> f64 {
        self.seconds.unwrap_or(1e12 + self.forecast.epoch_s)
    }

    /// How seldom peers hear of each other, for those that are equally fast: the less seldom, the more each epoch teaches.
    fn seldomness(&self) -> (u64, u8) {
        let replicas_differ = match self.payload {
            None | Some(Payload::Gradients) => 0,
            Some(Payload::Updates) => 1,
            Some(Payload::Weights) => 2,
        };
        (self.forecast.batches_per_round, replicas_differ)
    }

    fn is_tested(&self) -> bool {
        self.verdict.learning != Learning::Untested
    }

    fn is_cut_short(&self) -> bool {
        self.seconds.is_none() && matches!(self.verdict.learning, Learning::OnCourse | Learning::Unknown)
    }

    /// How long the epochs take that were simulated: who was not at the target by then takes longer.
    fn simulated_s(&self) -> f64 {
        self.verdict.n_epochs_simulated as f64 * self.forecast.epoch_s
    }
}

/// What to take of these: the one that is at the target first, or one machine alone unless that takes clearly longer.
/// None if nobody gets there, or if one machine might be sooner and there was no time to see it. `usual` is the strategy that the best one is compared with.
pub(crate) fn advise(alone: &Judged, judged: &[Judged], usual: &str) -> Option<Advice> {
    let Some(best) = best(judged) else {
        let alone_s = alone.seconds?;
        let reason = format!("no strategy reached the target in simulation; a single machine takes {alone_s:.2} s");
        return Some(Advice { strategy: ALONE.to_owned(), reason, caveats: caveats(alone) });
    };
    if alone.is_cut_short() && alone.simulated_s() <= best.seconds? {
        return None;
    }
    if let Some(reason) = reason_for_alone(alone, best) {
        return Some(Advice { strategy: ALONE.to_owned(), reason, caveats: caveats(alone) });
    }
    let others = || judged.iter().filter(|one| one.seconds.is_some() && one.strategy != best.strategy);
    let other = others().find(|one| one.strategy == usual).or_else(|| others().next());
    let reasons = [than_alone(alone, best), other.map(|other| than_other(best, other))];
    let reason = reasons.into_iter().flatten().collect::<Vec<_>>().join("; ");
    let reason = if reason.is_empty() { "it is the only one that reaches the target".to_owned() } else { reason };
    Some(Advice { strategy: best.strategy.clone(), reason, caveats: caveats(best) })
}

/// The fastest; where nobody knows who learns how well, of those that are equally fast the one whose peers exchange most often.
fn best(judged: &[Judged]) -> Option<&Judged> {
    let timed = || judged.iter().filter_map(|one| Some((one, one.seconds?)));
    let (first, least_s) = timed().min_by(|a, b| a.1.total_cmp(&b.1))?;
    if first.is_tested() {
        return Some(first);
    }
    let close = timed().filter(|(_, seconds)| *seconds <= EXACTNESS * least_s);
    close.min_by_key(|(one, _)| one.seldomness()).map(|(one, _)| one)
}

fn reason_for_alone(alone: &Judged, best: &Judged) -> Option<String> {
    let (alone_s, best_s, name) = (alone.seconds?, best.seconds?, &best.strategy);
    let n_times = best_s / alone_s.max(1e-12);
    if n_times >= 1.0 {
        return Some(format!("it is faster: {alone_s:.2} s, against {best_s:.2} s with the best strategy, {name}"));
    }
    (n_times * EXACTNESS >= 1.0).then(|| {
        format!(
            "it is about as fast: {alone_s:.2} s, against {best_s:.2} s with the best strategy, {name}, which \
             is not worth several machines"
        )
    })
}

fn than_alone(alone: &Judged, best: &Judged) -> Option<String> {
    let (alone_s, best_s) = (alone.seconds?, best.seconds?);
    let ratio = alone_s / best_s.max(1e-12);
    Some(format!("{ratio:.1} times faster than a single machine ({best_s:.2} s against {alone_s:.2} s)"))
}

fn than_other(best: &Judged, other: &Judged) -> String {
    let (own_s, other_s) = (best.seconds.unwrap_or(0.0), other.seconds.unwrap_or(0.0));
    let ratio = other_s / own_s.max(1e-12);
    let (own, than) = (&best.forecast, &other.forecast);
    let name = &other.strategy;
    let waits = |forecast: &Forecast| format!("{:.0} %", 100.0 * forecast.wait_share);
    let mut text = if ratio > EXACTNESS {
        format!("{ratio:.1} times faster than {name}")
    } else {
        format!("about as fast as {name}, within the accuracy of the prediction")
    };
    if own.wait_share < than.wait_share {
        text += &format!(", because peers wait {} of the time rather than {}", waits(own), waits(than));
    }
    if 1.5 * own.bytes_per_peer < than.bytes_per_peer {
        let less = than.bytes_per_peer / own.bytes_per_peer.max(1.0);
        text += &format!(", as it sends {less:.1} times fewer bytes");
    }
    if let (Some(epochs), Some(others)) = (best.verdict.epochs, other.verdict.epochs)
        && epochs != others
    {
        let [epochs, others] = [epochs, others].map(|epochs| Unit::Count.format(epochs));
        text += &format!("; it needs {epochs} epochs where {name} needs {others}");
    }
    text
}

fn caveats(best: &Judged) -> Vec<String> {
    let mut caveats = Vec::new();
    match best.verdict.learning {
        Learning::Untested if best.payload.is_some() => {
            caveats
                .push("Convergence was not simulated: it is assumed to need as many epochs as a single machine.");
        }
        Learning::OnCourse => caveats.push(
            "The time budget ran out before it reached the target: it is assumed to need as many epochs as a single machine. \
             A larger --budget would tell.",
        ),
        Learning::Reached if best.verdict.n_seeds == 1 => {
            caveats.push("It was simulated with one seed only; more need a larger --budget.");
        }
        _ => {}
    }
    if best.payload == Some(Payload::Updates) {
        caveats.push("Peers train asynchronously: replicas differ slightly until the final all-reduce.");
    }
    if best.forecast.is_bound {
        caveats.push("Its message sizes are upper bounds: it may be faster.");
    }
    caveats.into_iter().map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use nettorrent_swarm::strategy::Payload;

    use super::{ALONE, Judged, advise};
    use crate::predict::Forecast;
    use crate::verdict::{Learning, Verdict};

    fn judged(strategy: &str, learning: Learning, n_batches: u64, seconds: Option<f64>) -> Judged {
        let forecast = Forecast {
            round_s: 1.0,
            rounds_per_epoch: 1,
            batches_per_round: n_batches,
            messages_s: 0.0,
            epoch_s: 1.0,
            samples_per_s: 1.0,
            bytes_per_peer: 1000.0 / n_batches as f64,
            wait_share: 0.5,
            is_bound: false,
        };
        let payload = match (strategy, n_batches) {
            (ALONE, _) => None,
            (_, 1) => Some(Payload::Gradients),
            _ => Some(Payload::Weights),
        };
        let verdict = Verdict { learning, ..Verdict::untested(1) };
        Judged { strategy: strategy.to_owned(), forecast, verdict, seconds, trial: None, payload }
    }

    fn reached(strategy: &str, n_batches: u64, seconds: f64) -> Judged {
        judged(strategy, Learning::Reached, n_batches, Some(seconds))
    }

    #[test]
    fn nothing_is_recommended_that_one_machine_beats() {
        let slower = [reached("often", 1, 30.0), reached("seldom", 50, 20.0)];
        let advice = advise(&reached(ALONE, 1, 10.0), &slower, "often").unwrap();
        assert_eq!(advice.strategy, ALONE);
        assert_eq!(advice.reason, "it is faster: 10.00 s, against 20.00 s with the best strategy, seldom");
        // A tie, and what is hardly sooner, is no reason for several machines.
        for seconds in [20.0, 24.0] {
            assert_eq!(advise(&reached(ALONE, 1, seconds), &slower, "often").unwrap().strategy, ALONE, "{seconds}");
        }
        let advice = advise(&reached(ALONE, 1, 21.0), &slower, "often").unwrap();
        assert!(advice.reason.starts_with("it is about as fast: 21.00 s, against 20.00 s"), "{advice:?}");
        assert_eq!(advise(&reached(ALONE, 1, 26.0), &slower, "often").unwrap().strategy, "seldom");
        let advice = advise(&reached(ALONE, 1, 40.0), &slower, "often").unwrap();
        assert_eq!(advice.strategy, "seldom");
        assert!(
            advice.reason.starts_with("2.0 times faster than a single machine (20.00 s against 40.00 s); 1.5 times")
        );
        assert!(advice.reason.contains("50.0 times fewer bytes"), "{advice:?}");
    }

    #[test]
    fn who_does_not_learn_is_never_recommended() {
        let lost = judged("lost", Learning::DoesNotLearn, 1, None);
        let alone = reached(ALONE, 1, 10.0);
        let advice = advise(&alone, std::slice::from_ref(&lost), "lost").unwrap();
        assert_eq!(advice.strategy, ALONE);
        assert!(advice.reason.ends_with("a single machine takes 10.00 s"), "{advice:?}");
        let nobody = judged(ALONE, Learning::DoesNotLearn, 1, None);
        assert_eq!(advise(&nobody, std::slice::from_ref(&lost), "lost"), None);
        let advice = advise(&nobody, &[lost, reached("slow", 1, 90.0)], "lost").unwrap();
        assert_eq!(
            (advice.strategy.as_str(), advice.reason.as_str()),
            ("slow", "it is the only one that reaches the target")
        );
    }

    #[test]
    fn nothing_is_recommended_that_one_machine_might_beat() {
        let mut alone = judged(ALONE, Learning::OnCourse, 1, None);
        alone.verdict.n_epochs_simulated = 5;
        // Five epochs of a second each were not enough for it.
        assert_eq!(advise(&alone, &[reached("fast", 1, 4.0)], "fast").unwrap().strategy, "fast");
        assert_eq!(advise(&alone, &[reached("slow", 1, 6.0)], "slow"), None);
    }

    #[test]
    fn of_equally_fast_ones_that_were_not_tested_the_one_that_exchanges_most_often_is_taken() {
        let untested = |name: &str, n_batches, seconds| judged(name, Learning::Untested, n_batches, Some(seconds));
        let alone = untested(ALONE, 1, 100.0);
        let both = [untested("seldom", 50, 10.0), untested("often", 1, 11.0)];
        let advice = advise(&alone, &both, "often").unwrap();
        assert_eq!(advice.strategy, "often");
        assert!(advice.caveats[0].contains("was not simulated"), "{advice:?}");
        let tested = [reached("seldom", 50, 10.0), reached("often", 1, 11.0)];
        assert_eq!(advise(&alone, &tested, "often").unwrap().strategy, "seldom", "the first at the target");
    }
}
