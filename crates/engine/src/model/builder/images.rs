//! Layers over images, sequences and volumes: convolutions, pools, and their opposites.

use crate::model::graph::ModelError;
use crate::model::layer_options::{ConvSpec, DepthwiseSpec, PoolSpec, UpsampleSpec};
use crate::model::layers::{Conv, Depthwise, GlobalPool, Pool, PoolKind, TransposedConv, Upsample, Window};
use crate::model::place::Place;

use super::{Builder, Flow};

impl Builder {
    /// A convolution along as many axes as is said.
    pub(super) fn conv(
        &mut self,
        n_axes: usize,
        spec: &ConvSpec,
        place: &Place,
        flow: &Flow,
    ) -> Result<Flow, ModelError> {
        let kernel = ("kernel", spec.kernel);
        let (window, mut shape) = place.window(&flow.shape, n_axes, kernel, spec.stride, spec.padding)?;
        let out_channels = place.positive("out", spec.out)?;
        self.reserve_filter(place, &window, out_channels)?;
        let layer = Conv { window, out_channels, bias: spec.bias };
        shape.push(out_channels);
        let kind = match n_axes {
            1 => "conv1d",
            2 => "conv",
            _ => "conv3d",
        };
        self.push(Box::new(layer), kind, place, flow, shape)
    }

    pub(super) fn transposed_conv(&mut self, spec: &ConvSpec, place: &Place, flow: &Flow) -> Result<Flow, ModelError> {
        let [height, width, out_channels] = place.image(&flow.shape)?;
        let ConvSpec { kernel, stride, padding, bias, .. } = *spec;
        place.check_window(("kernel", kernel), stride, padding)?;
        let channels = place.positive("out", spec.out)?;
        let grown = |n: usize| {
            let with_border = (n - 1).saturating_mul(stride).saturating_add(kernel);
            with_border.checked_sub(2 * padding).filter(|&n| n > 0).ok_or_else(|| {
                let problem =
                    format!("a padding of {padding} leaves nothing of {with_border} rows or columns; make it smaller");
                place.error(problem)
            })
        };
        let shape = vec![grown(height)?, grown(width)?, channels];
        let window = Window::new(&shape, kernel, stride, padding);
        self.reserve_filter(place, &window, out_channels)?;
        let layer = TransposedConv { conv: Conv { window, out_channels, bias: false }, bias };
        self.push(Box::new(layer), "transposed-conv", place, flow, shape)
    }

    fn reserve_filter(&mut self, place: &Place, window: &Window, out_channels: usize) -> Result<(), ModelError> {
        // Both ways a packed filter has its channels rounded up to whole vectors, of 16 lanes at most.
        let [channels, out] = [window.channels, out_channels].map(|channels| channels.saturating_add(16));
        let [depth, height, width] = window.padded();
        let [planes, rows, columns] = window.kernel;
        self.reserve(place, &[2, depth, height, width, planes, rows, columns, channels, out])
    }

    pub(super) fn depthwise(&mut self, spec: &DepthwiseSpec, place: &Place, flow: &Flow) -> Result<Flow, ModelError> {
        let kernel = ("kernel", spec.kernel);
        let (window, mut shape) = place.window(&flow.shape, 2, kernel, spec.stride, spec.padding)?;
        let ([_, height, width], [_, rows, columns]) = (window.padded(), window.kernel);
        self.reserve(place, &[height, width, rows, columns, window.channels])?;
        shape.push(window.channels);
        self.push(Box::new(Depthwise { window, bias: spec.bias }), "depthwise-conv", place, flow, shape)
    }

    pub(super) fn pool(
        &mut self,
        spec: &PoolSpec,
        kind: PoolKind,
        place: &Place,
        flow: &Flow,
    ) -> Result<Flow, ModelError> {
        let stride = spec.stride.unwrap_or(spec.size);
        let (window, mut shape) = place.window(&flow.shape, 2, ("size", spec.size), stride, spec.padding)?;
        if spec.padding > spec.size / 2 {
            let (padding, size) = (spec.padding, spec.size);
            let problem = format!("a padding of {padding} is more than half of the window's {size}; make it smaller");
            return Err(place.error(problem));
        }
        let [_, height, width] = window.padded();
        self.reserve(place, &[height, width, window.channels])?;
        shape.push(window.channels);
        let name = if kind == PoolKind::Max { "max-pool" } else { "average-pool" };
        self.push(Box::new(Pool { kind, window }), name, place, flow, shape)
    }

    pub(super) fn global_pool(&mut self, place: &Place, flow: &Flow) -> Result<Flow, ModelError> {
        let (channels, size) = flow.shape.split_last().expect("a shape has an axis");
        if size.is_empty() {
            return Err(place.needs(
                "[height, width, channels], [depth, height, width, channels] or [steps, features]",
                &flow.shape,
            ));
        }
        let layer = GlobalPool { n_pixels: size.iter().product(), channels: *channels };
        self.push(Box::new(layer), "global-pool", place, flow, vec![*channels])
    }

    pub(super) fn upsample(&mut self, spec: &UpsampleSpec, place: &Place, flow: &Flow) -> Result<Flow, ModelError> {
        let [height, width, channels] = place.image(&flow.shape)?;
        let factor = place.positive("factor", spec.factor)?;
        self.reserve(place, &[height, width, channels, factor, factor])?;
        let layer = Upsample { width, channels, factor };
        self.push(Box::new(layer), "upsample", place, flow, vec![height * factor, width * factor, channels])
    }
}
