//! Parts of a network compute together what the whole computes, however it is cut.

mod grid;
mod splits;
mod stages;
mod zoo;
