//! Reading many samples, as fast as this machine can.

use std::num::NonZero;
use std::thread::available_parallelism;

use super::DataError;
use crate::team::Team;

/// Does what reads many samples where all cores can read them.
pub fn on_all_cores<R: Send>(work: impl FnOnce() -> R + Send) -> Result<R, DataError> {
    Ok(Team::new(available_parallelism().map_or(1, NonZero::get))?.install(work))
}
