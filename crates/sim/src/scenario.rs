//! Scenarios: links, slow peers, and what goes wrong when, as plain data.

use std::time::Duration;

use nettorrent_engine::rng::Rng;
use serde::{Deserialize, Serialize};

use nettorrent_swarm::link_spec::{LinkSpec, as_text};

use crate::attack::Attack;
use crate::handling::Handling;

/// All that a simulation makes up. Peers are numbered from 0 in the order in which they come; those of `joins` follow those
/// who are there from the beginning.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Scenario {
    /// Where the scenario's own chances come from: jitter, losses, who is slow.
    pub seed: u64,
    /// Every peer's link, up and down. A frame takes half of the sender's delay and half of the receiver's.
    pub link: LinkSpec,
    /// Peers whose links are others.
    pub links: Vec<PeerLinks>,
    /// How many peers send through slower uplinks; those of `links` have their own.
    pub slow_uplinks: SlowUplinks,
    /// Groups of peers that reach each other over faster links than these, and are told so: the first peers are in the first one, and so on.
    pub sites: Vec<Site>,
    /// Whether peers are not told of these but find out themselves who is near, by how long answers take.
    pub finds_sites: bool,
    /// By which share, at most, the delay of a pair of peers is shorter or longer than their links say.
    pub spread: f64,
    /// By how much, at most, a frame is late.
    #[serde(with = "as_text")]
    pub jitter: Duration,
    /// The share of packets that get lost and are sent again, which makes them late.
    pub loss: f64,
    /// How long training one sample takes; testing one takes a third of it.
    #[serde(with = "as_text")]
    pub sample_time: Duration,
    /// How long training a batch takes besides its samples.
    #[serde(with = "as_text")]
    pub step_time: Duration,
    /// What messages cost peers besides the time on their links.
    pub handling: Handling,
    /// After how long peers know what their uplinks carry, for real ones have to find out; never, if it is [`Duration::MAX`].
    #[serde(with = "as_text")]
    pub uplinks_known_after: Duration,
    /// Who is slow all the time.
    pub stragglers: Stragglers,
    /// Who is slow when.
    pub slow: Vec<Slow>,
    /// After how long a silent peer is given up; never, if it is [`Duration::MAX`].
    #[serde(with = "as_text")]
    pub deadline: Duration,
    /// What hostile peers hand in instead of what they learnt: `sign-flip`, `scaled:FACTOR` or `a-little:DEVIATIONS`.
    pub attack: Option<Attack>,
    /// How many of the peers that are there from the beginning are hostile: the last ones.
    pub attackers: usize,
    /// How peers come and go all the time.
    pub churn: Option<Churn>,
    /// For how long at least a view lasts: whoever comes or goes meanwhile is told of in the next one.
    #[serde(with = "as_text")]
    pub view_lasts: Duration,
    /// What happens to single peers.
    pub faults: Vec<Fault>,
    /// Who comes later.
    pub joins: Vec<Join>,
    /// When the network falls apart.
    pub partitions: Vec<Partition>,
    /// The simulated time after which a run is given up.
    #[serde(with = "as_text")]
    pub limit: Duration,
}

/// A peer's own links.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PeerLinks {
    /// Whose.
    pub peer: usize,
    /// What it sends through.
    pub up: LinkSpec,
    /// What it receives through.
    pub down: LinkSpec,
}

/// Peers that are in one place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Site {
    /// How many.
    pub peers: usize,
    /// How many such sites there are.
    #[serde(default = "one")]
    pub count: usize,
    /// A peer's link within its site, up and down, beside the one by which it reaches all others.
    pub link: LinkSpec,
}

fn one() -> usize {
    1
}

/// Peers that send slowly: as it is where people live, they receive as fast as others.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SlowUplinks {
    /// Which share of the peers; who, is a matter of chance.
    pub share: f64,
    /// What they send through.
    pub up: LinkSpec,
}

impl Default for SlowUplinks {
    fn default() -> Self {
        Self { share: 0.0, up: Scenario::lan_link() }
    }
}

/// Peers that come and go.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Churn {
    /// After so long half of those are gone who came together, whenever that is; for each that goes another comes at once.
    #[serde(with = "as_text")]
    pub median_stay: Duration,
    /// Which share of those that go says nothing, so that the others notice after the deadline.
    #[serde(default)]
    pub killed: f64,
}

/// Peers that compute slowly.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Stragglers {
    /// Which share of the peers.
    pub share: f64,
    /// How many times longer they take.
    pub factor: f64,
}

impl Default for Stragglers {
    fn default() -> Self {
        Self { share: 0.0, factor: 1.0 }
    }
}

/// A time during which a peer computes slowly. Where several hold, their factors multiply.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Slow {
    /// Who.
    pub peer: usize,
    /// How many times longer it takes.
    pub factor: f64,
    /// From when on.
    #[serde(with = "as_text", default)]
    pub from: Duration,
    /// Until when.
    #[serde(with = "as_text", default = "never")]
    pub until: Duration,
}

fn never() -> Duration {
    Duration::MAX
}

/// Something that happens to a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fault {
    /// To whom.
    pub peer: usize,
    /// When.
    pub when: When,
    /// What.
    pub what: What,
}

/// When a fault happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum When {
    /// At a time.
    At(#[serde(with = "as_text")] Duration),
    /// As soon as the peer has done this many rounds, and said what it had to say then.
    Round(u32),
}

/// What happens to a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum What {
    /// It is gone, and what had not left it with it. The others notice after the deadline.
    Kill,
    /// It does nothing for a while; if that is longer than the deadline, it is given up and joins again afterwards.
    Hang(#[serde(with = "as_text")] Duration),
    /// It says goodbye.
    Leave,
}

/// A joiner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Join {
    /// When it comes.
    #[serde(with = "as_text")]
    pub at: Duration,
}

/// A time during which some peers cannot reach the others. If it is longer than the deadline, both sides go on by themselves.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Partition {
    /// Who is cut off from the rest.
    pub peers: Vec<usize>,
    /// From when on.
    #[serde(with = "as_text")]
    pub from: Duration,
    /// Until when.
    #[serde(with = "as_text")]
    pub until: Duration,
}

/// A scenario that makes no sense, or not for this job.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("scenario.{setting}: {problem}")]
pub struct ScenarioError {
    setting: &'static str,
    problem: String,
}

impl ScenarioError {
    pub(crate) fn attack(problem: &str) -> Self {
        Self { setting: "attack", problem: problem.to_owned() }
    }
}

/// How many partitions there can be: peers' sides are the bits of one number.
const MOST_PARTITIONS: usize = 64;

impl Default for Scenario {
    fn default() -> Self {
        Self {
            seed: 1,
            link: Self::lan_link(),
            links: Vec::new(),
            slow_uplinks: SlowUplinks::default(),
            sites: Vec::new(),
            finds_sites: false,
            spread: 0.0,
            jitter: Duration::ZERO,
            loss: 0.0,
            sample_time: Duration::from_millis(1),
            step_time: Duration::ZERO,
            handling: Handling::default(),
            uplinks_known_after: Duration::ZERO,
            stragglers: Stragglers::default(),
            slow: Vec::new(),
            deadline: Duration::from_secs(5),
            attack: None,
            attackers: 0,
            churn: None,
            view_lasts: Duration::ZERO,
            faults: Vec::new(),
            joins: Vec::new(),
            partitions: Vec::new(),
            limit: Duration::from_secs(365 * 24 * 3600),
        }
    }
}

impl Scenario {
    /// Machines in one room: `1gbit/200us`.
    pub fn lan() -> Self {
        Self::default()
    }

    const fn lan_link() -> LinkSpec {
        LinkSpec { bits_per_second: Some(1_000_000_000), delay: Duration::from_micros(200) }
    }

    /// Machines at people's homes: `50mbit/20ms`, pairs between half and one and a half times that, some jitter and losses.
    pub fn wan() -> Self {
        Self {
            link: LinkSpec { bits_per_second: Some(50_000_000), delay: Duration::from_millis(20) },
            spread: 0.5,
            jitter: Duration::from_millis(2),
            loss: 0.001,
            ..Self::default()
        }
    }

    /// Refuses what makes no sense for this many peers at the beginning.
    pub fn check(&self, n_peers: usize) -> Result<(), ScenarioError> {
        let error = |setting, problem: String| Err(ScenarioError { setting, problem });
        let share = |setting, value: f64, most: f64| match (0.0..=most).contains(&value) {
            true => Ok(()),
            false => error(setting, format!("{value} must be a share from 0 to {most}")),
        };
        share("spread", self.spread, 1.0)?;
        // With more, hardly anything would ever arrive.
        share("loss", self.loss, 0.5)?;
        share("stragglers.share", self.stragglers.share, 1.0)?;
        share("slow_uplinks.share", self.slow_uplinks.share, 1.0)?;
        if let Some(Churn { median_stay, killed }) = self.churn {
            share("churn.killed", killed, 1.0)?;
            if median_stay < Duration::from_secs(1) {
                return error("churn.median_stay", format!("{median_stay:?}: must be a second at least"));
            }
        }
        let is_factor = |factor: f64| (1.0..=1e6).contains(&factor);
        if !is_factor(self.stragglers.factor) {
            return error("stragglers.factor", format!("{} must be a number from 1 up", self.stragglers.factor));
        }
        if let Some(slow) = self.slow.iter().find(|slow| !is_factor(slow.factor)) {
            return error("slow.factor", format!("{} must be a number from 1 up", slow.factor));
        }
        if n_peers == 0 {
            return error("peers", "there must be at least one".to_owned());
        }
        if self.attack.is_some() != (self.attackers > 0) || self.attackers >= n_peers {
            let problem = "with an attack at least 1, without one 0, and at least one peer has to be honest";
            return error("attackers", format!("{} of {n_peers}: {problem}", self.attackers));
        }
        self.check_peers(n_peers)?;
        let n_at_sites =
            self.sites.iter().fold(0, |n: usize, site| n.saturating_add(site.peers.saturating_mul(site.count)));
        if n_at_sites > n_peers {
            return error("sites", format!("they have {n_at_sites} peers, and there are {n_peers} at the beginning"));
        }
        if self.partitions.len() > MOST_PARTITIONS {
            return error("partitions", format!("there can be {MOST_PARTITIONS}, not {}", self.partitions.len()));
        }
        match self.partitions.iter().find(|partition| partition.until <= partition.from) {
            Some(Partition { from, until, .. }) => {
                error("partitions", format!("from {from:?} until {until:?} is no time"))
            }
            None => Ok(()),
        }
    }

    /// Whether a peer is hostile, of so many that are there from the beginning.
    pub fn is_hostile(&self, peer: usize, n_peers: usize) -> bool {
        (n_peers - self.attackers..n_peers).contains(&peer)
    }

    fn check_peers(&self, n_peers: usize) -> Result<(), ScenarioError> {
        let n_all = n_peers + self.joins.len();
        let faulty = self.faults.iter().map(|fault| ("faults", fault.peer));
        let linked = self.links.iter().map(|links| ("links", links.peer));
        let slow = self.slow.iter().map(|slow| ("slow", slow.peer));
        let cut = self.partitions.iter().flat_map(|partition| &partition.peers).map(|&peer| ("partitions", peer));
        match faulty.chain(linked).chain(slow).chain(cut).find(|&(_, peer)| peer >= n_all) {
            Some((setting, peer)) => {
                let problem = format!("there is no peer {peer}: they are numbered from 0 to {}", n_all - 1);
                Err(ScenarioError { setting, problem })
            }
            None => Ok(()),
        }
    }

    /// A peer's own links, up and down.
    pub(crate) fn links_of(&self, peer: usize) -> (LinkSpec, LinkSpec) {
        if let Some(links) = self.links.iter().find(|links| links.peer == peer) {
            return (links.up, links.down);
        }
        let is_slow = f64::from(Rng::stream(self.seed, "uplinks", peer as u64).uniform()) < self.slow_uplinks.share;
        (if is_slow { self.slow_uplinks.up } else { self.link }, self.link)
    }

    /// At which site a peer is, counted from 0, and its link there; nothing if it is at none.
    pub(crate) fn site_of(&self, peer: usize) -> Option<(usize, LinkSpec)> {
        let (mut first_peer, mut first_site) = (0, 0);
        for Site { peers, count, link } in &self.sites {
            let n_all = peers.saturating_mul(*count);
            if peer - first_peer < n_all {
                return Some((first_site + (peer - first_peer) / peers, *link));
            }
            (first_peer, first_site) = (first_peer + n_all, first_site + count);
        }
        None
    }

    /// For how long a peer stays, and what happens to it then; nothing, if it stays.
    pub(crate) fn stay(&self, peer: usize) -> Option<(Duration, What)> {
        let Churn { median_stay, killed } = self.churn?;
        let mut rng = Rng::stream(self.seed, "churn", peer as u64);
        // How long it has been there says nothing about how long it stays.
        let n_medians = -(1.0 - f64::from(rng.uniform())).log2();
        let what = if f64::from(rng.uniform()) < killed { What::Kill } else { What::Leave };
        Some((median_stay.mul_f64(n_medians), what))
    }

    /// How many times longer a peer computes than it usually does, at a time.
    pub(crate) fn slowness_at(&self, peer: usize, now: Duration) -> f64 {
        let is_on = |slow: &&Slow| slow.peer == peer && slow.from <= now && now < slow.until;
        self.slow.iter().filter(is_on).map(|slow| slow.factor).product()
    }

    /// How many times longer than others each of the first peers usually computes.
    pub(crate) fn slowness(&self, n_peers: usize) -> Vec<f64> {
        let mut slowness = vec![1.0; n_peers];
        let n_slow = (self.stragglers.share * n_peers as f64).round() as usize;
        slowness[..n_slow.min(n_peers)].fill(self.stragglers.factor);
        Rng::stream(self.seed, "stragglers", 0).shuffle(&mut slowness);
        slowness
    }
}

#[cfg(test)]
mod tests {
    use super::{Attack, Churn, Fault, Join, Partition, Scenario, Site, Slow, SlowUplinks, Stragglers, What, When};
    use std::time::Duration;

    fn everything() -> Scenario {
        let seconds = Duration::from_secs;
        Scenario {
            attack: Some(Attack::Scaled(-10.0)),
            attackers: 1,
            faults: vec![
                Fault { peer: 0, when: When::At(seconds(2)), what: What::Hang(seconds(9)) },
                Fault { peer: 3, when: When::Round(7), what: What::Kill },
            ],
            joins: vec![Join { at: Duration::from_micros(1500) }],
            partitions: vec![Partition { peers: vec![1, 2], from: seconds(1), until: seconds(20) }],
            churn: Some(Churn { median_stay: seconds(3600), killed: 0.5 }),
            sites: vec![Site { peers: 1, count: 3, link: "1gbit/1ms".parse().unwrap() }],
            finds_sites: true,
            slow_uplinks: SlowUplinks { share: 0.3, up: "5mbit/30ms".parse().unwrap() },
            ..Scenario::wan()
        }
    }

    #[test]
    fn scenarios_are_read_and_written() {
        let text = toml::to_string(&everything()).unwrap();
        assert!(text.contains("link = \"50mbit/20ms\"") && text.contains("at = \"1500us\""), "{text}");
        assert_eq!(toml::from_str::<Scenario>(&text).unwrap(), everything());
        assert_eq!(toml::from_str::<Scenario>("").unwrap(), Scenario::lan());
        assert!(
            toml::from_str::<Scenario>("link = \"20 parsec\"").unwrap_err().to_string().contains("write for example")
        );
        assert!(toml::from_str::<Scenario>("lnk = \"20ms\"").is_err());
    }

    #[test]
    fn nonsense_is_refused() {
        assert_eq!(everything().check(3), Ok(()));
        let named = |scenario: Scenario| scenario.check(3).unwrap_err().to_string();
        assert!(named(Scenario { loss: f64::NAN, ..everything() }).starts_with("scenario.loss"));
        assert!(named(Scenario { joins: Vec::new(), ..everything() }).contains("there is no peer 3"));
        let second = Duration::from_secs(1);
        let partitions = vec![Partition { peers: vec![0], from: second, until: second }];
        assert!(named(Scenario { partitions, ..everything() }).starts_with("scenario.partitions"));
        assert!(everything().check(0).is_err());
        let hostile = |attackers, attack| Scenario { attack, attackers, ..everything() }.check(3);
        let sign_flip = Some(Attack::Scaled(-1.0));
        assert_eq!(hostile(2, sign_flip), Ok(()));
        for wrong in [hostile(3, sign_flip), hostile(0, sign_flip), hostile(1, None)] {
            assert!(wrong.unwrap_err().to_string().starts_with("scenario.attackers"));
        }
    }

    #[test]
    fn who_is_slow_for_a_while_is_fast_before_and_after() {
        let slow = Slow { peer: 1, factor: 10.0, from: Duration::from_secs(2), until: Duration::from_secs(5) };
        let always = toml::from_str::<Slow>("peer = 1\nfactor = 2.0").unwrap();
        let scenario = Scenario { slow: vec![slow, always], ..Scenario::lan() };
        let at = |peer, seconds| scenario.slowness_at(peer, Duration::from_secs(seconds));
        assert_eq!([at(1, 1), at(1, 2), at(1, 4), at(1, 5), at(0, 3)], [2.0, 20.0, 20.0, 2.0, 1.0]);
        assert!(Scenario { slow: vec![Slow { factor: 0.5, ..slow }], ..Scenario::lan() }.check(2).is_err());
        assert!(scenario.check(1).is_err(), "there is no peer 1");
    }

    #[test]
    fn peers_stay_as_long_as_the_median_says_and_some_send_slowly() {
        let scenario = everything();
        let (n, hour) = (2000, Duration::from_secs(3600));
        let stays: Vec<_> = (0..n).filter_map(|peer| scenario.stay(peer)).collect();
        let half = n / 2 - n / 20..n / 2 + n / 20;
        assert!(half.contains(&stays.iter().filter(|(stay, _)| *stay < hour).count()));
        assert!(half.contains(&stays.iter().filter(|(_, what)| *what == What::Kill).count()));
        let n_slow = (0..n).filter(|&peer| scenario.links_of(peer).0 == scenario.slow_uplinks.up).count();
        assert!((n / 4..n * 7 / 20).contains(&n_slow) && scenario.links_of(5).1 == scenario.link);
        assert_eq!(Scenario::lan().stay(0), None);
    }

    #[test]
    fn sites_follow_one_another() {
        let site = |peers, count| Site { peers, count, link: "1gbit".parse().unwrap() };
        let scenario = Scenario { sites: vec![site(2, 2), site(3, 1)], ..Scenario::lan() };
        let at = |peer| scenario.site_of(peer).map(|(site, _)| site);
        assert_eq!([0, 1, 2, 3, 4, 6, 7].map(at), [Some(0), Some(0), Some(1), Some(1), Some(2), Some(2), None]);
        assert!(scenario.check(7).is_ok() && scenario.check(6).is_err());
    }

    #[test]
    fn as_many_are_slow_as_the_share_says() {
        let stragglers = Stragglers { share: 0.3, factor: 4.0 };
        let slowness = Scenario { stragglers, ..Scenario::lan() }.slowness(10);
        assert_eq!(slowness.iter().filter(|&&factor| factor == 4.0).count(), 3);
        assert_eq!(slowness.iter().filter(|&&factor| factor == 1.0).count(), 7);
    }
}
