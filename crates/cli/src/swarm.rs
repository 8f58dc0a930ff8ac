//! Swarms: processes of this machine or of several that train together.

pub(crate) mod banner;
pub(crate) mod checkpoint_writer;
pub(crate) mod local;
pub(crate) mod member;
pub(crate) mod messages;
pub(crate) mod network;
mod peer_line;
pub(crate) mod prepared_job;
pub(crate) mod progress_view;
pub(crate) mod run;
pub(crate) mod run_log;
pub(crate) mod start_state;
