//! Freed blocks that wait to be used again, for systems whose allocators give large blocks back at once.
//!
//! What peers exchange is as long round after round: a block of the very same size comes back soon. So few blocks are kept, and the
//! oldest make room for the newest.

use std::ptr::{NonNull, null_mut};

/// Freed blocks, oldest first.
pub(crate) struct KeptBlocks {
    blocks: [Block; MAX_BLOCKS],
    n_blocks: usize,
    n_bytes: usize,
}

/// A block that nobody uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Block {
    pub(crate) start: *mut u8,
    pub(crate) n_bytes: usize,
}

/// More are not looked through.
const MAX_BLOCKS: usize = 64;

// SAFETY: whose a block is does not depend on the thread.
unsafe impl Send for KeptBlocks {}

impl KeptBlocks {
    pub(crate) const fn new() -> Self {
        Self { blocks: [Block { start: null_mut(), n_bytes: 0 }; MAX_BLOCKS], n_blocks: 0, n_bytes: 0 }
    }

    /// Keeps a block.
    ///
    /// # Panics
    /// If no room was made for it.
    pub(crate) fn put(&mut self, block: Block) {
        self.blocks[self.n_blocks] = block;
        self.n_blocks += 1;
        self.n_bytes += block.n_bytes;
    }

    /// The newest block of this size, if there is one: more of it may still be in the processor's cache.
    pub(crate) fn take(&mut self, n_bytes: usize) -> Option<NonNull<u8>> {
        let at = self.blocks[..self.n_blocks].iter().rposition(|block| block.n_bytes == n_bytes)?;
        NonNull::new(self.remove(at).start)
    }

    /// The oldest block, if it has to go before one of this size can be kept within a limit. Call it until none has to.
    pub(crate) fn make_room(&mut self, n_bytes: usize, max_bytes: usize) -> Option<Block> {
        let is_full = self.n_blocks == MAX_BLOCKS || self.n_bytes + n_bytes > max_bytes;
        (is_full && self.n_blocks > 0).then(|| self.remove(0))
    }

    fn remove(&mut self, at: usize) -> Block {
        let block = self.blocks[at];
        self.blocks.copy_within(at + 1..self.n_blocks, at);
        self.n_blocks -= 1;
        self.n_bytes -= block.n_bytes;
        block
    }
}

#[cfg(test)]
mod tests {
    use super::{Block, KeptBlocks, MAX_BLOCKS};
    use std::ptr::without_provenance_mut;

    fn block(at: usize, n_bytes: usize) -> Block {
        Block { start: without_provenance_mut(at), n_bytes }
    }

    #[test]
    fn the_newest_block_of_a_size_comes_back_once() {
        let mut kept = KeptBlocks::new();
        for (at, n_bytes) in [(1, 100), (2, 200), (3, 100), (4, 300)] {
            assert_eq!(kept.make_room(n_bytes, 1000), None);
            kept.put(block(at, n_bytes));
        }
        let mut take = |n_bytes| kept.take(n_bytes).map(|start| start.addr().get());
        assert_eq!([take(100), take(100), take(100), take(250), take(200)], [Some(3), Some(1), None, None, Some(2)]);
    }

    #[test]
    fn the_oldest_make_room_for_the_newest() {
        let mut kept = KeptBlocks::new();
        (1..=4).for_each(|at| kept.put(block(at, 100)));
        assert_eq!(kept.make_room(100, 500), None);
        assert_eq!(kept.make_room(300, 500), Some(block(1, 100)));
        assert_eq!(kept.make_room(300, 500), Some(block(2, 100)));
        assert_eq!(kept.make_room(300, 500), None);
        // What is larger than all that may be kept has all go.
        assert_eq!([600; 3].map(|n| kept.make_room(n, 500)), [Some(block(3, 100)), Some(block(4, 100)), None]);
    }

    #[test]
    fn no_more_blocks_are_kept_than_there_is_room_for() {
        let mut kept = KeptBlocks::new();
        (0..MAX_BLOCKS).for_each(|at| kept.put(block(at + 1, 1)));
        assert_eq!(kept.make_room(1, 1000), Some(block(1, 1)));
        assert_eq!(kept.make_room(1, 1000), None);
        kept.put(block(99, 1));
        assert_eq!(kept.take(1).map(|start| start.addr().get()), Some(99));
    }
}
