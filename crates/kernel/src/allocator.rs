//! An allocator that begins large blocks at the start of a cache line.
//!
//! The system's puts them 16 bytes behind one, and then every vector of 64 bytes that is read or written touches two lines. A vector of
//! zeros as long as a model's parameters takes no memory before it is written to.
//! A program that computes with the engine should use it:
//!
//! ```
//! #[global_allocator]
//! static ALLOCATOR: nettorrent_kernel::LineAligned = nettorrent_kernel::LineAligned;
//! ```

use std::alloc::{GlobalAlloc, Layout, System};
use std::ptr::NonNull;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::kept_blocks::{Block, KeptBlocks};

/// The system's allocator, with cache lines in mind; after [`keep_memory`] it asks the system for less.
pub struct LineAligned;

/// The length of a cache line, and of the widest vectors.
const LINE: usize = 64;

/// Smaller blocks stay as the system has them: there are many of them, and few are computed with.
const SMALLEST: usize = 1024;

/// The layout with which a block is taken from the system.
fn placed(layout: Layout) -> Layout {
    let layout = match layout.size() {
        SMALLEST.. => layout.align_to(LINE).unwrap_or(layout),
        _ => layout,
    };
    if !is_kept(layout) {
        return layout;
    }
    // Sizes that differ by little are one.
    let step = layout.size().next_power_of_two() / STEPS;
    Layout::from_size_align(layout.size().next_multiple_of(step), LINE).unwrap_or(layout)
}

/// Whether blocks such as this one are kept, if any are.
fn is_kept(layout: Layout) -> bool {
    KEEPS_BLOCKS && (SMALLEST_KEPT..LARGE_BYTES).contains(&layout.size()) && layout.align() == LINE
}

/// A block that was kept and now is the caller's.
fn take_kept(layout: Layout) -> Option<*mut u8> {
    if !is_kept(layout) || N_KEPT_BYTES.load(Ordering::Relaxed) == 0 {
        return None;
    }
    // Whoever is not the only one asks the system, which is no slower than to wait.
    KEPT.try_lock().ok()?.take(layout.size()).map(NonNull::as_ptr)
}

/// Takes a block back, to keep it or give it to the system.
///
/// # Safety
/// The block is the caller's, and came from the system's allocator with this layout.
unsafe fn give_back(block: *mut u8, layout: Layout) {
    let max_bytes = N_KEPT_BYTES.load(Ordering::Relaxed);
    let kept = if is_kept(layout) && max_bytes > 0 { KEPT.try_lock().ok() } else { None };
    let Some(mut kept) = kept else {
        // SAFETY: as the caller says.
        return unsafe { System.dealloc(block, layout) };
    };
    while let Some(old) = kept.make_room(layout.size(), max_bytes) {
        // SAFETY: it was kept for nobody, and blocks that are kept were taken with a line's alignment.
        unsafe { System.dealloc(old.start, Layout::from_size_align_unchecked(old.n_bytes, LINE)) };
    }
    kept.put(Block { start: block, n_bytes: layout.size() });
}

// SAFETY: every block comes from the system's allocator, with a layout that depends only on the block's own layout; it is given back
// with the very layout that it was taken with, or kept until a block with that layout is wanted.
unsafe impl GlobalAlloc for LineAligned {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let layout = placed(layout);
        // SAFETY: as for the system's.
        take_kept(layout).unwrap_or_else(|| unsafe { System.alloc(layout) })
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        let layout = placed(layout);
        if let Some(block) = take_kept(layout) {
            // SAFETY: it is as long as that, and nobody else's.
            unsafe { block.write_bytes(0, layout.size()) };
            return block;
        }
        if layout.size() < LARGE_BYTES {
            // SAFETY: as for the system's.
            return unsafe { System.alloc_zeroed(layout) };
        }
        // SAFETY: as for the system's; the block is nobody else's yet, and as long as that.
        unsafe {
            let block = System.alloc(layout);
            if !block.is_null() {
                make_zero(block, layout.size());
            }
            block
        }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: it came from the system's allocator with that layout.
        unsafe { give_back(block, placed(layout)) }
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
/// With glibc its own allocator does so, when it is told; elsewhere [`LineAligned`] does it.
pub fn keep_memory() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    for (parameter, bytes) in
        [(libc::M_TRIM_THRESHOLD, KEPT_BYTES), (libc::M_MMAP_THRESHOLD, LARGE_BYTES as libc::c_int)]
    {
        // SAFETY: it changes nothing but these limits; with a value that it does not like it does nothing.
        unsafe { libc::mallopt(parameter, bytes) };
    }
    #[cfg(not(all(target_os = "linux", target_env = "gnu")))]
    N_KEPT_BYTES.store(KEPT_BYTES, Ordering::Relaxed);
}

/// Whether blocks are kept here, and not by the system's allocator.
const KEEPS_BLOCKS: bool = !cfg!(all(target_os = "linux", target_env = "gnu"));

/// As much memory is kept.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const KEPT_BYTES: libc::c_int = 128 << 20;
/// Less than there: none of it can become part of another block.
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
const KEPT_BYTES: usize = 16 << 20;

/// From this length on, musl's allocator asks the system for each block.
const SMALLEST_KEPT: usize = 128 << 10;

/// There are as many lengths of kept blocks up to a power of two, half of them beyond the one before.
const STEPS: usize = 16;

/// How much is kept at most: nothing, unless the program says so.
static N_KEPT_BYTES: AtomicUsize = AtomicUsize::new(0);

static KEPT: Mutex<KeptBlocks> = Mutex::new(KeptBlocks::new());

/// Blocks of this length and more are taken from the system and given back to it.
const LARGE_BYTES: usize = 16 << 20;

/// Makes a block zero. Whole pages are given back: the system has zeros ready when they are touched again. To write zeros over all of an
/// aligned block, as the standard library does, would have the system find memory for what may never be looked at.
///
/// # Safety
/// So many bytes from there on are the caller's, and came from the system's allocator.
unsafe fn make_zero(block: *mut u8, n_bytes: usize) {
    #[cfg(all(target_os = "linux", not(miri)))]
    {
        // SAFETY: it only asks how long a page is.
        let page = usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(usize::MAX);
        let before = block.align_offset(page);
        if before < n_bytes {
            let inner = (n_bytes - before) / page * page;
            // SAFETY: these pages lie within the block, and what the system's allocator hands out is private memory without a file: that
            // reads as zeros afterwards. If the system refuses, nothing has changed.
            let is_given_back = unsafe { libc::madvise(block.add(before).cast(), inner, libc::MADV_DONTNEED) == 0 };
            if is_given_back {
                // SAFETY: what is left of the block at both ends.
                unsafe {
                    block.write_bytes(0, before);
                    block.add(before + inner).write_bytes(0, n_bytes - before - inner);
                }
                return;
            }
        }
    }
    // SAFETY: the block is as long as that.
    unsafe { block.write_bytes(0, n_bytes) };
}

#[cfg(test)]
mod tests {
    use super::{LARGE_BYTES, LineAligned, SMALLEST_KEPT, keep_memory};
    use std::alloc::{GlobalAlloc, Layout};
    use std::thread;

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

    #[test]
    fn large_blocks_of_zeros_take_no_memory_before_they_are_written_to() {
        let layout = Layout::from_size_align(LARGE_BYTES + 5001, 4).expect("a layout");
        for _ in 0..3 {
            // SAFETY: the layout is not empty, the block is given back as it was taken, and nobody looks beyond it.
            unsafe {
                let block = LineAligned.alloc_zeroed(layout);
                assert!(block.addr().is_multiple_of(64));
                #[cfg(all(target_os = "linux", not(miri)))]
                assert!(n_resident(block, layout.size()) < LARGE_BYTES / 2);
                let bytes = std::slice::from_raw_parts_mut(block, layout.size());
                assert!(bytes.iter().all(|byte| *byte == 0));
                // The next one may lie in the same place.
                bytes.fill(7);
                LineAligned.dealloc(block, layout);
            }
        }
    }

    #[test]
    fn blocks_that_were_used_before_are_nobody_else_s() {
        keep_memory();
        let use_blocks = |mark: u8| {
            for size in [SMALLEST_KEPT - 1, SMALLEST_KEPT, 150_000, 1 << 20, 1_100_000, LARGE_BYTES - 1].repeat(4) {
                let layout = Layout::from_size_align(size, 4).expect("a layout");
                // SAFETY: the layout is not empty, nobody looks beyond a block, and each is given back as it was taken.
                unsafe {
                    let (zeros, other) = (LineAligned.alloc_zeroed(layout), LineAligned.alloc(layout));
                    assert!(std::slice::from_raw_parts(zeros, size).iter().all(|byte| *byte == 0));
                    zeros.write_bytes(mark, size);
                    other.write_bytes(!mark, size);
                    thread::yield_now();
                    assert!(std::slice::from_raw_parts(zeros, size).iter().all(|byte| *byte == mark));
                    assert!(std::slice::from_raw_parts(other, size).iter().all(|byte| *byte == !mark));
                    LineAligned.dealloc(zeros, layout);
                    LineAligned.dealloc(other, layout);
                }
            }
        };
        thread::scope(|scope| (1..4).for_each(|mark| drop(scope.spawn(move || use_blocks(mark)))));
    }

    /// How many bytes of a block the system has found memory for.
    #[cfg(all(target_os = "linux", not(miri)))]
    unsafe fn n_resident(block: *mut u8, n_bytes: usize) -> usize {
        // SAFETY: whole pages within the block, and a byte for each.
        unsafe {
            let page = usize::try_from(libc::sysconf(libc::_SC_PAGESIZE)).expect("pages have a length");
            let before = block.align_offset(page);
            let mut pages = vec![0_u8; (n_bytes - before) / page];
            assert_eq!(libc::mincore(block.add(before).cast(), pages.len() * page, pages.as_mut_ptr()), 0);
            page * pages.iter().filter(|state| **state & 1 == 1).count()
        }
    }
}
