//! What every collective does.

use crate::malformed::Malformed;
use crate::strategy::{Cost, CostQuestion, Ctx, Message};

/// One exchange in which every peer hands in a vector and every peer gets one back.
pub trait Collective: Send {
    /// Begins an exchange; what is left of another is forgotten.
    fn begin(&mut self, ctx: &mut Ctx<'_>);

    /// Hands in a bucket of this peer's numbers.
    fn put(&mut self, ctx: &mut Ctx<'_>, bucket: usize, numbers: Vec<f32>);

    /// Takes what another peer sent; its bytes are hostile until checked.
    fn receive(&mut self, ctx: &mut Ctx<'_>, from: usize, message: Message) -> Result<(), Malformed>;

    /// Whether the result is there.
    fn is_complete(&self) -> bool;

    /// The result, once it is complete. After this, whatever comes for this exchange is malformed.
    fn take_result(&mut self) -> Vec<Vec<f32>>;

    /// The ranks that this peer waits for, if it has handed in its own numbers.
    fn waits_for(&self) -> Vec<usize>;

    /// What an exchange costs.
    fn cost(&self, question: &CostQuestion<'_>) -> Cost;
}
