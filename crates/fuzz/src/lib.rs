//! Fuzzing: everything that reads bytes from outside, fed with bytes that were made up.
//!
//! A [`Target`] reads bytes and checks what comes of them: no panic, no memory out of proportion to the input, and where there is a
//! writer, that what was read and written again is read as the same. A [`Fuzzer`] makes inputs up by changing those it knows: the
//! target's own seeds, the kept corpus, and whatever it made up before that was answered in a way that it had not seen. It runs on
//! any toolchain and gives the same inputs for the same seed. It does not see which code an input reaches, as libFuzzer would; what a
//! reader answers is what guides it, so readers with precise errors are searched well.

mod corpus;
mod fuzzer;
mod mutation;
mod target;
mod targets;

pub use corpus::Corpus;
pub use fuzzer::{Finding, Fuzzer};
pub use target::Target;
pub use targets::{TARGETS, find};
