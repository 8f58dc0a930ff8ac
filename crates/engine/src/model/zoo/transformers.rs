//! Transformers and other networks over sequences.

use super::{Order, dense};
use crate::model::description::{LayerSpec, ResidualSpec};
use crate::model::layer_options::{
    ConvSpec, DenseSpec, EmbeddingSpec, RecurrentSpec, RowNormSpec, StepsKept, SwigluSpec,
};
use crate::model::sequence_options::{AttentionSpec, PositionsSpec, TiedSpec};

/// What GPT-2's weights start as, and what it drops while training.
const GPT_DEVIATION: f32 = 0.02;
const GPT_DROPOUT: f32 = 0.1;

/// GPT-2 with these sizes, under the names of its published checkpoints; the head is the embedding.
pub(super) fn gpt(order: &Order<'_>) -> Vec<LayerSpec> {
    gpt_of(order, order.input[0])
}

/// The same with 1024 positions whatever the length of the samples is.
pub(super) fn gpt2(order: &Order<'_>) -> Vec<LayerSpec> {
    gpt_of(order, 1024)
}

fn gpt_of(order: &Order<'_>, length: usize) -> Vec<LayerSpec> {
    let [n_layers, width, heads] = [order.widths[0], order.widths[1], order.widths[2]];
    let init = Some(GPT_DEVIATION);
    let stored = |out, name: &str, deviation| {
        let spec = DenseSpec { init: Some(deviation), transposed: true, ..DenseSpec::new(out) };
        LayerSpec::Dense(spec.named(name))
    };
    // What is added to the sum of all layers starts smaller, so that the sum does not grow with their number.
    let added = |name| stored(width, name, GPT_DEVIATION / (2.0 * n_layers as f32).sqrt());
    let norm = |name: &str| LayerSpec::LayerNorm(RowNormSpec { epsilon: None, name: Some(name.into()) });
    let dropout = || LayerSpec::Dropout(GPT_DROPOUT);
    let attention = AttentionSpec { heads, kv_heads: None, causal: true, rotary: None, dropout: GPT_DROPOUT };
    let mut layers = vec![
        LayerSpec::Embedding(EmbeddingSpec { symbols: order.n_classes, out: width, init, name: Some("wte".into()) }),
        LayerSpec::Positions(PositionsSpec { length: Some(length), init, name: Some("wpe".into()) }),
        dropout(),
    ];
    for layer in 0..n_layers {
        let projected = stored(3 * width, "attn.c_attn", GPT_DEVIATION);
        let attend = LayerSpec::Attention(attention.clone());
        layers.push(block(layer, vec![norm("ln_1"), projected, attend, added("attn.c_proj"), dropout()]));
        let wide = stored(4 * width, "mlp.c_fc", GPT_DEVIATION);
        layers.push(block(layer, vec![norm("ln_2"), wide, LayerSpec::GeluTanh, added("mlp.c_proj"), dropout()]));
    }
    layers.extend([norm("ln_f"), LayerSpec::TiedDense(TiedSpec { to: "wte".into() })]);
    layers
}

fn block(layer: usize, body: Vec<LayerSpec>) -> LayerSpec {
    LayerSpec::Residual(ResidualSpec { body, projection: Vec::new(), name: Some(format!("h.{layer}")) })
}

/// Llama with these sizes, under the names of its published checkpoints: rotary positions, RMS norm, SwiGLU and, with a fourth size, so
/// many heads for keys and values.
pub(super) fn llama(order: &Order<'_>) -> Vec<LayerSpec> {
    let [n_layers, width, heads] = [order.widths[0], order.widths[1], order.widths[2]];
    let kv_heads = order.widths.get(3).copied().unwrap_or(heads);
    let kv_width = width / heads * kv_heads;
    // Two thirds of four times the width, as three matrices share the work of two, in whole hundreds and something.
    let hidden = (8 * width / 3).next_multiple_of(64);
    let init = Some(GPT_DEVIATION);
    let plain = |out| DenseSpec { bias: false, init, ..DenseSpec::new(out) };
    let norm = |name: &str| LayerSpec::RmsNorm(RowNormSpec { epsilon: Some(1e-5), name: Some(name.into()) });
    let attention =
        AttentionSpec { heads, kv_heads: Some(kv_heads), causal: true, rotary: Some(10_000.0), dropout: 0.0 };
    let embedding =
        EmbeddingSpec { symbols: order.n_classes, out: width, init, name: Some("model.embed_tokens".into()) };
    let mut layers = vec![LayerSpec::Embedding(embedding)];
    for layer in 0..n_layers {
        let name = format!("model.layers.{layer}");
        let block = |body| LayerSpec::Residual(ResidualSpec { body, projection: Vec::new(), name: Some(name.clone()) });
        let projections = DenseSpec {
            parts: vec![("q_proj".into(), width), ("k_proj".into(), kv_width), ("v_proj".into(), kv_width)],
            ..plain(width + 2 * kv_width)
        };
        layers.push(block(vec![
            norm("input_layernorm"),
            LayerSpec::Dense(projections.named("self_attn")),
            LayerSpec::Attention(attention.clone()),
            LayerSpec::Dense(plain(width).named("self_attn.o_proj")),
        ]));
        layers.push(block(vec![
            norm("post_attention_layernorm"),
            LayerSpec::Swiglu(SwigluSpec { out: hidden, bias: false, name: Some("mlp".into()) }),
            LayerSpec::Dense(plain(width).named("mlp.down_proj")),
        ]));
    }
    layers.extend([norm("model.norm"), LayerSpec::Dense(plain(order.n_classes).named("lm_head"))]);
    layers
}

/// An embedding, an LSTM and a dense layer over every position.
pub(super) fn lstm_lm(order: &Order<'_>) -> Vec<LayerSpec> {
    let width = order.widths[0];
    let embedding = EmbeddingSpec { symbols: order.n_classes, out: width, init: Some(0.1), name: None };
    let lstm = RecurrentSpec { out: width, steps: StepsKept::All, name: None };
    vec![LayerSpec::Embedding(embedding), LayerSpec::Lstm(lstm), dense(order.n_classes)]
}

/// Blocks of attention that looks both ways and of two dense layers, with layer norm before each.
fn encoder(n_layers: usize, width: usize, heads: usize) -> impl Iterator<Item = LayerSpec> {
    let norm = || LayerSpec::LayerNorm(RowNormSpec { epsilon: None, name: None });
    let attention = AttentionSpec { heads, kv_heads: None, causal: false, rotary: None, dropout: 0.0 };
    let block = |body| LayerSpec::Residual(ResidualSpec { body, projection: Vec::new(), name: None });
    (0..n_layers).flat_map(move |_| {
        let attend = LayerSpec::Attention(attention.clone());
        [
            block(vec![norm(), dense(3 * width), attend, dense(width)]),
            block(vec![norm(), dense(4 * width), LayerSpec::Gelu, dense(width)]),
        ]
    })
}

/// The last layers of a network that classifies sequences: the mean over all positions decides.
fn mean_head(n_classes: usize) -> [LayerSpec; 3] {
    [LayerSpec::LayerNorm(RowNormSpec { epsilon: None, name: None }), LayerSpec::GlobalPool, dense(n_classes)]
}

fn positions() -> LayerSpec {
    LayerSpec::Positions(PositionsSpec { length: None, init: None, name: None })
}

/// Attention over MFCC features.
pub(super) fn speech_attention(order: &Order<'_>) -> Vec<LayerSpec> {
    let width = order.widths[0];
    let first = [dense(width), positions()];
    first.into_iter().chain(encoder(2, width, 4)).chain(mean_head(order.n_classes)).collect()
}

/// A vision transformer (Dosovitskiy et al. 2020) of the size of DeiT-Ti: 12 layers of width 192 with 3 heads, over patches of which 14 go
/// across the picture (8 for small ones); the mean over the patches decides.
pub(super) fn vit_tiny(order: &Order<'_>) -> Vec<LayerSpec> {
    let side = order.input[0];
    let patch = if side >= 112 { side / 14 } else { (side / 8).max(1) };
    let conv = ConvSpec { out: 192, kernel: patch, stride: patch, padding: 0, bias: true, name: None };
    let first = [LayerSpec::Conv(conv), LayerSpec::Sequence, positions()];
    first.into_iter().chain(encoder(12, 192, 3)).chain(mean_head(order.n_classes)).collect()
}
