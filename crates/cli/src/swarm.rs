//! Swarms: processes of this machine or of several that train together.

pub(crate) mod banner;
pub(crate) mod local;
pub(crate) mod network;
mod peer_line;
pub(crate) mod progress_view;
pub(crate) mod run;
