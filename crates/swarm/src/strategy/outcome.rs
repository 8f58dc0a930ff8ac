//! What became of a round, and of a peer's past.

/// Whose work of this round went into the result. What the others trained is not counted, and trained again by somebody.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Counted {
    /// Everybody's.
    All,
    /// That of these ranks.
    Ranks(Vec<usize>),
}

impl Counted {
    /// Whether the work of this rank is among them.
    pub fn contains(&self, rank: usize) -> bool {
        match self {
            Self::All => true,
            Self::Ranks(ranks) => ranks.contains(&rank),
        }
    }
}

/// What has become of a peer's part in the past when the members of a new view have agreed on whose parameters go on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Past {
    /// This peer's own parameters go on, or others that have seen the same.
    #[default]
    Own,
    /// Another's go on, and these hold the first `n_heard` of this peer's batches of the last segment; the rest of what it
    /// said was not heard.
    Adopted {
        /// How many.
        n_heard: u32,
    },
    /// Another's go on that know nothing of what this peer did: it counts as not done, and others may do it again.
    Stranger,
}
