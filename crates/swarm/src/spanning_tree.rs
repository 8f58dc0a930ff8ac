//! A tree over the ranks of a view, for what all are to have and nobody should have to tell all: the first is its root, and each
//! passes on to its children what it has from its parent.

use std::ops::Range;

/// A tree in which a rank has at most so many children: with n, those of r are nr + 1 to nr + n.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SpanningTree {
    pub most_children: usize,
}

impl SpanningTree {
    /// To whom a rank passes on.
    pub(crate) fn children(self, rank: usize, n_peers: usize) -> Range<usize> {
        let first = (self.most_children * rank + 1).min(n_peers);
        first..(first + self.most_children).min(n_peers)
    }

    /// From whom a rank has it; None at the root.
    pub(crate) fn parent(self, rank: usize) -> Option<usize> {
        (rank > 0).then(|| (rank - 1) / self.most_children)
    }
}

#[cfg(test)]
mod tests {
    use super::SpanningTree;

    #[test]
    fn each_rank_but_the_first_is_a_child_of_its_parent_and_of_nobody_else() {
        for most_children in [1, 2, 16] {
            let tree = SpanningTree { most_children };
            for n_peers in [1, 2, 3, 17, 18, 300] {
                let of_all: Vec<usize> = (0..n_peers).flat_map(|rank| tree.children(rank, n_peers)).collect();
                assert_eq!(of_all, (1..n_peers).collect::<Vec<_>>(), "{most_children} children, {n_peers} peers");
                assert_eq!(tree.parent(0), None);
                for rank in 1..n_peers {
                    let parent = tree.parent(rank).expect("only the first has none");
                    assert!(tree.children(parent, n_peers).contains(&rank));
                }
            }
        }
    }
}
