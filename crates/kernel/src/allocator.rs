//! An allocator that begins large blocks at the start of a cache line.
//!
//! The system's puts them 16 bytes behind one, and then every vector of 64 bytes that is read or written touches two lines.
//! A program that computes with the engine should use it:
//!
//! ```
//! #[global_allocator]
//! static ALLOCATOR: nettorrent_kernel::LineAligned = nettorrent_kernel::LineAligned;
//! ```

use std::alloc::{GlobalAlloc, Layout, System};

/// The system's allocator, with cache lines in mind.
pub struct LineAligned;

/// The length of a cache line, and of the widest vectors.
const LINE: usize = 64;

/// Smaller blocks stay as the system has them: there are many of them, and few are computed with.
const SMALLEST: usize = 1024;

fn aligned(layout: Layout) -> Layout {
    match layout.size() {
        SMALLEST.. => layout.align_to(LINE).unwrap_or(layout),
        _ => layout,
    }
}

// SAFETY: every call goes to the system's allocator, with a layout that depends only on the block's own layout; a block is
// given back with the very layout that it was taken with.
unsafe impl GlobalAlloc for LineAligned {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as for the system's.
        unsafe { System.alloc(aligned(layout)) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as for the system's.
        unsafe { System.alloc_zeroed(aligned(layout)) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: as for the system's.
        unsafe { System.dealloc(block, aligned(layout)) }
    }

    // `realloc` is left to the default, which takes a new block and copies: the old and the new size may be aligned
    // differently.
}

/// Has the program keep the memory that it gives back, for a program that uses much of it again and again: asking the
/// system anew for the buffers of each exchange cost more time than filling them. Call it first of all.
///
/// Large vectors are not kept. Side by side in one heap they leave holes that nothing else fits into: a peer with ten million
/// parameters took a third more memory than it used.
///
/// It has an effect where the system's allocator is glibc's; others are left as they are.
pub fn keep_memory() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    for (parameter, bytes) in [(libc::M_TRIM_THRESHOLD, KEPT_BYTES), (libc::M_MMAP_THRESHOLD, LARGE_BYTES)] {
        // SAFETY: it changes nothing but these limits; with a value that it does not like it does nothing.
        unsafe { libc::mallopt(parameter, bytes) };
    }
}

/// As much memory is kept.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const KEPT_BYTES: libc::c_int = 128 << 20;

/// Blocks of this length and more are taken from the system and given back to it.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const LARGE_BYTES: libc::c_int = 16 << 20;

#[cfg(test)]
mod tests {
    use super::LineAligned;
    use std::alloc::{GlobalAlloc, Layout};

    #[test]
    fn large_blocks_begin_a_line() {
        for size in [8, 1023, 1024, 5000, 1 << 20] {
            let layout = Layout::from_size_align(size, 4).expect("a layout");
            // SAFETY: the layout is not empty, and each block is given back as it was taken.
            unsafe {
                let block = LineAligned.alloc(layout);
                assert!(size < 1024 || block.addr().is_multiple_of(64));
                let block = LineAligned.realloc(block, layout, size + 3000);
                assert!(block.addr().is_multiple_of(64));
                LineAligned.dealloc(block, Layout::from_size_align(size + 3000, 4).expect("a layout"));
            }
        }
    }
}
