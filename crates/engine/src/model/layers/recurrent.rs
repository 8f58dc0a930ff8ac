//! Recurrent layers: each step's state is made of this step's input and of the last step's state.
//!
//! The products of the inputs with their weights wait for no state, so a dense layer below takes them for all steps at once.
//! What is left is here: one product a step each way. What a cell went through is handed on beside its state and cut off by the
//! [next layer](super::States), so that the backward pass computes nothing again.

use crate::kernel::{Before, Matrix, MatrixMut, multiply, vectorised};
use crate::model::layer::{Backward, Cache, Context, Init, Keeps, Layer, Scratch, Tensor};

use super::cell::{Cell, Row};
use super::rows::add_rows;

/// The states of a sequence, the first made of zeros, from the inputs' products. As PyTorch's `RNN`, `LSTM` and `GRU`.
pub struct Recurrent {
    /// How a state follows from the last.
    pub cell: Cell,
    /// Steps of a sequence.
    pub n_steps: usize,
    /// Numbers in a state.
    pub n_states: usize,
}

impl Recurrent {
    /// What the tensors start as, the inputs' weights too.
    pub fn init(&self) -> Init {
        Init::Uniform(1.0 / (self.n_states as f32).sqrt())
    }

    /// Numbers that a step's input brings: one for each gate of each state.
    fn n_inputs(&self) -> usize {
        self.cell.n_gates() * self.n_states
    }

    /// Numbers of a step in the output.
    fn n_outputs(&self) -> usize {
        self.cell.n_kept() * self.n_states
    }

    fn n_weights(&self) -> usize {
        self.n_inputs() * self.n_states
    }

    /// The gradients by what each step's state was multiplied to: those by the inputs' products, but for a factor in a GRU.
    fn state_deltas<'a>(&self, back: &Backward<'a>, room: &'a mut [f32]) -> &'a [f32] {
        if self.cell != Cell::Gru {
            return back.dx;
        }
        room.copy_from_slice(back.dx);
        let rows = room.chunks_exact_mut(self.n_inputs()).zip(back.y.chunks_exact(self.n_outputs()));
        rows.for_each(|(deltas, y)| self.cell.state_deltas(y, deltas));
        room
    }

    /// The state before each step, for all samples and steps.
    fn states_before(&self, y: &[f32], before: &mut [f32]) {
        let (states, outputs) = (self.n_states, self.n_outputs());
        for (row, before) in before.chunks_exact_mut(states).enumerate() {
            match row % self.n_steps {
                0 => before.fill(0.0),
                _ => before.copy_from_slice(&y[(row - 1) * outputs..][..states]),
            }
        }
    }
}

impl Layer for Recurrent {
    fn tensors(&self) -> Vec<Tensor> {
        let tensor = |name, shape: &[usize]| Tensor::plain(name, shape, self.init());
        vec![
            tensor("weight_hh_l0", &[self.n_inputs(), self.n_states]),
            tensor("bias_ih_l0", &[self.n_inputs()]),
            tensor("bias_hh_l0", &[self.n_inputs()]),
        ]
    }

    fn keeps(&self) -> Keeps {
        Keeps { output: true, input_gradient: true, ..Keeps::NOTHING }
    }

    fn wants_whole_batch(&self) -> bool {
        true
    }

    fn n_multiplications(&self) -> usize {
        self.n_steps * self.n_weights()
    }

    fn forward(&self, context: &Context<'_>, x: &[f32], y: &mut [f32], scratch: &mut Scratch) {
        let (n, steps, states) = (context.n, self.n_steps, self.n_states);
        let (inputs, outputs) = (self.n_inputs(), self.n_outputs());
        let (weights, biases) = context.params.split_at(self.n_weights());
        let (input_bias, state_bias) = biases.split_at(inputs);
        let weights = Matrix::new(weights, inputs, states).transposed();
        let (state, carried) = scratch.take(n * (states + inputs)).split_at_mut(n * states);
        state.fill(0.0);
        for step in 0..steps {
            carried.chunks_exact_mut(inputs).for_each(|row| row.copy_from_slice(state_bias));
            if step > 0 {
                multiply(Matrix::new(state, n, states), weights, 1.0, &mut MatrixMut::new(carried, n, inputs));
            }
            vectorised(
                #[inline(always)]
                || {
                    for sample in 0..n {
                        let row = sample * steps + step;
                        // The rows before the first step's are another sample's, which is not looked at.
                        let (before, here) = y.split_at_mut(row * outputs);
                        let before = if step > 0 { &before[(row - 1) * outputs..] } else { &[] };
                        let row = Row {
                            x: &x[row * inputs..][..inputs],
                            bias: input_bias,
                            carried: &carried[sample * inputs..][..inputs],
                            before,
                        };
                        self.cell.forward(row, &mut here[..outputs], states);
                        state[sample * states..][..states].copy_from_slice(&here[..states]);
                    }
                },
            );
        }
    }

    fn next(&self, context: &Context<'_>, x: &[f32], y: &mut [f32], cache: &mut Cache, scratch: &mut Scratch) {
        let (inputs, states) = (self.n_inputs(), self.n_states);
        let (weights, biases) = context.params.split_at(self.n_weights());
        let (bias, state_bias) = biases.split_at(inputs);
        let carried = scratch.take(inputs);
        carried.copy_from_slice(state_bias);
        if cache.n_read > 0 {
            let state = Matrix::new(&cache.numbers[..states], 1, states);
            let weights = Matrix::new(weights, inputs, states).transposed();
            multiply(state, weights, 1.0, &mut MatrixMut::new(carried, 1, inputs));
        }
        self.cell.forward(Row { x, bias, carried, before: &cache.numbers }, y, states);
        cache.numbers = y.to_vec();
    }

    fn input_gradient(&self, context: &Context<'_>, back: Backward<'_>, dx: &mut [f32], scratch: &mut Scratch) {
        let (n, steps, states) = (context.n, self.n_steps, self.n_states);
        let (inputs, outputs) = (self.n_inputs(), self.n_outputs());
        let weights = Matrix::new(&context.params[..self.n_weights()], inputs, states);
        // The gradients by the state and by the memory beside it, that come down from the next step.
        let (down, deltas) = scratch.take(n * (2 * states + inputs)).split_at_mut(n * 2 * states);
        let (by_state, by_memory) = down.split_at_mut(n * states);
        by_state.fill(0.0);
        by_memory.fill(0.0);
        for step in (0..steps).rev() {
            vectorised(
                #[inline(always)]
                || {
                    for sample in 0..n {
                        let row = sample * steps + step;
                        let by_state = &mut by_state[sample * states..][..states];
                        let dy = &back.dy[row * outputs..][..states];
                        by_state.iter_mut().zip(dy).for_each(|(sum, dy)| *sum += dy);
                        let y = &back.y[row * outputs..][..outputs];
                        let before = if step > 0 { &back.y[(row - 1) * outputs..][..outputs] } else { &[] };
                        let dx = &mut dx[row * inputs..][..inputs];
                        self.cell.backward(y, before, by_state, &mut by_memory[sample * states..][..states], dx);
                        let deltas = &mut deltas[sample * inputs..][..inputs];
                        deltas.copy_from_slice(dx);
                        self.cell.state_deltas(y, deltas);
                    }
                },
            );
            if step > 0 {
                multiply(Matrix::new(deltas, n, inputs), weights, 1.0, &mut MatrixMut::new(by_state, n, states));
            }
        }
    }

    fn overwrites(&self) -> bool {
        true
    }

    fn weight_gradient(&self, context: &Context<'_>, back: Backward<'_>, dw: &mut [f32], scratch: &mut Scratch) {
        let (rows, inputs) = (context.n * self.n_steps, self.n_inputs());
        let (weights, biases) = dw.split_at_mut(self.n_weights());
        let (input_bias, state_bias) = biases.split_at_mut(inputs);
        let n_deltas = if self.cell == Cell::Gru { rows * inputs } else { 0 };
        let (before, room) = scratch.take(rows * self.n_states + n_deltas).split_at_mut(rows * self.n_states);
        self.states_before(back.y, before);
        let deltas = self.state_deltas(&back, room);
        let out = &mut MatrixMut::new(weights, inputs, self.n_states);
        let keep = if context.before == Before::Kept { 1.0 } else { 0.0 };
        let left = Matrix::new(deltas, rows, inputs).transposed();
        multiply(left, Matrix::new(before, rows, self.n_states), keep, out);
        add_rows(back.dx, context.before, input_bias);
        add_rows(deltas, context.before, state_bias);
    }
}
