//! Cells of recurrent layers: how a step's state follows from its input and the last state, number by number.

use crate::kernel::{sigmoid, tanh};

/// Which cell. Gates lie in PyTorch's order, each as many numbers as a state has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cell {
    /// Gated recurrent unit: reset, update, new.
    Gru,
    /// Long short-term memory: input, forget, cell, output.
    Lstm,
    /// The tanh of the sum.
    Simple,
}

/// What a step is made of.
#[derive(Clone, Copy)]
pub(super) struct Row<'a> {
    /// The input's products with its weights, for each gate.
    pub x: &'a [f32],
    /// What is added to them.
    pub bias: &'a [f32],
    /// The last state's products with its weights, with their own bias.
    pub carried: &'a [f32],
    /// The last step's output; nothing at the first.
    pub before: &'a [f32],
}

/// `N` parts of a row, each of `len` numbers.
#[inline(always)]
fn parts<const N: usize>(row: &[f32], len: usize) -> [&[f32]; N] {
    std::array::from_fn(|part| &row[part * len..][..len])
}

#[inline(always)]
fn parts_mut<const N: usize>(row: &mut [f32], len: usize) -> [&mut [f32]; N] {
    let mut parts = row.chunks_exact_mut(len);
    std::array::from_fn(|_| parts.next().expect("the row has as many parts"))
}

impl Cell {
    /// Numbers that input and state each give for a number of the next state.
    pub fn n_gates(self) -> usize {
        match self {
            Self::Gru => 3,
            Self::Lstm => 4,
            Self::Simple => 1,
        }
    }

    /// Numbers of a step's output for each of its state: the state first, then what the backward pass needs.
    ///
    /// GRU: reset, update and new gate, and what the state gave the new one. LSTM: the memory, and the gates.
    pub fn n_kept(self) -> usize {
        match self {
            Self::Gru => 5,
            Self::Lstm => 6,
            Self::Simple => 1,
        }
    }

    /// A step's output.
    #[inline(always)]
    pub(super) fn forward(self, row: Row<'_>, y: &mut [f32], len: usize) {
        match self {
            Self::Simple => {
                for (i, y) in y.iter_mut().enumerate() {
                    *y = tanh(row.x[i] + row.bias[i] + row.carried[i]);
                }
            }
            Self::Lstm => lstm_forward(row, y, len),
            Self::Gru => gru_forward(row, y, len),
        }
    }

    /// The gradients by the inputs' products, from that by the state; the latter becomes what goes straight down to the last
    /// state, beside its products.
    #[inline(always)]
    pub(super) fn backward(
        self,
        y: &[f32],
        before: &[f32],
        by_state: &mut [f32],
        by_memory: &mut [f32],
        dx: &mut [f32],
    ) {
        match self {
            Self::Simple => {
                for ((dx, by_state), y) in dx.iter_mut().zip(by_state).zip(y) {
                    *dx = *by_state * (1.0 - y * y);
                    *by_state = 0.0;
                }
            }
            Self::Lstm => lstm_backward(y, before, by_state, by_memory, dx),
            Self::Gru => gru_backward(y, before, by_state, dx),
        }
    }

    /// Makes gradients by the inputs' products those by the state's.
    #[inline(always)]
    pub(super) fn state_deltas(self, y: &[f32], deltas: &mut [f32]) {
        if self == Self::Gru {
            let len = deltas.len() / 3;
            // The reset gate stands between the state and the new one.
            deltas[2 * len..].iter_mut().zip(&y[len..]).for_each(|(delta, reset)| *delta *= reset);
        }
    }
}

#[inline(always)]
fn lstm_forward(row: Row<'_>, y: &mut [f32], len: usize) {
    let [x_i, x_f, x_g, x_o] = parts(row.x, len);
    let [b_i, b_f, b_g, b_o] = parts(row.bias, len);
    let [h_i, h_f, h_g, h_o] = parts(row.carried, len);
    let [state, memory, i, f, g, o] = parts_mut(y, len);
    let before = row.before.get(len..2 * len);
    for at in 0..len {
        i[at] = sigmoid(x_i[at] + b_i[at] + h_i[at]);
        f[at] = sigmoid(x_f[at] + b_f[at] + h_f[at]);
        g[at] = tanh(x_g[at] + b_g[at] + h_g[at]);
        o[at] = sigmoid(x_o[at] + b_o[at] + h_o[at]);
        memory[at] = i[at] * g[at];
    }
    if let Some(before) = before {
        for at in 0..len {
            memory[at] += f[at] * before[at];
        }
    }
    for at in 0..len {
        state[at] = o[at] * tanh(memory[at]);
    }
}

#[inline(always)]
fn lstm_backward(y: &[f32], before: &[f32], by_state: &mut [f32], by_memory: &mut [f32], dx: &mut [f32]) {
    let len = by_state.len();
    let [_, memory, i, f, g, o] = parts(y, len);
    let [d_i, d_f, d_g, d_o] = parts_mut(dx, len);
    let by_memory = &mut by_memory[..len];
    for at in 0..len {
        let squashed = tanh(memory[at]);
        let by_output = by_state[at] * squashed;
        by_state[at] *= o[at] * (1.0 - squashed * squashed);
        by_memory[at] += by_state[at];
        by_state[at] = 0.0;
        d_o[at] = by_output * o[at] * (1.0 - o[at]);
        d_i[at] = by_memory[at] * g[at] * i[at] * (1.0 - i[at]);
        d_g[at] = by_memory[at] * i[at] * (1.0 - g[at] * g[at]);
    }
    match before.get(len..2 * len) {
        Some(before) => (0..len).for_each(|at| d_f[at] = by_memory[at] * before[at] * f[at] * (1.0 - f[at])),
        None => d_f.fill(0.0),
    }
    by_memory.iter_mut().zip(f).for_each(|(by_memory, f)| *by_memory *= f);
}

#[inline(always)]
fn gru_forward(row: Row<'_>, y: &mut [f32], len: usize) {
    let [x_r, x_z, x_n] = parts(row.x, len);
    let [b_r, b_z, b_n] = parts(row.bias, len);
    let [h_r, h_z, h_n] = parts(row.carried, len);
    let [state, r, z, n, carried] = parts_mut(y, len);
    for at in 0..len {
        r[at] = sigmoid(x_r[at] + b_r[at] + h_r[at]);
        z[at] = sigmoid(x_z[at] + b_z[at] + h_z[at]);
        n[at] = tanh(x_n[at] + b_n[at] + r[at] * h_n[at]);
        carried[at] = h_n[at];
        state[at] = (1.0 - z[at]) * n[at];
    }
    if let Some(before) = row.before.get(..len) {
        for at in 0..len {
            state[at] += z[at] * before[at];
        }
    }
}

#[inline(always)]
fn gru_backward(y: &[f32], before: &[f32], by_state: &mut [f32], dx: &mut [f32]) {
    let len = by_state.len();
    let [_, r, z, n, carried] = parts(y, len);
    let [d_r, d_z, d_n] = parts_mut(dx, len);
    for at in 0..len {
        d_n[at] = by_state[at] * (1.0 - z[at]) * (1.0 - n[at] * n[at]);
        d_r[at] = d_n[at] * carried[at] * r[at] * (1.0 - r[at]);
        d_z[at] = by_state[at] * -n[at] * z[at] * (1.0 - z[at]);
    }
    if let Some(before) = before.get(..len) {
        for at in 0..len {
            d_z[at] += by_state[at] * before[at] * z[at] * (1.0 - z[at]);
        }
    }
    by_state.iter_mut().zip(z).for_each(|(by_state, z)| *by_state *= z);
}
