//! Ctrl-C: the first asks for a clean stop, the second stops at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Context;

/// The code that a program interrupted by Ctrl-C exits with.
pub(crate) const EXIT_CODE: u8 = 130;

/// Whether somebody wants us to stop.
#[derive(Clone, Default)]
pub(crate) struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// Listens to Ctrl-C (and to a polite request to end) from now on.
    pub(crate) fn listen() -> anyhow::Result<Self> {
        Self::listen_and(|| {})
    }

    /// The same; the first Ctrl-C also does this.
    pub(crate) fn listen_and(on_first: impl Fn() + Send + 'static) -> anyhow::Result<Self> {
        let interrupt = Self::default();
        let flag = interrupt.0.clone();
        ctrlc::set_handler(move || {
            if flag.swap(true, Ordering::SeqCst) {
                std::process::exit(i32::from(EXIT_CODE));
            }
            on_first();
        })
        .context("cannot listen to Ctrl-C")?;
        Ok(interrupt)
    }

    /// Whether the first Ctrl-C has come.
    pub(crate) fn is_set(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }

    /// The flag itself, for those who wait elsewhere.
    pub(crate) fn flag(&self) -> Arc<AtomicBool> {
        self.0.clone()
    }
}
