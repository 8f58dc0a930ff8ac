//! Activations: a function of one number, applied to every number.

use serde::{Deserialize, Serialize};

use crate::kernel::{normal, sigmoid, tanh, vectorised};
use crate::model::layer::{Backward, Context, Keeps, Layer, Scratch};

/// Which function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ActivationKind {
    /// x times the probability that a normal variable is below x (the exact form, not the tanh approximation).
    Gelu,
    /// The tanh approximation of the same.
    GeluTanh,
    /// The positive part.
    Relu,
    /// 1 / (1 + e^-x).
    Sigmoid,
    /// x / (1 + e^-x).
    Silu,
    /// The hyperbolic tangent.
    Tanh,
}

/// A layer that applies an activation.
pub struct Activation(pub ActivationKind);

impl Layer for Activation {
    fn keeps(&self) -> Keeps {
        match self.0 {
            ActivationKind::Gelu | ActivationKind::GeluTanh | ActivationKind::Silu => Keeps::INPUT,
            ActivationKind::Relu | ActivationKind::Sigmoid | ActivationKind::Tanh => Keeps::OUTPUT,
        }
    }

    fn forward(&self, _: &Context<'_>, x: &[f32], y: &mut [f32], _: &mut Scratch) {
        match self.0 {
            ActivationKind::Gelu => map(x, y, |x| x * normal(x).0),
            ActivationKind::GeluTanh => map(x, y, |x| x * gate(x).0),
            // Not `f32::max`, which would lose a NaN that should end the run with a clear word.
            ActivationKind::Relu => map(x, y, |x| if x < 0.0 { 0.0 } else { x }),
            ActivationKind::Sigmoid => map(x, y, sigmoid),
            ActivationKind::Silu => map(x, y, |x| x * sigmoid(x)),
            ActivationKind::Tanh => map(x, y, tanh),
        }
    }

    fn input_gradient(&self, _: &Context<'_>, back: Backward<'_>, dx: &mut [f32], _: &mut Scratch) {
        match self.0 {
            ActivationKind::Gelu => scale(back.dy, back.x, dx, |x| {
                let (below, density) = normal(x);
                below + x * density
            }),
            ActivationKind::GeluTanh => scale(back.dy, back.x, dx, |x| {
                let (gate, slope) = gate(x);
                gate + x * slope
            }),
            ActivationKind::Relu => scale(back.dy, back.y, dx, |y| if y > 0.0 { 1.0 } else { 0.0 }),
            ActivationKind::Sigmoid => scale(back.dy, back.y, dx, |y| y * (1.0 - y)),
            ActivationKind::Silu => scale(back.dy, back.x, dx, |x| {
                let gate = sigmoid(x);
                gate + x * gate * (1.0 - gate)
            }),
            ActivationKind::Tanh => scale(back.dy, back.y, dx, |y| 1.0 - y * y),
        }
    }
}

#[inline(always)]
fn map(x: &[f32], y: &mut [f32], f: impl Fn(f32) -> f32) {
    vectorised(
        #[inline(always)]
        || {
            // Not `for_each`, which is left a function of its own, for the narrowest vectors, where `f` is long.
            for (&x, y) in x.iter().zip(y) {
                *y = f(x);
            }
        },
    );
}

/// `dx = dy * slope(at)`, element by element.
#[inline(always)]
fn scale(dy: &[f32], at: &[f32], dx: &mut [f32], slope: impl Fn(f32) -> f32) {
    vectorised(
        #[inline(always)]
        || {
            for ((dy, &at), dx) in dy.iter().zip(at).zip(dx) {
                *dx = dy * slope(at);
            }
        },
    );
}

/// What the tanh approximation of gelu multiplies x with, and its slope: (1 + tanh u) / 2 is the sigmoid of 2 u.
#[inline(always)]
fn gate(x: f32) -> (f32, f32) {
    // 2 sqrt(2 / pi), and the cube's share.
    const FACTOR: f32 = 1.595_769;
    const CUBE: f32 = 0.044_715;
    let gate = sigmoid(FACTOR * (x + CUBE * x * x * x));
    (gate, gate * (1.0 - gate) * FACTOR * (1.0 + 3.0 * CUBE * x * x))
}
