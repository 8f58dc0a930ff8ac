//! The program as its users run it: real processes, in folders of their own, cut off from the network.

mod bad_input;
mod checkpoints;
mod data;
mod jobs;
mod pipes;
mod program;
mod resume;
mod samples;
mod train;
