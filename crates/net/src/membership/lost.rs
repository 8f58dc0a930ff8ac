//! Members that were given up and may come back, because it was the network that failed and not they.

use std::collections::VecDeque;

use nettorrent_swarm::view::PeerId;

use super::member::Member;

/// The last members that were lost, in the order in which they will be tried again.
#[derive(Default)]
pub(super) struct Lost {
    members: VecDeque<Member>,
}

impl Lost {
    /// The most that are kept. After a cut through the middle of a swarm it is enough that some find each other.
    const MOST: usize = 256;

    /// Somebody is lost.
    pub(super) fn insert(&mut self, member: Member) {
        self.remove(member.id);
        if self.members.len() == Self::MOST {
            self.members.pop_back();
        }
        // Who was lost just now is the likeliest to come back.
        self.members.push_front(member);
    }

    /// Somebody has come back or has said goodbye. Returns whether it was lost.
    pub(super) fn remove(&mut self, peer: PeerId) -> bool {
        let n_before = self.members.len();
        self.members.retain(|member| member.id != peer);
        self.members.len() < n_before
    }

    /// The next few to try.
    pub(super) fn next(&mut self, n_members: usize) -> Vec<Member> {
        let n_members = n_members.min(self.members.len());
        self.members.rotate_left(n_members);
        self.members.iter().rev().take(n_members).cloned().collect()
    }

    /// One of them.
    pub(super) fn find(&self, peer: PeerId) -> Option<&Member> {
        self.members.iter().find(|member| member.id == peer)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use nettorrent_swarm::view::PeerId;

    use super::{Lost, Member};

    fn member(join_index: u32) -> Member {
        Member { id: PeerId::new(join_index, 0), generation: 0, address: "10.0.0.1:1".parse().unwrap() }
    }

    #[test]
    fn all_have_their_turn() {
        let mut lost = Lost::default();
        (0..10).for_each(|join_index| lost.insert(member(join_index)));
        let tried: BTreeSet<_> = (0..3).flat_map(|_| lost.next(4)).map(|member| member.id).collect();
        assert_eq!(tried.len(), 10);
    }

    #[test]
    fn the_list_is_bounded_and_holds_each_once() {
        let mut lost = Lost::default();
        (0..1000).for_each(|join_index| lost.insert(member(join_index)));
        (990..1000).for_each(|join_index| lost.insert(member(join_index)));
        assert_eq!(lost.next(usize::MAX).len(), Lost::MOST);
        assert!(lost.remove(member(999).id) && !lost.remove(member(999).id));
    }
}
