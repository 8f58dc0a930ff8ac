//! Which strategy to take, and why.

use nettorrent_engine::data::rounds::RoundLength;
use nettorrent_swarm::strategy::{Payload, Turn};
use serde::Serialize;

use crate::pilot::Pilot;
use crate::predict::Forecast;

/// A strategy, and what is known of it.
#[derive(Clone, Debug, Serialize)]
pub struct Judged {
    /// Its name.
    pub strategy: String,
    /// How fast it is.
    #[serde(flatten)]
    pub forecast: Forecast,
    /// How many epochs are needed; none if that did not come out.
    pub epochs: Option<u64>,
    /// How long these take, without tests.
    pub seconds: Option<f64>,
    /// What was found out by simulating it, if it was.
    pub pilot: Option<Pilot>,
    /// Why it could not be simulated to the end, if it could not: then it does not get there.
    pub problem: Option<String>,
    /// What it trains before it exchanges.
    #[serde(skip)]
    pub turn: Turn,
}

/// What to take.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Advice {
    /// The strategy's name.
    pub strategy: String,
    /// Why, in words.
    pub reason: String,
    /// What to be careful about, in words.
    pub caveats: Vec<String>,
}

/// How exact forecasts are: what is no further apart than this is taken to be equally fast.
const EXACTNESS: f64 = 1.25;

impl Judged {
    /// How seldom peers hear of each other, for those that are equally fast: the less seldom, the more each epoch teaches.
    fn seldomness(&self) -> (u32, u8) {
        let n_batches = match self.turn.length {
            RoundLength::Batches(n) | RoundLength::Samples(n) => n,
            RoundLength::Epoch => u32::MAX,
        };
        let replicas_differ = match self.turn.payload {
            Payload::Gradients => 0,
            Payload::Updates => 1,
            Payload::Weights => 2,
        };
        (n_batches, replicas_differ)
    }
}

/// What to take of these, sorted by their time; none if none gets there. `usual` is what it is compared with, and
/// `is_learning_known` says whether epochs were counted by simulating them.
pub fn advise(judged: &[Judged], usual: &str, is_learning_known: bool) -> Option<Advice> {
    let timed = || judged.iter().filter_map(|one| Some((one, one.seconds?)));
    let (first, least_s) = timed().min_by(|a, b| a.1.total_cmp(&b.1))?;
    let is_close = |(_, seconds): &(&Judged, f64)| *seconds <= EXACTNESS * least_s;
    let best = if is_learning_known {
        first
    } else {
        timed().filter(is_close).min_by_key(|(one, _)| one.seldomness()).map_or(first, |(one, _)| one)
    };
    let other = timed().map(|(one, _)| one).find(|one| one.strategy == usual && one.strategy != best.strategy);
    let other = other.or_else(|| timed().map(|(one, _)| one).find(|one| one.strategy != best.strategy));
    let reason = other.map_or_else(|| "it is the only one that gets there".to_owned(), |other| reason(best, other));
    Some(Advice { strategy: best.strategy.clone(), reason, caveats: caveats(best, first, is_learning_known) })
}

fn reason(best: &Judged, other: &Judged) -> String {
    let (own_s, other_s) = (best.seconds.unwrap_or(0.0), other.seconds.unwrap_or(0.0));
    let ratio = other_s / own_s.max(1e-12);
    let (own, than) = (&best.forecast, &other.forecast);
    let name = &other.strategy;
    let waits = |forecast: &Forecast| format!("{:.0} %", 100.0 * forecast.wait_share);
    let mut text = if ratio > EXACTNESS {
        format!("{ratio:.1} times sooner than {name}")
    } else {
        format!("about as soon as {name}, as far as can be foretold")
    };
    if own.wait_share < than.wait_share {
        text += &format!(", because a peer waits {} of its time and not {}", waits(own), waits(than));
    }
    if 1.5 * own.bytes_per_peer < than.bytes_per_peer {
        let less = than.bytes_per_peer / own.bytes_per_peer.max(1.0);
        text += &format!(", as it sends {less:.1} times fewer bytes");
    }
    if let (Some(epochs), Some(others)) = (best.epochs, other.epochs)
        && epochs != others
    {
        text += &format!("; it needs {epochs} epochs where {name} needs {others}");
    }
    text
}

fn caveats(best: &Judged, fastest: &Judged, is_learning_known: bool) -> Vec<String> {
    let mut caveats = Vec::new();
    if best.strategy != fastest.strategy {
        caveats.push(format!(
            "{} is a little faster, but its peers hear of each other less often, so that an epoch may teach less.",
            fastest.strategy
        ));
    }
    if !is_learning_known && best.turn.payload == Payload::Weights {
        let what = match best.turn.length {
            RoundLength::Batches(1) => "Replicas differ while training".to_owned(),
            RoundLength::Batches(n) => format!("Peers exchange once in {n} batches"),
            RoundLength::Samples(n) => format!("Peers exchange once in {n} samples"),
            RoundLength::Epoch => "Peers exchange once an epoch".to_owned(),
        };
        caveats.push(format!("{what}: an epoch may teach less. --target counts how many epochs are needed."));
    }
    if best.turn.payload == Payload::Updates {
        caveats.push("Peers train freely: their replicas differ a little until the end.".to_owned());
    }
    if best.forecast.is_bound {
        caveats.push("It may say less than was counted with, and be faster.".to_owned());
    }
    caveats
}

#[cfg(test)]
mod tests {
    use nettorrent_engine::data::rounds::RoundLength;
    use nettorrent_swarm::strategy::{Payload, Scale, Turn};

    use super::{Judged, advise};
    use crate::predict::Forecast;

    fn judged(strategy: &str, payload: Payload, n_batches: u32, seconds: Option<f64>) -> Judged {
        let forecast = Forecast {
            round_s: 1.0,
            rounds_per_epoch: 1,
            epoch_s: 1.0,
            samples_per_s: 1.0,
            bytes_per_peer: 1000.0 / f64::from(n_batches),
            wait_share: 0.5,
            is_bound: false,
        };
        let turn = Turn { payload, length: RoundLength::Batches(n_batches), scale: Scale::Plain };
        Judged { strategy: strategy.to_owned(), forecast, epochs: Some(1), seconds, pilot: None, problem: None, turn }
    }

    #[test]
    fn of_equally_fast_ones_the_one_that_exchanges_most_often_is_taken() {
        let often = judged("often", Payload::Gradients, 1, Some(11.0));
        let seldom = judged("seldom", Payload::Weights, 50, Some(10.0));
        let advice = advise(&[seldom.clone(), often.clone()], "often", false).unwrap();
        assert_eq!(advice.strategy, "often");
        assert!(advice.caveats[0].starts_with("seldom is a little faster"), "{advice:?}");
        assert_eq!(advise(&[seldom.clone(), often], "often", true).unwrap().strategy, "seldom", "learning is counted");
        let slow = judged("often", Payload::Gradients, 1, Some(400.0));
        let advice = advise(&[seldom, slow], "often", false).unwrap();
        assert_eq!(advice.strategy, "seldom");
        assert!(advice.reason.starts_with("40.0 times sooner than often"), "{advice:?}");
        assert!(advice.reason.contains("50.0 times fewer bytes"), "{advice:?}");
        assert!(advice.caveats[0].contains("once in 50 batches"), "{advice:?}");
    }

    #[test]
    fn who_does_not_get_there_is_not_taken() {
        let lost = judged("lost", Payload::Gradients, 1, None);
        assert_eq!(advise(std::slice::from_ref(&lost), "lost", true), None);
        let advice = advise(&[lost, judged("slow", Payload::Weights, 1, Some(9.0))], "lost", true).unwrap();
        assert_eq!((advice.strategy.as_str(), advice.reason.as_str()), ("slow", "it is the only one that gets there"));
    }
}
