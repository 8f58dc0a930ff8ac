//! Who believes to be with whom: views as a real host's failure detection would bring them about.

use std::collections::BTreeMap;

use nettorrent_swarm::{PeerId, View};

/// The name of a peer by its number.
pub(crate) fn id(peer: usize) -> PeerId {
    PeerId::new(peer as u32, 0)
}

/// A peer's number by its name.
pub(crate) fn number(id: PeerId) -> usize {
    id.join_index() as usize
}

/// Who is believed to be there, and what everyone was told last.
#[derive(Debug, Default)]
pub(crate) struct Membership {
    n_views: u32,
    members: BTreeMap<usize, Member>,
}

#[derive(Debug, Default)]
struct Member {
    /// On which side of each partition that was noticed.
    side: u64,
    /// The members of the view that it was told last.
    told: Option<View>,
}

impl Membership {
    /// A peer is there, perhaps again.
    pub(crate) fn join(&mut self, peer: usize, side: u64) {
        let told = self.members.remove(&peer).and_then(|member| member.told);
        self.members.insert(peer, Member { side, told });
    }

    /// A peer is gone.
    pub(crate) fn lose(&mut self, peer: usize) {
        self.members.remove(&peer);
    }

    /// On which side everybody is now.
    pub(crate) fn set_sides(&mut self, side: impl Fn(usize) -> u64) {
        self.members.iter_mut().for_each(|(&peer, member)| member.side = side(peer));
    }

    /// A new view for each group of peers that can reach each other and were told something else. Numbers rise over all
    /// groups, so that when groups meet again no two views have the same.
    pub(crate) fn news(&mut self) -> Vec<View> {
        let mut groups: BTreeMap<u64, Vec<usize>> = BTreeMap::new();
        for (&peer, member) in &self.members {
            groups.entry(member.side).or_default().push(peer);
        }
        let mut news = Vec::new();
        for group in groups.into_values() {
            let view = View::new(self.n_views + 1, group.iter().map(|&peer| id(peer)).collect());
            let is_told =
                |peer: &usize| self.members[peer].told.as_ref().is_some_and(|told| told.members == view.members);
            if group.iter().all(is_told) {
                continue;
            }
            self.n_views += 1;
            for peer in &group {
                self.members.entry(*peer).or_default().told = Some(view.clone());
            }
            news.push(view);
        }
        news
    }
}

#[cfg(test)]
mod tests {
    use super::{Membership, id};
    use nettorrent_swarm::View;

    fn view(number: u32, peers: &[usize]) -> View {
        View::new(number, peers.iter().map(|&peer| id(peer)).collect())
    }

    #[test]
    fn views_follow_what_happens() {
        let mut membership = Membership::default();
        (0..4).for_each(|peer| membership.join(peer, 0));
        assert_eq!(membership.news(), [view(1, &[0, 1, 2, 3])]);
        assert_eq!(membership.news(), []);
        membership.lose(2);
        assert_eq!(membership.news(), [view(2, &[0, 1, 3])]);
        membership.join(2, 0);
        assert_eq!(membership.news(), [view(3, &[0, 1, 2, 3])]);
        membership.set_sides(|peer| u64::from(peer == 3));
        assert_eq!(membership.news(), [view(4, &[0, 1, 2]), view(5, &[3])]);
        membership.lose(0);
        assert_eq!(membership.news(), [view(6, &[1, 2])]);
        membership.set_sides(|_| 0);
        assert_eq!(membership.news(), [view(7, &[1, 2, 3])]);
    }
}
