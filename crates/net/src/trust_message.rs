//! What members tell each other about who belongs to the swarm.

use serde::{Deserialize, Serialize};

use crate::certificate::{Certificate, Pass};
use crate::keys::Signature;
use crate::policy::PolicyUpdate;

/// What one member tells another. It goes over links between members only, since some of it is secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum TrustMessage {
    /// This policy is in force.
    Policy(Box<PolicyUpdate>),
    /// The sender's certificate has been renewed.
    Renewed(Box<Pass>),
    /// These were let in with the present ticket.
    Admitted(Vec<Certificate>),
    /// The swarm's owner has removed the receiver, and has signed that.
    Removed(Signature),
}
