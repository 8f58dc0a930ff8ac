//! Why a link has ended.

use std::io;
use std::time::Duration;

use nettorrent_swarm::wire::FrameError;

use crate::frames::ReadError;
use crate::sealed_file::Refused;

/// Why a link has ended.
#[derive(Debug, thiserror::Error)]
pub enum CloseReason {
    /// It was closed here, and what was queued has been sent.
    #[error("closed by this side")]
    Ourselves,
    /// The other side closed it.
    #[error("closed by the other side")]
    Theirs,
    /// The other side vanished without a word.
    #[error("the other side is gone without a word")]
    Vanished,
    /// The other side vanished in the middle of a frame.
    #[error("the other side is gone: its stream ended {n_missing} bytes before the end of a frame")]
    CutOff {
        /// How much of the frame is missing.
        n_missing: usize,
    },
    /// What the other side sent is no frame.
    #[error("the other side sent no valid frame: {0}")]
    Malformed(FrameError),
    /// What the other side says about a shared directory, or has put there, is of no use.
    #[error("{0}")]
    Shared(#[from] Refused),
    /// The other side stopped in the middle of a frame, or reads nothing.
    #[error("the other side has been silent for {0:?} in the middle of an exchange")]
    Stalled(Duration),
    /// More waits to be sent than may.
    #[error("the other side reads too slowly: {n_queued} bytes wait for it and {most} may")]
    TooSlow {
        /// How much waits.
        n_queued: usize,
        /// How much may.
        most: usize,
    },
    /// The socket failed.
    #[error("the connection failed: {0}")]
    Failed(io::Error),
    /// This process does not read its inbox any more.
    #[error("this process takes no more frames")]
    NobodyReads,
}

impl From<io::Error> for CloseReason {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::UnexpectedEof
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionAborted
            | io::ErrorKind::BrokenPipe => Self::Vanished,
            _ => Self::Failed(error),
        }
    }
}

impl From<ReadError> for CloseReason {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::Ended => Self::Theirs,
            ReadError::CutOff { n_missing } => Self::CutOff { n_missing },
            ReadError::Malformed(error) => Self::Malformed(error),
            ReadError::Failed(error) => error.into(),
        }
    }
}
