//! Cutting a part out of a network: which layers can be split by columns, and where a part's numbers lie in the whole's.

use std::ops::Range;
use std::slice;

use super::builder::{Section, build_section};
use super::columns::Columns;
use super::description::{LayerSpec, ModelSpec};
use super::graph::{ModelError, NamedTensor};
use super::network::Network;
use super::part_spec::{PartSpec, Span};
use super::shards::{Shard, Unsplittable, most_tensor_shards, take_shard};

/// A part as it was cut out.
pub(super) struct Cut {
    pub network: Network,
    pub outputs: Columns,
    pub spans: Vec<Span>,
}

/// Cuts a part out of the network that a description describes, and that was built as `whole`.
pub(super) fn cut(spec: &ModelSpec, whole: &Network, part: &PartSpec) -> Result<Cut, ModelError> {
    check_range(spec, part)?;
    let mut layers = spec.layers[part.layers.clone()].to_vec();
    let shard = if part.columns == 1 { None } else { Some(split(&mut layers, part)?) };
    let below = &spec.layers[..part.layers.start];
    let split = shard.as_ref().map(|shard| (shard.channels.clone(), shard.n_channels));
    let section = Section { below, layers: &layers, split: split.clone() };
    let (network, shape) = build_section(&spec.input, section)?;
    let outputs = match &split {
        None => {
            let n_channels = shape[shape.len() - 1];
            Columns { n_pixels: network.lens[network.output] / n_channels, n_channels, channels: 0..n_channels }
        }
        Some((channels, n_channels)) => Columns {
            n_pixels: network.lens[network.output] / channels.len(),
            n_channels: *n_channels,
            channels: channels.clone(),
        },
    };
    let spans = spans(&network, whole, shard.as_ref());
    Ok(Cut { network, outputs, spans })
}

fn check_range(spec: &ModelSpec, part: &PartSpec) -> Result<(), ModelError> {
    let PartSpec { layers: Range { start, end }, column, columns } = *part;
    let wrong = |problem: String| Err(ModelError { place: format!("the layers {start} to {end}"), problem });
    let n = spec.layers.len();
    if start >= end {
        return wrong("there is none from the first to before the last; give every stage at least one".into());
    }
    if end > n {
        return wrong(format!("the network has only {n}; let the last stage end there"));
    }
    if !(spec.can_cut(start) && spec.can_cut(end)) {
        return wrong(
            "they part a mark from its concat, or an embedding from its tied-dense; keep both in one stage".into(),
        );
    }
    if column >= columns {
        return wrong(format!(
            "there is no tensor shard {column} of {columns}; use at least one, and count them from 0"
        ));
    }
    Ok(())
}

/// Has the layers make only what the part makes of them, if they can be split.
fn split(layers: &mut [LayerSpec], part: &PartSpec) -> Result<Shard, ModelError> {
    let error = |i: usize, problem: String| {
        let place = format!("layers[{}] ({})", part.layers.start + i, layers[i].kind());
        ModelError { place, problem }
    };
    let most = most_tensor_shards(layers).map_err(|why| match why {
        Unsplittable::Begins(first) => {
            let problem = "a stage of several tensor shards must begin with a layer that can be split by outputs: conv, conv1d, \
                           conv3d, dense, embedding or swiglu; begin the stage there, or use tensor_shards = 1";
            error(first, problem.into())
        }
        Unsplittable::Mixes(layer) => {
            let problem = "it mixes channels, so it cannot be split into tensor shards with the layers before it; end the stage before \
                           it, or use tensor_shards = 1";
            error(layer, problem.into())
        }
    })?;
    if part.columns > most {
        let heads = layers.iter().position(|layer| matches!(layer, LayerSpec::Attention(_)));
        let what = if heads.is_some() { "heads of keys and values" } else { "outputs" };
        let problem = format!("{} tensor shards cannot share its {most} {what}; use at most {most}", part.columns);
        let first = layers.iter().position(|layer| *layer != LayerSpec::Flatten);
        return Err(error(heads.or(first).unwrap_or(0), problem));
    }
    Ok(take_shard(layers, (part.column, part.columns), most))
}

/// Where the part's numbers lie in the whole, in order of both.
fn spans(network: &Network, whole: &Network, shard: Option<&Shard>) -> Vec<Span> {
    let mut spans: Vec<Span> = Vec::new();
    let mut push = |span: Span| match spans.last_mut() {
        // The running statistics are not trained, so they begin a span of their own.
        Some(last)
            if last.mine + last.len == span.mine
                && last.whole + last.len == span.whole
                && span.mine != network.n_params =>
        {
            last.len += span.len;
        }
        _ => spans.push(span),
    };
    let mut rest = whole.tensors.iter();
    for NamedTensor { name, range, .. } in &network.tensors {
        let home = rest.find(|tensor| tensor.name == *name).expect("the whole has all tensors of its parts, in order");
        let (mine, home) = (range.clone(), home.range.clone());
        let Some(shard) = shard else {
            push(Span { mine: mine.start, whole: home.start, len: mine.len() });
            continue;
        };
        let (blocks, n) = match network.steps[0].params.contains(&mine.start) {
            true => (shard.rows.as_slice(), shard.n_rows),
            false => (slice::from_ref(&shard.channels), shard.n_channels),
        };
        let n_mine: usize = blocks.iter().map(Range::len).sum();
        // A tensor lies as [outer][channel][inner]. Only a dense layer's weights have an inner axis, its inputs.
        let inner = if is_dense_weight(network, name) { mine.len() / n_mine } else { 1 };
        let mut at = mine.start;
        for outer in 0..mine.len() / (n_mine * inner) {
            for block in blocks {
                let (whole, len) = (home.start + (outer * n + block.start) * inner, block.len() * inner);
                push(Span { mine: at, whole, len });
                at += len;
            }
        }
    }
    spans
}

/// Whether a tensor holds the weights of a dense layer: the first of the part, or one that the first is made of.
fn is_dense_weight(network: &Network, tensor: &str) -> bool {
    let is_weight = |name: &str| tensor.strip_prefix(name) == Some(".weight");
    network.steps.iter().any(|step| step.kind == "dense" && is_weight(&step.name))
}
