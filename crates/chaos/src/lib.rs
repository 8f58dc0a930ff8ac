//! Whole peers in simulated time.
//!
//! What [`nettorrent_sim`] leaves out is in here: sessions with their checkpoints, events and endings, nodes with their membership,
//! handshakes, links, state transfers and dialling, as they run over real sockets. Only five things take another's place: the network ([`network`]), which delays, cuts and resets, the machine
//! ([`machine`]), which gets stuck, the disk ([`disk`]), which stalls, is full or fails, the clock, which stands still until everybody
//! waits, and the process ([`process`]), which is killed, suspended, started late or again. What gets through to the disk is written into
//! real folders, and judged by what is in them at the end. All of it runs on one thread, so a seed gives the same run every time.
//!
//! A [`plan`] of faults is drawn from a seed; a [`world`] runs it and is judged by what must hold whatever happens ([`oracle`]).

pub mod disk;
pub mod machine;
pub mod network;
pub mod oracle;
pub mod plan;
pub mod process;
pub mod seeds;
pub mod summary;
pub mod training;
pub mod world;
