//! A simple recurrent layer: each step's state is made of this step's input and the last step's state.

use crate::kernel::{Before, Matrix, MatrixMut, multiply, vectorised};
use crate::model::layer::{Backward, Context, Init, Keeps, Layer, Scratch, Tensor};

use super::rows::add_rows;

/// `h_t = tanh(W_ih x_t + b_ih + W_hh h_(t-1) + b_hh)`, with `h_0 = 0`; the output is every state.
pub struct Recurrent {
    /// Steps of a sequence.
    pub n_steps: usize,
    /// Numbers in one step of the input.
    pub n_inputs: usize,
    /// Numbers in a state.
    pub n_states: usize,
}

/// The parameters (or their gradients) by name.
struct Parts<T> {
    input_weights: T,
    state_weights: T,
    input_bias: T,
    state_bias: T,
}

impl Recurrent {
    fn parts<'a>(&self, params: &'a [f32]) -> Parts<&'a [f32]> {
        let (input_weights, rest) = params.split_at(self.n_states * self.n_inputs);
        let (state_weights, rest) = rest.split_at(self.n_states * self.n_states);
        let (input_bias, state_bias) = rest.split_at(self.n_states);
        Parts { input_weights, state_weights, input_bias, state_bias }
    }

    fn parts_mut<'a>(&self, params: &'a mut [f32]) -> Parts<&'a mut [f32]> {
        let (input_weights, rest) = params.split_at_mut(self.n_states * self.n_inputs);
        let (state_weights, rest) = rest.split_at_mut(self.n_states * self.n_states);
        let (input_bias, state_bias) = rest.split_at_mut(self.n_states);
        Parts { input_weights, state_weights, input_bias, state_bias }
    }

    /// The gradient before the tanh, for each step, laid out step by step: `[step][sample][state]`.
    fn deltas(&self, context: &Context<'_>, back: Backward<'_>, deltas: &mut [f32]) {
        let (n, states) = (context.n, self.n_states);
        let weights = Matrix::new(self.parts(context.params).state_weights, states, states);
        for step in (0..self.n_steps).rev() {
            let (now, later) = deltas[step * n * states..].split_at_mut(n * states);
            if step + 1 < self.n_steps {
                let later = Matrix::new(&later[..n * states], n, states);
                multiply(later, weights, 0.0, &mut MatrixMut::new(now, n, states));
            } else {
                now.fill(0.0);
            }
            vectorised(
                #[inline(always)]
                || {
                    for (sample, now) in now.chunks_exact_mut(states).enumerate() {
                        let at = (sample * self.n_steps + step) * states;
                        let (y, dy) = (&back.y[at..at + states], &back.dy[at..at + states]);
                        for (i, now) in now.iter_mut().enumerate() {
                            *now = (*now + dy[i]) * (1.0 - y[i] * y[i]);
                        }
                    }
                },
            );
        }
    }
}

impl Layer for Recurrent {
    fn tensors(&self) -> Vec<Tensor> {
        let init = Init::Uniform(1.0 / (self.n_states as f32).sqrt());
        vec![
            Tensor::plain("weight_ih_l0", &[self.n_states, self.n_inputs], init),
            Tensor::plain("weight_hh_l0", &[self.n_states, self.n_states], init),
            Tensor::plain("bias_ih_l0", &[self.n_states], init),
            Tensor::plain("bias_hh_l0", &[self.n_states], init),
        ]
    }

    fn keeps(&self) -> Keeps {
        Keeps { input: true, output: true }
    }

    fn wants_whole_batch(&self) -> bool {
        true
    }

    fn n_multiplications(&self) -> usize {
        self.n_steps * self.n_states * (self.n_inputs + self.n_states)
    }

    fn forward(&self, context: &Context<'_>, x: &[f32], y: &mut [f32], scratch: &mut Scratch) {
        let (n, states, steps) = (context.n, self.n_states, self.n_steps);
        let parts = self.parts(context.params);
        for row in y.chunks_exact_mut(states) {
            for (i, value) in row.iter_mut().enumerate() {
                *value = parts.input_bias[i] + parts.state_bias[i];
            }
        }
        let weights = Matrix::new(parts.input_weights, states, self.n_inputs).transposed();
        let all_rows = &mut MatrixMut::new(y, n * steps, states);
        multiply(Matrix::new(x, n * steps, self.n_inputs), weights, 1.0, all_rows);
        let weights = Matrix::new(parts.state_weights, states, states).transposed();
        let (state, carried) = scratch.take(2 * n * states).split_at_mut(n * states);
        state.fill(0.0);
        for step in 0..steps {
            multiply(Matrix::new(state, n, states), weights, 0.0, &mut MatrixMut::new(carried, n, states));
            for sample in 0..n {
                let here = &mut y[(sample * steps + step) * states..][..states];
                let (state, carried) = (&mut state[sample * states..], &carried[sample * states..]);
                for (i, value) in here.iter_mut().enumerate() {
                    *value = (*value + carried[i]).tanh();
                    state[i] = *value;
                }
            }
        }
    }

    fn input_gradient(&self, context: &Context<'_>, back: Backward<'_>, dx: &mut [f32], scratch: &mut Scratch) {
        let (n, states, inputs) = (context.n, self.n_states, self.n_inputs);
        let (deltas, part) = scratch.take(n * (self.n_steps * states + inputs)).split_at_mut(n * self.n_steps * states);
        self.deltas(context, back, deltas);
        let weights = Matrix::new(self.parts(context.params).input_weights, states, inputs);
        for (step, deltas) in deltas.chunks_exact(n * states).enumerate() {
            multiply(Matrix::new(deltas, n, states), weights, 0.0, &mut MatrixMut::new(part, n, inputs));
            for (sample, part) in part.chunks_exact(inputs).enumerate() {
                dx[(sample * self.n_steps + step) * inputs..][..inputs].copy_from_slice(part);
            }
        }
    }

    fn weight_gradient(&self, context: &Context<'_>, back: Backward<'_>, dw: &mut [f32], scratch: &mut Scratch) {
        let (n, states, inputs) = (context.n, self.n_states, self.n_inputs);
        let deltas = scratch.take(n * self.n_steps * states);
        self.deltas(context, back, deltas);
        let parts = self.parts_mut(dw);
        // This step's rows of a tensor that lies `[sample][step][number]`, brought together.
        let gather = |from: &[f32], step: usize, len: usize| -> Vec<f32> {
            let rows = from.chunks_exact(len).skip(step).step_by(self.n_steps);
            rows.flatten().copied().collect()
        };
        for (step, deltas) in deltas.chunks_exact(n * states).enumerate() {
            add_rows(deltas, Before::Kept, parts.input_bias);
            add_rows(deltas, Before::Kept, parts.state_bias);
            let deltas = Matrix::new(deltas, n, states).transposed();
            let x = gather(back.x, step, inputs);
            let sum = &mut MatrixMut::new(parts.input_weights, states, inputs);
            multiply(deltas, Matrix::new(&x, n, inputs), 1.0, sum);
            if step > 0 {
                let before = gather(back.y, step - 1, states);
                let sum = &mut MatrixMut::new(parts.state_weights, states, states);
                multiply(deltas, Matrix::new(&before, n, states), 1.0, sum);
            }
        }
    }
}

/// The last step of a sequence.
pub struct LastStep {
    /// Steps of a sequence.
    pub n_steps: usize,
    /// Numbers in one step.
    pub features: usize,
}

impl Layer for LastStep {
    fn keeps(&self) -> Keeps {
        Keeps::NOTHING
    }

    fn forward(&self, _: &Context<'_>, x: &[f32], y: &mut [f32], _: &mut Scratch) {
        for (x, y) in x.chunks_exact(self.n_steps * self.features).zip(y.chunks_exact_mut(self.features)) {
            y.copy_from_slice(&x[(self.n_steps - 1) * self.features..]);
        }
    }

    fn input_gradient(&self, _: &Context<'_>, back: Backward<'_>, dx: &mut [f32], _: &mut Scratch) {
        dx.fill(0.0);
        for (dx, dy) in dx.chunks_exact_mut(self.n_steps * self.features).zip(back.dy.chunks_exact(self.features)) {
            dx[(self.n_steps - 1) * self.features..].copy_from_slice(dy);
        }
    }
}
