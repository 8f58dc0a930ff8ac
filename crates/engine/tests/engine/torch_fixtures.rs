//! What PyTorch computes, matched: whole models of the zoo and single layers.
//!
//! The numbers come from `fixtures/make_fixtures.py`, whose head says by which formula inputs and parameters are made.
//! Expected values are those of 64-bit floats, and each gradient tells how far PyTorch's own 32-bit result is from them;
//! ours may be a few times as far.

mod described;
mod fixture;
mod layers;
mod models;
