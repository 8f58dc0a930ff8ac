//! Swarms: processes of this machine or of several that train together.

pub(crate) mod announcement;
pub(crate) mod beginning;
pub(crate) mod board;
pub(crate) mod chronicle;
pub(crate) mod keeper;
pub(crate) mod local;
pub(crate) mod material;
pub(crate) mod member;
pub(crate) mod messages;
pub(crate) mod network;
mod peer_line;
pub(crate) mod run;
