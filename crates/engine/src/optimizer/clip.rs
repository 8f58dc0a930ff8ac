//! Gradient clipping: a gradient that is longer than allowed is made as long as allowed, in the same direction.

use crate::kernel::squared_norm;

/// By what a gradient is multiplied so that its norm is at most this; 1 where nothing bounds it.
///
/// The gradient comes in pieces, in an order that must not depend on who asks: the sum's last bits do.
pub(super) fn clip_scale<'a>(most: Option<f32>, pieces: impl Iterator<Item = &'a [f32]>) -> f32 {
    let Some(most) = most else { return 1.0 };
    let norm = pieces.map(squared_norm).sum::<f64>().sqrt();
    if norm > f64::from(most) { (f64::from(most) / norm) as f32 } else { 1.0 }
}

#[cfg(test)]
mod tests {
    use super::clip_scale;

    #[test]
    fn only_what_is_too_long_is_shortened() {
        let pieces = [vec![3.0, 0.0], vec![-4.0]];
        let scale = |most| clip_scale(most, pieces.iter().map(Vec::as_slice));
        assert_eq!([scale(None), scale(Some(5.0)), scale(Some(2.5))], [1.0, 1.0, 0.5]);
    }
}
