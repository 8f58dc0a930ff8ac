//! What a node computes on.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;

use crate::emulated_speed::EmulatedSpeed;

/// What a node computes on.
#[derive(Clone, Debug, Default)]
pub enum Machine {
    /// This machine, on a thread of its own.
    #[default]
    Here,
    /// The same, as late as if it were slower.
    Slowed(EmulatedSpeed),
    /// One whose time is the runtime's, which may be simulated: work is done in place, and told of when that machine is done with it.
    Simulated(Arc<dyn SimulatedMachine>),
}

/// A machine that takes its time, gets stuck, or keeps to itself what its peer has to say.
pub trait SimulatedMachine: fmt::Debug + Send + Sync {
    /// Waits for as long as work lasts that is worth so many training samples.
    fn work(&self, worth: f64) -> Pin<Box<dyn Future<Output = ()> + Send + '_>>;

    /// Whether it sends what its peer says in a view.
    fn sends(&self, view: u32) -> bool;
}

impl Machine {
    /// Whether it sends what its peer says in a view.
    pub(crate) fn sends(&self, view: u32) -> bool {
        if let Self::Simulated(machine) = self { machine.sends(view) } else { true }
    }
}

impl From<Option<EmulatedSpeed>> for Machine {
    fn from(speed: Option<EmulatedSpeed>) -> Self {
        speed.map_or(Self::Here, Self::Slowed)
    }
}
