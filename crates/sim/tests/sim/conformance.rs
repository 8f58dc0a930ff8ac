//! What every strategy of the list must do, whatever it is called: tests of the trait, run over every implementation.

mod asynchronous;
mod attacks;
mod case;
mod coding;
mod costs;
mod custom_optimizer;
mod differing;
mod equality;
mod evaluations;
mod hostile;
mod language;
mod learning;
mod losses;
mod lying;
mod networks;
mod optimizer_state;
mod pace;
mod recovery;
mod resuming;
mod same_bytes;
mod sites;
mod telling;
mod thousand;
mod transfer;
mod uplink;
mod warmup;
