//! Activations: a function of one number, applied to every number.

use serde::{Deserialize, Serialize};

use crate::kernel::vectorised;
use crate::model::layer::{Backward, Context, Keeps, Layer, Scratch};

/// Which function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ActivationKind {
    /// x times the probability that a normal variable is below x (the exact form, not the tanh approximation).
    Gelu,
    /// The positive part.
    Relu,
    /// 1 / (1 + e^-x).
    Sigmoid,
    /// The hyperbolic tangent.
    Tanh,
}

/// A layer that applies an activation.
pub struct Activation(pub ActivationKind);

impl Layer for Activation {
    fn keeps(&self) -> Keeps {
        match self.0 {
            ActivationKind::Gelu => Keeps::INPUT,
            ActivationKind::Relu | ActivationKind::Sigmoid | ActivationKind::Tanh => Keeps::OUTPUT,
        }
    }

    fn forward(&self, _: &Context<'_>, x: &[f32], y: &mut [f32], _: &mut Scratch) {
        match self.0 {
            ActivationKind::Gelu => map(x, y, |x| x * normal_cdf(x)),
            // Not `f32::max`, which would lose a NaN that should end the run with a clear word.
            ActivationKind::Relu => map(x, y, |x| if x < 0.0 { 0.0 } else { x }),
            ActivationKind::Sigmoid => map(x, y, |x| 1.0 / (1.0 + (-x).exp())),
            ActivationKind::Tanh => map(x, y, f32::tanh),
        }
    }

    fn input_gradient(&self, _: &Context<'_>, back: Backward<'_>, dx: &mut [f32], _: &mut Scratch) {
        match self.0 {
            ActivationKind::Gelu => scale(back.dy, back.x, dx, |x| normal_cdf(x) + x * normal_density(x)),
            ActivationKind::Relu => scale(back.dy, back.y, dx, |y| if y > 0.0 { 1.0 } else { 0.0 }),
            ActivationKind::Sigmoid => scale(back.dy, back.y, dx, |y| y * (1.0 - y)),
            ActivationKind::Tanh => scale(back.dy, back.y, dx, |y| 1.0 - y * y),
        }
    }
}

#[inline(always)]
fn map(x: &[f32], y: &mut [f32], f: impl Fn(f32) -> f32) {
    vectorised(|| x.iter().zip(y).for_each(|(&x, y)| *y = f(x)));
}

/// `dx = dy * slope(at)`, element by element.
#[inline(always)]
fn scale(dy: &[f32], at: &[f32], dx: &mut [f32], slope: impl Fn(f32) -> f32) {
    vectorised(|| dy.iter().zip(at).zip(dx).for_each(|((dy, &at), dx)| *dx = dy * slope(at)));
}

fn normal_density(x: f32) -> f32 {
    (-0.5 * x * x).exp() * (0.5 * std::f32::consts::FRAC_1_PI).sqrt()
}

/// The probability that a normal variable is below x, by the rational approximation 7.1.26 of Abramowitz and Stegun, whose
/// error is below 1.5e-7: as exact as single precision.
fn normal_cdf(x: f32) -> f32 {
    let z = f64::from(x.abs()) * std::f64::consts::FRAC_1_SQRT_2;
    let t = 1.0 / (1.0 + 0.327_591_1 * z);
    let poly =
        t * (0.254_829_592 + t * (-0.284_496_736 + t * (1.421_413_741 + t * (-1.453_152_027 + t * 1.061_405_429))));
    let erf = 1.0 - poly * (-z * z).exp();
    (0.5 * (1.0 + erf.copysign(f64::from(x)))) as f32
}
