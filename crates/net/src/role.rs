//! Which side of a connection this is.

/// Which side of a connection this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The one who called.
    Dialler,
    /// The one who was called.
    Listener,
}
