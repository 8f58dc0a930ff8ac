//! What members tell each other about who belongs to the swarm.

use serde::{Deserialize, Serialize};

use crate::certificate::{Certificate, Pass};
use crate::charter::Amendment;
use crate::keys::Signature;

/// What one member tells another. It goes over links between members only, since some of it is secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Word {
    /// This charter is in force.
    Charter(Box<Amendment>),
    /// The sender's certificate has been renewed.
    Renewed(Box<Pass>),
    /// These were let in with the present ticket.
    Admitted(Vec<Certificate>),
    /// The swarm's owner has removed the receiver, and has signed that.
    Removed(Signature),
}
