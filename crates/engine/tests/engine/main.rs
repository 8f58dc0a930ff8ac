//! The engine from outside. One program for all: each would cost a build of its own.

mod bad_networks;
mod buckets;
mod differences;
mod finite_differences;
mod hard_numbers;
mod layer_differences;
mod networks;
mod optimizers;
mod parts;
mod pieces;
mod positions;
mod stand;
mod threads;
mod torch_fixtures;
