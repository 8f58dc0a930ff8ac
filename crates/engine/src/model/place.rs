//! Where a layer stands in a description, and the checks whose complaints name it.

use super::graph::{ModelError, NamedTensor};
use super::layer::Shape;
use super::layers::Window;

/// The most numbers that a network may be made of, all sizes multiplied out: what a machine can address, eight bytes each.
const MOST_NUMBERS: usize = isize::MAX as usize / 8;

/// Where a layer stands: for error messages, and its name in checkpoints.
pub(super) struct Place {
    pub described: String,
    pub name: String,
}

impl Place {
    pub(super) fn error(&self, problem: String) -> ModelError {
        ModelError { place: self.described.clone(), problem }
    }

    pub(super) fn positive(&self, field: &str, n: usize) -> Result<usize, ModelError> {
        if n == 0 { Err(self.error(format!("`{field}` must not be 0"))) } else { Ok(n) }
    }

    /// The deviation of a start from normal numbers, if one is given.
    pub(super) fn deviation(&self, init: Option<f32>) -> Result<Option<f32>, ModelError> {
        match init {
            Some(deviation) if !(deviation >= 0.0 && deviation.is_finite()) => {
                Err(self.error(format!("an `init` of {deviation} is no deviation; it must be 0 or more")))
            }
            init => Ok(init),
        }
    }

    pub(super) fn sequence(&self, shape: &[usize]) -> Result<[usize; 2], ModelError> {
        <[usize; 2]>::try_from(shape)
            .map_err(|_| self.error(format!("its input must be [steps, features] and not {}", show(shape))))
    }

    pub(super) fn image(&self, shape: &[usize]) -> Result<[usize; 3], ModelError> {
        <[usize; 3]>::try_from(shape).map_err(|_| self.needs("[height, width, channels]", shape))
    }

    /// The answer to an input of another shape than this.
    pub(super) fn needs(&self, expected: &str, shape: &[usize]) -> ModelError {
        self.error(format!("its input must be {expected} and not {}", show(shape)))
    }

    /// A window over inputs of this shape, which has as many axes beside the channels as is said, and how many of it fit along
    /// each. What its size is called differs.
    pub(super) fn window(
        &self,
        shape: &[usize],
        n_axes: usize,
        (field, kernel): (&str, usize),
        stride: usize,
        padding: usize,
    ) -> Result<(Window, Shape), ModelError> {
        let (what, expected) = match n_axes {
            1 => ("a sequence", "[steps, features]"),
            2 => ("an image", "[height, width, channels]"),
            _ => ("a volume", "[depth, height, width, channels]"),
        };
        if shape.len() != n_axes + 1 {
            return Err(self.needs(expected, shape));
        }
        self.check_window((field, kernel), stride, padding)?;
        let window = Window::new(shape, kernel, stride, padding);
        let output = window.output().ok_or_else(|| {
            let sizes: Vec<String> = shape[..n_axes].iter().map(usize::to_string).collect();
            self.error(format!(
                "a window of {kernel} does not fit {what} of {}; make it smaller, or pool less before it",
                sizes.join(" by ")
            ))
        })?;
        Ok((window, output[3 - n_axes..].to_vec()))
    }

    /// What is true of a window whatever it slides over.
    pub(super) fn check_window(
        &self,
        (field, kernel): (&str, usize),
        stride: usize,
        padding: usize,
    ) -> Result<(), ModelError> {
        self.positive(field, kernel)?;
        self.positive("stride", stride)?;
        if padding >= kernel {
            let problem = format!("a padding of {padding} is not smaller than the window's {kernel}; make it smaller");
            return Err(self.error(problem));
        }
        Ok(())
    }
}

/// Counts how large a network grows, so that no product of sizes made from it can overflow.
#[derive(Default)]
pub(super) struct Size(usize);

impl Size {
    /// Adds the product of these sizes; false when that is more than any machine could hold.
    pub(super) fn grow(&mut self, factors: &[usize]) -> bool {
        let product = factors.iter().try_fold(1_usize, |product, &factor| product.checked_mul(factor));
        let total = product.and_then(|product| self.0.checked_add(product)).filter(|&total| total <= MOST_NUMBERS);
        self.0 = total.unwrap_or(self.0);
        total.is_some()
    }
}

pub(super) fn show(shape: &[usize]) -> String {
    let axes: Vec<String> = shape.iter().map(usize::to_string).collect();
    format!("[{}]", axes.join(", "))
}

/// Every tensor must be told apart from the others in a checkpoint.
pub(super) fn check_names(tensors: &[NamedTensor]) -> Result<(), ModelError> {
    let mut names: Vec<&str> = tensors.iter().map(|tensor| tensor.name.as_str()).collect();
    names.sort_unstable();
    match names.windows(2).find(|pair| pair[0] == pair[1]) {
        None => Ok(()),
        Some(pair) => Err(ModelError {
            place: "layers".into(),
            problem: format!("two layers have a tensor named `{}`; give each layer a name of its own", pair[0]),
        }),
    }
}
