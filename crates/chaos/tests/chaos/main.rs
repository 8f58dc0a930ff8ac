//! Whole swarms in a simulated world.

mod churn;
mod ending;
mod seeds;
