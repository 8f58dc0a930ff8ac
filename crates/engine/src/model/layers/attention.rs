//! Multi-head attention: every position looks at the others (or at those before it) and takes a weighted mean of what they say.
//!
//! The scores of one head are computed for a block of positions at a time and never all at once, on the backward pass anew: so memory
//! grows with the length of a sequence and not with its square.

use crate::kernel::{Matrix, MatrixMut, exp, largest, multiply, multiply_scaled, sum, vectorised};
use crate::model::layer::{Backward, Cache, Context, Keeps, Layer, Mode, Scratch};

use super::dropout::DropMask;
use super::rotary::Rotary;

/// So many positions ask at a time.
const BLOCK: usize = 64;

/// Scaled dot-product attention over rows that hold the queries of all heads, then the keys, then the values.
pub struct Attention {
    /// Positions of a sequence.
    pub n_steps: usize,
    /// Heads that ask.
    pub n_heads: usize,
    /// Heads that are asked: as many, or fewer that several heads share.
    pub n_kv_heads: usize,
    /// Numbers in one head's query, key or value.
    pub head_len: usize,
    /// Whether a position sees only itself and those before it.
    pub is_causal: bool,
    /// Turns queries and keys by their position, if wanted.
    pub rotary: Option<Rotary>,
    /// The probability that a weight is dropped while training.
    pub dropout: f32,
    /// Which of the network's layers this is, so that two of them drop different things.
    pub index: usize,
    /// Which of the whole layer's heads the first one is and how many that has, if these are not all: what is dropped is what the whole
    /// layer would drop.
    pub of_all: Option<(usize, usize)>,
}

/// Where a head's numbers lie in a row.
#[derive(Clone, Copy)]
struct Columns {
    query: usize,
    key: usize,
    value: usize,
}

/// One head of one sample with the queries and keys as they are compared: turned, if the layer does that.
struct Head<'a> {
    queries: Matrix<'a>,
    keys: Matrix<'a>,
    values: Matrix<'a>,
    mask: DropMask,
}

impl Attention {
    /// Numbers in a row of the input.
    pub fn n_inputs(&self) -> usize {
        (self.n_heads + 2 * self.n_kv_heads) * self.head_len
    }

    /// Numbers in a row of the output.
    pub fn n_outputs(&self) -> usize {
        self.n_heads * self.head_len
    }

    fn scale(&self) -> f32 {
        1.0 / (self.head_len as f32).sqrt()
    }

    fn columns(&self, head: usize) -> Columns {
        let of_kv = head * self.n_kv_heads / self.n_heads;
        Columns {
            query: head * self.head_len,
            key: (self.n_heads + of_kv) * self.head_len,
            value: (self.n_heads + self.n_kv_heads + of_kv) * self.head_len,
        }
    }

    /// How many positions the last of a block that ends here sees.
    fn n_seen(&self, end: usize) -> usize {
        if self.is_causal { end } else { self.n_steps }
    }

    /// A column of a sample's rows.
    fn view<'a>(&self, sample: &'a [f32], column: usize) -> Matrix<'a> {
        Matrix::strided(&sample[column..], self.n_steps, self.head_len, self.n_inputs())
    }

    /// Where the gradient by so many rows of a column goes.
    fn place<'a>(&self, dx: &'a mut [f32], at: usize, n_rows: usize) -> MatrixMut<'a> {
        MatrixMut::strided(&mut dx[at..], n_rows, self.head_len, self.n_inputs())
    }

    /// Copies a column and turns each row by its position.
    fn turned<'a>(&self, rotary: &Rotary, sample: &[f32], column: usize, turned: &'a mut [f32]) -> Matrix<'a> {
        let rows = sample.chunks_exact(self.n_inputs()).zip(turned.chunks_exact_mut(self.head_len));
        for (step, (row, turned)) in rows.enumerate() {
            turned.copy_from_slice(&row[column..column + self.head_len]);
            rotary.turn(step, turned);
        }
        Matrix::new(turned, self.n_steps, self.head_len)
    }

    fn head<'a>(&self, context: &Context<'_>, of: (usize, usize), x: &'a [f32], turned: &'a mut [f32]) -> Head<'a> {
        let (sample, head) = of;
        let columns = self.columns(head);
        let (queries, keys) = match &self.rotary {
            None => (self.view(x, columns.query), self.view(x, columns.key)),
            Some(rotary) => {
                let (queries, keys) = turned.split_at_mut(self.n_steps * self.head_len);
                (self.turned(rotary, x, columns.query, queries), self.turned(rotary, x, columns.key, keys))
            }
        };
        let rate = if matches!(context.mode, Mode::Train { .. }) { self.dropout } else { 0.0 };
        let (first, n_all) = self.of_all.unwrap_or((0, self.n_heads));
        let place = (context.first + sample) * n_all + first + head;
        Head {
            queries,
            keys,
            values: self.view(x, columns.value),
            mask: DropMask::new(context, self.index, place, rate),
        }
    }

    fn n_turned(&self) -> usize {
        if self.rotary.is_some() { 2 * self.n_steps * self.head_len } else { 0 }
    }

    /// The weights that positions `start..end` give to those they see, before dropout.
    fn weights(&self, head: &Head<'_>, start: usize, end: usize, weights: &mut [f32]) {
        let n_seen = self.n_seen(end);
        let (queries, keys) = (head.queries.rows(start..end), head.keys.rows(0..n_seen));
        let out = &mut MatrixMut::new(weights, end - start, n_seen);
        multiply_scaled(self.scale(), queries, keys.transposed(), 0.0, out);
        vectorised(
            #[inline(always)]
            || {
                for (row, weights) in weights.chunks_exact_mut(n_seen).enumerate() {
                    let n_own = if self.is_causal { start + row + 1 } else { n_seen };
                    let (seen, unseen) = weights.split_at_mut(n_own);
                    unseen.fill(0.0);
                    softmax(seen);
                }
            },
        );
    }
}

/// Shares that add up to 1, in proportion to the exponentials.
#[inline(always)]
fn softmax(scores: &mut [f32]) {
    let highest = largest(scores);
    scores.iter_mut().for_each(|score| *score = exp(*score - highest));
    let scale = 1.0 / sum([scores], |[share]| share);
    scores.iter_mut().for_each(|score| *score *= scale);
}

impl Layer for Attention {
    fn keeps(&self) -> Keeps {
        Keeps::INPUT
    }

    fn n_multiplications(&self) -> usize {
        let n_pairs = if self.is_causal { self.n_steps * (self.n_steps + 1) / 2 } else { self.n_steps * self.n_steps };
        2 * n_pairs * self.n_outputs()
    }

    fn forward(&self, context: &Context<'_>, x: &[f32], y: &mut [f32], scratch: &mut Scratch) {
        let (steps, len) = (self.n_steps, self.head_len);
        let room = scratch.take(self.n_turned() + BLOCK.min(steps) * steps);
        let (turned, room) = room.split_at_mut(self.n_turned());
        let samples = x.chunks_exact(steps * self.n_inputs()).zip(y.chunks_exact_mut(steps * self.n_outputs()));
        for (sample, (x, y)) in samples.enumerate() {
            for index in 0..self.n_heads {
                let head = self.head(context, (sample, index), x, turned);
                for start in (0..steps).step_by(BLOCK) {
                    let end = steps.min(start + BLOCK);
                    let n_seen = self.n_seen(end);
                    let weights = &mut room[..(end - start) * n_seen];
                    self.weights(&head, start, end, weights);
                    head.mask.apply(start, steps, n_seen, weights);
                    let y = &mut y[start * self.n_outputs() + index * len..];
                    let out = &mut MatrixMut::strided(y, end - start, len, self.n_outputs());
                    multiply(Matrix::new(weights, end - start, n_seen), head.values.rows(0..n_seen), 0.0, out);
                }
            }
        }
    }

    fn next(&self, _: &Context<'_>, x: &[f32], y: &mut [f32], cache: &mut Cache, scratch: &mut Scratch) {
        let (len, kv_len) = (self.head_len, self.n_kv_heads * self.head_len);
        let turned = |row: &mut [f32]| {
            if let Some(rotary) = &self.rotary {
                row.chunks_exact_mut(len).for_each(|head| rotary.turn(cache.n_read, head));
            }
        };
        let (queries, new) = x.split_at(self.n_outputs());
        let (room, weights) = scratch.take(queries.len() + cache.n_read + 1).split_at_mut(queries.len());
        room.copy_from_slice(queries);
        turned(room);
        let mut new = new.to_vec();
        turned(&mut new[..kv_len]);
        cache.numbers.extend_from_slice(&new);
        for (head, (query, y)) in room.chunks_exact(len).zip(y.chunks_exact_mut(len)).enumerate() {
            let of_kv = head * self.n_kv_heads / self.n_heads * len;
            let rows = || cache.numbers.chunks_exact(2 * kv_len);
            vectorised(
                #[inline(always)]
                || {
                    for (weight, row) in weights.iter_mut().zip(rows()) {
                        *weight = self.scale() * sum([query, &row[of_kv..of_kv + len]], |[a, b]| a * b);
                    }
                    softmax(weights);
                    y.fill(0.0);
                    for (weight, row) in weights.iter().zip(rows()) {
                        let values = &row[kv_len + of_kv..][..len];
                        y.iter_mut().zip(values).for_each(|(y, value)| *y += weight * value);
                    }
                },
            );
        }
    }

    fn input_gradient(&self, context: &Context<'_>, back: Backward<'_>, dx: &mut [f32], scratch: &mut Scratch) {
        let (steps, len, inputs) = (self.n_steps, self.head_len, self.n_inputs());
        let n_weights = BLOCK.min(steps) * steps;
        let room = scratch.take(self.n_turned() + 2 * n_weights);
        let (turned, room) = room.split_at_mut(self.n_turned());
        let (weights, slopes) = room.split_at_mut(n_weights);
        dx.fill(0.0);
        let samples = back.x.chunks_exact(steps * inputs).zip(back.dy.chunks_exact(steps * self.n_outputs()));
        for (sample, ((x, dy), dx)) in samples.zip(dx.chunks_exact_mut(steps * inputs)).enumerate() {
            for index in 0..self.n_heads {
                let (head, columns) = (self.head(context, (sample, index), x, turned), self.columns(index));
                for start in (0..steps).step_by(BLOCK) {
                    let (end, rows) = (steps.min(start + BLOCK), BLOCK.min(steps - start));
                    let n_seen = self.n_seen(end);
                    let (weights, slopes) = (&mut weights[..rows * n_seen], &mut slopes[..rows * n_seen]);
                    self.weights(&head, start, end, weights);
                    // The gradient by the weights, and from it that by the scores; by the values meanwhile.
                    let dy =
                        Matrix::strided(&dy[start * self.n_outputs() + index * len..], rows, len, self.n_outputs());
                    let seen = head.values.rows(0..n_seen).transposed();
                    multiply(dy, seen, 0.0, &mut MatrixMut::new(slopes, rows, n_seen));
                    head.mask.apply(start, steps, n_seen, slopes);
                    to_scores(weights, slopes, n_seen);
                    head.mask.apply(start, steps, n_seen, weights);
                    let weights = Matrix::new(weights, rows, n_seen);
                    multiply(weights.transposed(), dy, 1.0, &mut self.place(dx, columns.value, n_seen));
                    let slopes = Matrix::new(slopes, rows, n_seen);
                    let queries = head.queries.rows(start..end);
                    let by_keys = &mut self.place(dx, columns.key, n_seen);
                    multiply_scaled(self.scale(), slopes.transposed(), queries, 1.0, by_keys);
                    let by_queries = &mut self.place(dx, start * inputs + columns.query, rows);
                    multiply_scaled(self.scale(), slopes, head.keys.rows(0..n_seen), 0.0, by_queries);
                }
            }
            if let Some(rotary) = &self.rotary {
                for (step, row) in dx.chunks_exact_mut(inputs).enumerate() {
                    let turned = &mut row[..(self.n_heads + self.n_kv_heads) * len];
                    turned.chunks_exact_mut(len).for_each(|head| rotary.turn_back(step, head));
                }
            }
        }
    }
}

/// From the gradient by the weights of each row to that by the scores they were made of.
fn to_scores(weights: &[f32], slopes: &mut [f32], n_seen: usize) {
    vectorised(
        #[inline(always)]
        || {
            for (weights, slopes) in weights.chunks_exact(n_seen).zip(slopes.chunks_exact_mut(n_seen)) {
                let mean = sum([weights, slopes], |[weight, slope]| weight * slope);
                weights.iter().zip(slopes).for_each(|(weight, slope)| *slope = weight * (*slope - mean));
            }
        },
    );
}
