//! Who a member is: its name, how often it has come back, and where it can be dialled.

use std::fmt;

use nettorrent_swarm::view::PeerId;
use serde::{Deserialize, Serialize};

use crate::address::Address;

/// A peer as the others know it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    /// Its name.
    pub id: PeerId,
    /// How often it has come back: who was given up although it lives returns with the next generation, and what is said
    /// about an earlier one no longer concerns it.
    pub generation: u32,
    /// Where others dial it.
    pub address: Address,
}

impl Member {
    /// The same member as it looks after it has travelled: one that kept what does not travel would not recognise its own
    /// name when others say it.
    pub(super) fn without_scope(self) -> Self {
        Self { address: self.address.without_scope(), ..self }
    }

    /// The same peer in a later life.
    pub(super) fn in_generation(&self, generation: u32) -> Self {
        Self { generation, ..self.clone() }
    }
}

impl fmt::Display for Member {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {}", self.id, self.address.brief())
    }
}

impl foca::Identity for Member {
    /// What foca calls an address is what names a peer through all its generations.
    type Addr = PeerId;

    fn renew(&self) -> Option<Self> {
        Some(self.in_generation(self.generation.checked_add(1)?))
    }

    fn addr(&self) -> PeerId {
        self.id
    }

    fn win_addr_conflict(&self, adversary: &Self) -> bool {
        // Addresses only decide where generations are equal, so that all peers decide alike whatever they hear first.
        (self.generation, &self.address) > (adversary.generation, &adversary.address)
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddrV6;

    use foca::Identity;
    use nettorrent_swarm::view::PeerId;

    use super::Member;
    use crate::address::Address;

    #[test]
    fn a_member_that_travelled_is_still_the_same() {
        let link_local = SocketAddrV6::new("fe80::1".parse().unwrap(), 7000, 5, 3);
        let member = Member { id: PeerId::new(1, 2), generation: 3, address: Address::Tcp(link_local.into()) };
        let sent = member.without_scope();
        let bytes = postcard::to_allocvec(&sent).unwrap();
        assert_eq!(postcard::from_bytes::<Member>(&bytes), Ok(sent));
    }

    #[test]
    fn the_higher_generation_wins() {
        let member = Member { id: PeerId::new(1, 2), generation: 3, address: "10.0.0.1:1".parse().unwrap() };
        let renewed = member.renew().unwrap();
        assert!(renewed.win_addr_conflict(&member) && !member.win_addr_conflict(&renewed));
        assert_eq!(member.in_generation(u32::MAX).renew(), None);
    }
}
