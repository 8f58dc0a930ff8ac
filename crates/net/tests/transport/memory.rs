//! Counts what a test allocates, so that promises about memory can be held.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    // Per thread, as tests run side by side; each has a runtime on its own thread.
    static HELD: Cell<isize> = const { Cell::new(0) };
    static HIGHEST: Cell<isize> = const { Cell::new(0) };
}

struct Counting;

#[global_allocator]
static COUNTING: Counting = Counting;

fn count(change: isize) {
    // Threads that are ending have no counters any more, and nobody asks for them.
    let _ = HELD.try_with(|held| {
        held.set(held.get() + change);
        let _ = HIGHEST.try_with(|highest| highest.set(highest.get().max(held.get())));
    });
}

// SAFETY: everything is handed on to the system's allocator as it is.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: the caller's promises are handed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        count(-(layout.size() as isize));
        // SAFETY: the caller's promises are handed on.
        unsafe { System.dealloc(memory, layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        count(new_size as isize - layout.size() as isize);
        // SAFETY: the caller's promises are handed on.
        unsafe { System.realloc(memory, layout, new_size) }
    }
}

/// Begins to look for the highest.
pub(crate) fn start() -> Watch {
    let held = HELD.get();
    HIGHEST.set(held);
    Watch { held }
}

/// What was held at the start.
pub(crate) struct Watch {
    held: isize,
}

impl Watch {
    /// How much more was held at once on this thread since the start.
    pub(crate) fn highest(&self) -> usize {
        usize::try_from(HIGHEST.get() - self.held).unwrap_or(0)
    }
}

#[test]
fn the_counter_counts() {
    let watch = start();
    drop(std::hint::black_box(vec![0_u8; 1 << 20]));
    drop(std::hint::black_box(vec![0_u8; 1 << 20]));
    assert!((1 << 20..2 << 20).contains(&watch.highest()), "{}", watch.highest());
}
