//! What a recurrent layer hands on: the state of every step, or of the last.

use crate::model::layer::{Backward, Context, Keeps, Layer, Scratch};
use crate::model::layer_options::StepsKept;

/// The first numbers of each step, or of the last step alone.
pub struct States {
    /// Steps of a sequence.
    pub n_steps: usize,
    /// Numbers in one step.
    pub features: usize,
    /// How many of them go on.
    pub n_states: usize,
    /// Which steps go on.
    pub steps: StepsKept,
}

impl States {
    /// Calls `visit(place in the input, place in the output)` for every step that goes on.
    fn for_each_step(&self, n: usize, mut visit: impl FnMut(usize, usize)) {
        let first = match self.steps {
            StepsKept::All => 0,
            StepsKept::Last => self.n_steps - 1,
        };
        let rows = (0..n).flat_map(|sample| (first..self.n_steps).map(move |step| sample * self.n_steps + step));
        rows.enumerate().for_each(|(i, row)| visit(row * self.features, i * self.n_states));
    }
}

impl Layer for States {
    fn keeps(&self) -> Keeps {
        Keeps::NOTHING
    }

    fn forward(&self, context: &Context<'_>, x: &[f32], y: &mut [f32], _: &mut Scratch) {
        self.for_each_step(context.n, |from, to| {
            y[to..to + self.n_states].copy_from_slice(&x[from..from + self.n_states]);
        });
    }

    fn input_gradient(&self, context: &Context<'_>, back: Backward<'_>, dx: &mut [f32], _: &mut Scratch) {
        dx.fill(0.0);
        self.for_each_step(context.n, |from, to| {
            dx[from..from + self.n_states].copy_from_slice(&back.dy[to..to + self.n_states]);
        });
    }
}
