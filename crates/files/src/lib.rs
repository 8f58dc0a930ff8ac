//! Files and folders that appear whole or not at all, whenever the process or the power fails.
//!
//! What is written goes under another name beside its place, is synced, and is then renamed. So whoever reads sees what was
//! there before or all of what is new.

mod file;
mod partial_folder;
mod sync;
mod write_error;

pub use file::{write_file, write_private_file};
pub use partial_folder::PartialFolder;
pub use write_error::WriteError;
