//! Where a layer stands in a description, and the checks whose complaints name it.

use super::graph::{ModelError, NamedTensor};
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
        <[usize; 3]>::try_from(shape)
            .map_err(|_| self.error(format!("its input must be [height, width, channels] and not {}", show(shape))))
    }

    /// A window over images of this shape and how many of it fit, down and across. What its size is called differs.
    pub(super) fn window(
        &self,
        shape: &[usize],
        (field, kernel): (&str, usize),
        stride: usize,
        padding: usize,
    ) -> Result<(Window, [usize; 2]), ModelError> {
        let [height, width, channels] = self.image(shape)?;
        let kernel = self.positive(field, kernel)?;
        let stride = self.positive("stride", stride)?;
        if padding >= kernel {
            let problem = format!("a padding of {padding} is not smaller than the window's {kernel}; make it smaller");
            return Err(self.error(problem));
        }
        let window = Window { height, width, channels, kernel, stride, padding };
        let (down, across) = window.output().ok_or_else(|| {
            self.error(format!(
                "a window of {kernel} does not fit an image of {height} by {width}; make it smaller, or pool less before it"
            ))
        })?;
        Ok((window, [down, across]))
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
