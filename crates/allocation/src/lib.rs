//! An allocator that counts: how much memory a thread holds at most while something runs.
//!
//! Threads are counted apart, as tests run side by side.
//!
//! ```
//! use nettorrent_allocation::{Counting, Watch};
//!
//! #[global_allocator]
//! static ALLOCATOR: Counting = Counting;
//!
//! let watch = Watch::start();
//! drop(std::hint::black_box(vec![0_u8; 1 << 20]));
//! drop(std::hint::black_box(vec![0_u8; 1 << 20]));
//! assert!((1 << 20..2 << 20).contains(&watch.highest()));
//! ```

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// The system's allocator, with a count. A program or a test makes it its own; without it nothing is counted.
pub struct Counting;

thread_local! {
    static HELD: Cell<isize> = const { Cell::new(0) };
    static HIGHEST: Cell<isize> = const { Cell::new(0) };
}

fn count(change: isize) {
    // While a thread ends there is nothing to count with, and nobody who asks.
    let _ = HELD.try_with(|held| {
        held.set(held.get() + change);
        let _ = HIGHEST.try_with(|highest| highest.set(highest.get().max(held.get())));
    });
}

// SAFETY: all memory comes from the system's allocator and goes back to it with the layout it came with.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: the caller keeps the contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: the caller keeps the contract.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        count(-(layout.size() as isize));
        // SAFETY: the caller keeps the contract.
        unsafe { System.dealloc(memory, layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        count(new_size as isize - layout.size() as isize);
        // SAFETY: the caller keeps the contract.
        unsafe { System.realloc(memory, layout, new_size) }
    }
}

/// What this thread held when something began.
#[derive(Clone, Copy, Debug)]
pub struct Watch {
    held: isize,
}

impl Watch {
    /// Begins to look for the highest.
    pub fn start() -> Self {
        let held = HELD.get();
        HIGHEST.set(held);
        Self { held }
    }

    /// How many bytes more this thread held at once since the start.
    pub fn highest(&self) -> usize {
        usize::try_from(HIGHEST.get() - self.held).unwrap_or(0)
    }
}
