//! Whether enough of the last members are there to train on, and how long those wait who are too few.

use std::collections::BTreeSet;
use std::time::Duration;

use nettorrent_engine::job::Quorum;
use nettorrent_swarm::view::{PeerId, View};

use super::note::Note;

/// Who has to be there for the members to train on.
pub(super) struct Electorate {
    quorum: Quorum,
    /// How long those who are too few wait for the others.
    patience: Duration,
    /// Members of the view of whom it is known that they have ended or left.
    gone: BTreeSet<PeerId>,
    shortage: Option<Shortage>,
}

/// Too few are there.
struct Shortage {
    since: Duration,
    n_here: usize,
    n_members: usize,
    is_told: bool,
}

impl Electorate {
    pub(super) fn new(quorum: Quorum, patience: Duration) -> Self {
        Self { quorum, patience, gone: BTreeSet::new(), shortage: None }
    }

    /// There is a new view, and all its members are there.
    pub(super) fn begin(&mut self) {
        self.gone.clear();
        self.shortage = None;
    }

    /// Somebody has ended or left; it is not waited for.
    pub(super) fn miss(&mut self, peer: PeerId, view: Option<&View>) {
        if view.is_some_and(|view| view.rank(peer).is_some()) {
            self.gone.insert(peer);
        }
    }

    /// Whether somebody is known to have ended or left.
    pub(super) fn is_gone(&self, peer: PeerId) -> bool {
        self.gone.contains(&peer)
    }

    /// Takes note of who could make up the next view.
    pub(super) fn count(&mut self, now: Duration, view: Option<&View>, candidates: &BTreeSet<PeerId>) {
        let members: BTreeSet<PeerId> = view
            .iter()
            .flat_map(|view| view.members.iter().copied())
            .filter(|peer| !self.gone.contains(peer))
            .collect();
        let (n_here, n_members) = (members.intersection(candidates).count(), members.len());
        let is_enough = match self.quorum {
            Quorum::Any => true,
            Quorum::Majority => members.is_empty() || 2 * n_here > n_members,
        };
        let former = self.shortage.take();
        if !is_enough {
            let (since, is_told) = former.map_or((now, false), |former| (former.since, former.is_told));
            self.shortage = Some(Shortage { since, n_here, n_members, is_told });
        }
    }

    /// Whether too few are there.
    pub(super) fn is_short(&self) -> bool {
        self.shortage.is_some()
    }

    /// If too few are there, when they go on all the same.
    pub(super) fn waits_until(&self) -> Option<Duration> {
        self.shortage.as_ref().map(|shortage| shortage.since + self.patience)
    }

    /// What to tell of that, once, if it has lasted for so long.
    pub(super) fn take_note(&mut self, now: Duration, after: Duration) -> Option<Note> {
        let shortage = self.shortage.as_mut().filter(|shortage| now - shortage.since >= after && !shortage.is_told)?;
        shortage.is_told = true;
        let Shortage { n_here, n_members, .. } = *shortage;
        Some(Note::TooFew { n_here, n_members, patience: self.patience })
    }
}
