//! Steps that make one value of two.

use crate::kernel::{Before, add, sigmoid, vectorised};

/// What becomes of two values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Join {
    /// Their sum.
    Add,
    /// The channels of both, pixel by pixel: those of the first value first.
    Concat {
        /// How many channels each has.
        channels: [usize; 2],
    },
    /// The second, number by number times the silu of the first.
    Swiglu,
}

impl Join {
    /// Whether the backward pass needs the two values.
    pub(super) fn keeps_inputs(self) -> bool {
        match self {
            Self::Add | Self::Concat { .. } => false,
            Self::Swiglu => true,
        }
    }

    /// `y` from both.
    pub(super) fn forward(self, [a, b]: [&[f32]; 2], y: &mut [f32]) {
        match self {
            Self::Add => vectorised(|| y.iter_mut().zip(a).zip(b).for_each(|((y, a), b)| *y = a + b)),
            Self::Concat { channels: [n_a, n_b] } => {
                let pixels = y.chunks_exact_mut(n_a + n_b).zip(a.chunks_exact(n_a)).zip(b.chunks_exact(n_b));
                for ((y, a), b) in pixels {
                    y[..n_a].copy_from_slice(a);
                    y[n_a..].copy_from_slice(b);
                }
            }
            Self::Swiglu => vectorised(
                #[inline(always)]
                || y.iter_mut().zip(a).zip(b).for_each(|((y, a), b)| *y = a * sigmoid(*a) * b),
            ),
        }
    }

    /// Adds the gradient by one of the two (the first is 0) to `dx`, or overwrites it. The values are handed only where they
    /// were kept.
    pub(super) fn gradient(self, which: usize, [a, b]: [&[f32]; 2], dy: &[f32], before: Before, dx: &mut [f32]) {
        match self {
            Self::Add if before == Before::Kept => add(dx, dy),
            Self::Add => dx.copy_from_slice(dy),
            Self::Concat { channels } => {
                let mine = if which == 0 { 0..channels[0] } else { channels[0]..channels[0] + channels[1] };
                let pixels = dx.chunks_exact_mut(mine.len()).zip(dy.chunks_exact(channels[0] + channels[1]));
                pixels.for_each(|(dx, dy)| match before {
                    Before::Kept => add(dx, &dy[mine.clone()]),
                    Before::Lost => dx.copy_from_slice(&dy[mine.clone()]),
                });
            }
            Self::Swiglu => {
                if before == Before::Lost {
                    dx.fill(0.0);
                }
                let all = dx.iter_mut().zip(dy).zip(a).zip(b);
                vectorised(
                    #[inline(always)]
                    || match which {
                        0 => all.for_each(|(((dx, dy), a), b)| {
                            let gate = sigmoid(*a);
                            *dx += dy * b * (gate + a * gate * (1.0 - gate));
                        }),
                        _ => all.for_each(|(((dx, dy), a), _)| *dx += dy * a * sigmoid(*a)),
                    },
                );
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Join;
    use crate::kernel::Before;

    #[test]
    fn channels_side_by_side() {
        let join = Join::Concat { channels: [1, 2] };
        let mut y = [f32::NAN; 6];
        join.forward([&[1.0, 4.0], &[2.0, 3.0, 5.0, 6.0]], &mut y);
        assert_eq!(y, [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
        let (mut first, mut second) = ([f32::NAN; 2], [1.0; 4]);
        join.gradient(0, [&[], &[]], &y, Before::Lost, &mut first);
        join.gradient(1, [&[], &[]], &y, Before::Kept, &mut second);
        assert_eq!((first, second), ([1.0, 4.0], [3.0, 4.0, 6.0, 7.0]));
    }
}
