//! Steps that make one value of two.

use super::bucket_sink::add;
use crate::kernel::{Before, sigmoid, vectorised};

/// What becomes of two values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Join {
    /// Their sum.
    Add,
    /// The second, number by number times the silu of the first.
    Swiglu,
}

impl Join {
    /// Whether the backward pass needs the two values.
    pub(super) fn keeps_inputs(self) -> bool {
        match self {
            Self::Add => false,
            Self::Swiglu => true,
        }
    }

    /// `y` from both.
    pub(super) fn forward(self, [a, b]: [&[f32]; 2], y: &mut [f32]) {
        let both = y.iter_mut().zip(a).zip(b);
        match self {
            Self::Add => vectorised(|| both.for_each(|((y, a), b)| *y = a + b)),
            Self::Swiglu => vectorised(
                #[inline(always)]
                || both.for_each(|((y, a), b)| *y = a * sigmoid(*a) * b),
            ),
        }
    }

    /// Adds the gradient by one of the two (the first is 0) to `dx`, or overwrites it. The values are handed only where they
    /// were kept.
    pub(super) fn gradient(self, which: usize, [a, b]: [&[f32]; 2], dy: &[f32], before: Before, dx: &mut [f32]) {
        match self {
            Self::Add if before == Before::Kept => add(dx, dy),
            Self::Add => dx.copy_from_slice(dy),
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
