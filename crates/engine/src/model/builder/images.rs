//! Layers over images.

use crate::model::graph::ModelError;
use crate::model::layer_options::{ConvSpec, DepthwiseSpec, PoolSpec};
use crate::model::layers::{Conv, Depthwise, GlobalPool, Pool, PoolKind};
use crate::model::place::Place;

use super::{Builder, Flow};

impl Builder {
    pub(super) fn conv(&mut self, spec: &ConvSpec, place: &Place, flow: &Flow) -> Result<Flow, ModelError> {
        let (window, [height, width]) =
            place.window(&flow.shape, ("kernel", spec.kernel), spec.stride, spec.padding)?;
        let out_channels = place.positive("out", spec.out)?;
        // Both ways a packed filter has its channels rounded up to whole vectors, of 16 lanes at most.
        let [channels, out] = [window.channels, out_channels].map(|channels| channels.saturating_add(16));
        let (padded_height, padded_width) = window.padded();
        self.reserve(place, &[2, padded_height, padded_width, window.kernel, window.kernel, channels, out])?;
        let layer = Conv { window, out_channels, bias: spec.bias };
        self.push(Box::new(layer), "conv", place, flow, vec![height, width, out_channels])
    }

    pub(super) fn depthwise(&mut self, spec: &DepthwiseSpec, place: &Place, flow: &Flow) -> Result<Flow, ModelError> {
        let (window, [height, width]) =
            place.window(&flow.shape, ("kernel", spec.kernel), spec.stride, spec.padding)?;
        let (padded_height, padded_width) = window.padded();
        self.reserve(place, &[padded_height, padded_width, window.kernel, window.kernel, window.channels])?;
        let layer = Depthwise { window, bias: spec.bias };
        self.push(Box::new(layer), "depthwise-conv", place, flow, vec![height, width, window.channels])
    }

    pub(super) fn pool(
        &mut self,
        spec: &PoolSpec,
        kind: PoolKind,
        place: &Place,
        flow: &Flow,
    ) -> Result<Flow, ModelError> {
        let (window, [height, width]) =
            place.window(&flow.shape, ("size", spec.size), spec.stride.unwrap_or(spec.size), spec.padding)?;
        if spec.padding > spec.size / 2 {
            let (padding, size) = (spec.padding, spec.size);
            let problem = format!("a padding of {padding} is more than half of the window's {size}; make it smaller");
            return Err(place.error(problem));
        }
        let (padded_height, padded_width) = window.padded();
        self.reserve(place, &[padded_height, padded_width, window.channels])?;
        let name = if kind == PoolKind::Max { "max-pool" } else { "average-pool" };
        self.push(Box::new(Pool { kind, window }), name, place, flow, vec![height, width, window.channels])
    }

    pub(super) fn global_pool(&mut self, place: &Place, flow: &Flow) -> Result<Flow, ModelError> {
        let (n_pixels, channels) = match flow.shape[..] {
            [n_steps, features] => (n_steps, features),
            _ => place.image(&flow.shape).map(|[height, width, channels]| (height * width, channels))?,
        };
        let layer = GlobalPool { n_pixels, channels };
        self.push(Box::new(layer), "global-pool", place, flow, vec![channels])
    }
}
