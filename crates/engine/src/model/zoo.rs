//! Well-known networks by name.

use super::description::{LayerSpec, ModelSpec, ResidualSpec};
use super::layer_options::{ConvSpec, DenseSpec, NormSpec, PoolSpec, RecurrentSpec, StepsKept};
use crate::nearest::nearest;

mod transformers;

/// One of the zoo's networks.
pub struct ZooEntry {
    /// What to call it by.
    pub name: &'static str,
    /// What it is, in a line.
    pub about: &'static str,
    /// The shape of a sample and the number of classes when the data do not say.
    pub default_input: &'static [usize],
    /// See `default_input`.
    pub default_classes: usize,
    /// Sizes for names such as `mlp:512,512` or `gpt:6x384x6`; empty when the name takes none.
    pub default_widths: &'static [usize],
    layers: fn(&Order<'_>) -> Vec<LayerSpec>,
}

/// What a network is ordered for.
struct Order<'a> {
    input: &'a [usize],
    n_classes: usize,
    widths: &'a [usize],
}

/// The list, by name.
pub const ZOO: &[ZooEntry] = &[
    ZooEntry {
        name: "cifar-cnn",
        about: "four convolutions and two dense layers for 32x32 colour images; 1,250,858 parameters",
        default_input: &[32, 32, 3],
        default_classes: 10,
        default_widths: &[],
        layers: cifar_cnn,
    },
    ZooEntry {
        name: "digits-cnn",
        about: "two small convolutions and two dense layers for the embedded 8x8 digits",
        default_input: &[8, 8, 1],
        default_classes: 10,
        default_widths: &[],
        layers: digits_cnn,
    },
    ZooEntry {
        name: "gpt",
        about: "language model of GPT-2's kind; `gpt:6x384x6` sets layers, width and heads",
        default_input: &[256],
        default_classes: 256,
        default_widths: &[6, 384, 6],
        layers: transformers::gpt,
    },
    ZooEntry {
        name: "gpt2",
        about: "GPT-2 (Radford et al. 2019) with its published sizes; 124,439,808 parameters",
        default_input: &[1024],
        default_classes: 50257,
        default_widths: &[12, 768, 12],
        layers: transformers::gpt2,
    },
    ZooEntry {
        name: "gpt2-large",
        about: "GPT-2 (Radford et al. 2019) with its published sizes; 774,030,080 parameters",
        default_input: &[1024],
        default_classes: 50257,
        default_widths: &[36, 1280, 20],
        layers: transformers::gpt2,
    },
    ZooEntry {
        name: "gpt2-medium",
        about: "GPT-2 (Radford et al. 2019) with its published sizes; 354,823,168 parameters",
        default_input: &[1024],
        default_classes: 50257,
        default_widths: &[24, 1024, 16],
        layers: transformers::gpt2,
    },
    ZooEntry {
        name: "gpt2-xl",
        about: "GPT-2 (Radford et al. 2019) with its published sizes; 1,557,611,200 parameters",
        default_input: &[1024],
        default_classes: 50257,
        default_widths: &[48, 1600, 25],
        layers: transformers::gpt2,
    },
    ZooEntry {
        name: "llama",
        about: "language model of Llama's kind; `llama:6x384x6` sets layers, width and heads, `llama:6x384x6x2` those of keys and values too",
        default_input: &[256],
        default_classes: 256,
        default_widths: &[6, 384, 6],
        layers: transformers::llama,
    },
    ZooEntry {
        name: "lstm-lm",
        about: "language model with an LSTM; `lstm-lm:512` sets its width",
        default_input: &[256],
        default_classes: 256,
        default_widths: &[512],
        layers: transformers::lstm_lm,
    },
    ZooEntry {
        name: "mlp",
        about: "dense layers with relu between; `mlp:512,512` sets the hidden widths",
        default_input: &[28, 28, 1],
        default_classes: 10,
        default_widths: &[512, 512],
        layers: mlp,
    },
    ZooEntry {
        name: "mnist-cnn",
        about: "two convolutions and two dense layers for 28x28 grey images; 1,199,882 parameters",
        default_input: &[28, 28, 1],
        default_classes: 10,
        default_widths: &[],
        layers: mnist_cnn,
    },
    ZooEntry {
        name: "resnet20",
        about: "residual network of 20 layers for 32x32 images (He et al. 2015), with projections; 272,474 parameters",
        default_input: &[32, 32, 3],
        default_classes: 10,
        default_widths: &[],
        layers: resnet20,
    },
    ZooEntry {
        name: "resnet50",
        about: "residual network of 50 layers for photographs (He et al. 2015); 25,557,032 parameters",
        default_input: &[224, 224, 3],
        default_classes: 1000,
        default_widths: &[],
        layers: resnet50,
    },
    ZooEntry {
        name: "speech-attention",
        about: "two transformer blocks over MFCC features; `speech-attention:128` sets their width",
        default_input: &[64, 13],
        default_classes: 10,
        default_widths: &[128],
        layers: transformers::speech_attention,
    },
    ZooEntry {
        name: "speech-dense",
        about: "five dense layers over MFCC features; `speech-dense:2000` sets their width",
        default_input: &[64, 13],
        default_classes: 10,
        default_widths: &[2000],
        layers: speech_dense,
    },
    ZooEntry {
        name: "speech-rnn",
        about: "a recurrent layer over MFCC features; `speech-rnn:128` sets its width",
        default_input: &[64, 13],
        default_classes: 10,
        default_widths: &[128],
        layers: speech_rnn,
    },
    ZooEntry {
        name: "unet-small",
        about: "U-Net (Ronneberger et al. 2015) of three levels, with batch norm, for a class or numbers at each pixel; `unet-small:16` sets \
                the channels of the first level",
        default_input: &[64, 64, 3],
        default_classes: 2,
        default_widths: &[16],
        layers: unet_small,
    },
    ZooEntry {
        name: "vit-tiny",
        about: "vision transformer of 12 layers of width 192 (Dosovitskiy et al. 2020), with the mean over the patches",
        default_input: &[224, 224, 3],
        default_classes: 1000,
        default_widths: &[],
        layers: transformers::vit_tiny,
    },
];

/// Why a name stands for no network.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum ZooError {
    /// Nothing of that name.
    #[error("there is no model named `{name}`{hint}; there are: {known}")]
    Unknown {
        /// The name that was given.
        name: String,
        /// The nearest that exists.
        hint: String,
        /// All that exist.
        known: String,
    },
    /// Samples of another shape than it takes.
    #[error("`{name}` takes {takes} and not samples of shape {input:?}")]
    Input {
        /// The name that was given.
        name: String,
        /// What it takes.
        takes: &'static str,
        /// The shape of the samples.
        input: Vec<usize>,
    },
    /// The part after the colon.
    #[error("`{name}`: {problem}")]
    Widths {
        /// The name that was given.
        name: String,
        /// What is wrong with its widths.
        problem: String,
    },
}

/// The description of a network for samples of this shape and this many classes (or its own defaults).
pub fn describe(name: &str, input: Option<&[usize]>, n_classes: Option<usize>) -> Result<ModelSpec, ZooError> {
    let (plain, given) = name.split_once(':').map_or((name, None), |(plain, widths)| (plain, Some(widths)));
    let entry = ZOO.iter().find(|entry| entry.name == plain).ok_or_else(|| {
        let names: Vec<&str> = ZOO.iter().map(|entry| entry.name).collect();
        let hint = nearest(plain, &names).map_or(String::new(), |near| format!(", did you mean `{near}`?"));
        ZooError::Unknown { name: plain.to_owned(), hint, known: names.join(", ") }
    })?;
    let widths = widths(name, entry, given)?;
    let input = input.unwrap_or(entry.default_input);
    if entry.name == "unet-small" && !matches!(input, [h, w, _] if h.is_multiple_of(4) && w.is_multiple_of(4)) {
        let takes =
            "pictures [height, width, channels] whose height and width are multiples of 4, since it halves them twice,";
        return Err(ZooError::Input { name: name.to_owned(), takes, input: input.to_vec() });
    }
    let order = Order { input, n_classes: n_classes.unwrap_or(entry.default_classes), widths: &widths };
    Ok(ModelSpec { input: input.to_vec(), layers: (entry.layers)(&order) })
}

fn widths(name: &str, entry: &ZooEntry, given: Option<&str>) -> Result<Vec<usize>, ZooError> {
    let Some(given) = given else { return Ok(entry.default_widths.to_vec()) };
    let wrong = |problem: String| ZooError::Widths { name: name.to_owned(), problem };
    if entry.default_widths.is_empty() || entry.name.starts_with("gpt2") {
        return Err(wrong(format!("{} has no widths to set; write it without a colon", entry.name)));
    }
    let is_transformer = entry.default_widths.len() == 3;
    let (separator, example) = if is_transformer { ('x', "gpt:6x384x6") } else { (',', "mlp:512,512") };
    let widths: Vec<usize> = given
        .split(separator)
        .map(|part| part.trim().parse().ok().filter(|&width| width > 0))
        .collect::<Option<_>>()
        .ok_or_else(|| {
            wrong(format!("sizes are whole numbers above 0 with `{separator}` between, as in `{example}`"))
        })?;
    match (entry.name, widths.as_slice()) {
        ("mlp", _) => {}
        ("llama", [_, width, heads, kv_heads]) if width % heads == 0 && heads % kv_heads == 0 => {}
        (_, [_, width, heads]) if is_transformer && width % heads == 0 => {}
        (_, [_]) if !is_transformer => {}
        _ if is_transformer => {
            let problem = format!(
                "{} takes layers, width and heads, as in `gpt:6x384x6`; the width is a multiple of the heads",
                entry.name
            );
            return Err(wrong(problem));
        }
        _ => return Err(wrong(format!("{} takes one width", entry.name))),
    }
    Ok(widths)
}

fn conv(out: usize, kernel: usize, padding: usize) -> LayerSpec {
    LayerSpec::Conv(ConvSpec { out, kernel, stride: 1, padding, bias: true, name: None })
}

fn dense(out: usize) -> LayerSpec {
    LayerSpec::Dense(DenseSpec::new(out))
}

fn max_pool(size: usize) -> LayerSpec {
    LayerSpec::MaxPool(PoolSpec { size, stride: None, padding: 0 })
}

fn digits_cnn(order: &Order<'_>) -> Vec<LayerSpec> {
    use LayerSpec::{Dropout, Flatten, Relu};
    let head = [max_pool(2), Flatten, dense(64), Relu, Dropout(0.25), dense(order.n_classes)];
    [conv(16, 3, 1), Relu, conv(32, 3, 1), Relu].into_iter().chain(head).collect()
}

fn mnist_cnn(order: &Order<'_>) -> Vec<LayerSpec> {
    use LayerSpec::{Dropout, Flatten, Relu};
    let head = [Dropout(0.25), Flatten, dense(128), Relu, Dropout(0.5), dense(order.n_classes)];
    [conv(32, 3, 0), Relu, conv(64, 3, 0), Relu, max_pool(2)].into_iter().chain(head).collect()
}

fn cifar_cnn(order: &Order<'_>) -> Vec<LayerSpec> {
    use LayerSpec::{Dropout, Flatten, Relu};
    let stage = |out| [conv(out, 3, 1), Relu, conv(out, 3, 0), Relu, max_pool(2), Dropout(0.25)];
    let head = [Flatten, dense(512), Relu, Dropout(0.5), dense(order.n_classes)];
    stage(32).into_iter().chain(stage(64)).chain(head).collect()
}

fn mlp(order: &Order<'_>) -> Vec<LayerSpec> {
    let hidden = order.widths.iter().flat_map(|&width| [dense(width), LayerSpec::Relu]);
    std::iter::once(LayerSpec::Flatten).chain(hidden).chain([dense(order.n_classes)]).collect()
}

fn speech_dense(order: &Order<'_>) -> Vec<LayerSpec> {
    mlp(&Order { widths: &[order.widths[0]; 5], ..*order })
}

fn speech_rnn(order: &Order<'_>) -> Vec<LayerSpec> {
    let recurrent = RecurrentSpec { out: order.widths[0], steps: StepsKept::Last, name: None };
    vec![LayerSpec::Recurrent(recurrent), dense(order.n_classes)]
}

/// A convolution without bias and the norm that follows it.
fn conv_norm(out: usize, kernel: usize, stride: usize, names: (&str, &str)) -> [LayerSpec; 2] {
    let padding = kernel / 2;
    let name = Some(names.0.to_owned());
    [
        LayerSpec::Conv(ConvSpec { out, kernel, stride, padding, bias: false, name }),
        LayerSpec::BatchNorm(NormSpec { name: Some(names.1.to_owned()) }),
    ]
}

/// A residual block and the relu after it. The names are those that torchvision's checkpoints use.
fn block(name: String, body: Vec<LayerSpec>, projection: Option<(usize, usize)>) -> [LayerSpec; 2] {
    let projection = projection
        .map(|(out, stride)| conv_norm(out, 1, stride, ("downsample.0", "downsample.1")).to_vec())
        .unwrap_or_default();
    [LayerSpec::Residual(ResidualSpec { body, projection, name: Some(name) }), LayerSpec::Relu]
}

/// Down two levels and up again; what comes down a level is joined, at its own size, to what comes up.
fn unet_small(order: &Order<'_>) -> Vec<LayerSpec> {
    use LayerSpec::{BatchNorm, Concat, Conv, Mark, Relu, TransposedConv};
    let level = |out| {
        let conv = || Conv(ConvSpec { out, kernel: 3, stride: 1, padding: 1, bias: false, name: None });
        let norm = || BatchNorm(NormSpec { name: None });
        [conv(), norm(), Relu, conv(), norm(), Relu]
    };
    let up = |out| TransposedConv(ConvSpec { out, kernel: 2, stride: 2, padding: 0, bias: true, name: None });
    let [full, half, quarter] = [1, 2, 4].map(|times: usize| order.widths[0].saturating_mul(times));
    let mut layers = level(full).to_vec();
    layers.extend([Mark("full".into()), max_pool(2)]);
    layers.extend(level(half));
    layers.extend([Mark("half".into()), max_pool(2)]);
    layers.extend(level(quarter));
    layers.extend([up(half), Concat("half".into())]);
    layers.extend(level(half));
    layers.extend([up(full), Concat("full".into())]);
    layers.extend(level(full));
    layers.push(conv(order.n_classes, 1, 0));
    layers
}

fn resnet_head(n_classes: usize) -> [LayerSpec; 2] {
    [LayerSpec::GlobalPool, LayerSpec::Dense(DenseSpec::new(n_classes).named("fc"))]
}

fn resnet20(order: &Order<'_>) -> Vec<LayerSpec> {
    let mut layers = conv_norm(16, 3, 1, ("conv1", "bn1")).to_vec();
    layers.push(LayerSpec::Relu);
    for (stage, width) in [16, 32, 64].into_iter().enumerate() {
        for index in 0..3 {
            let stride = if stage > 0 && index == 0 { 2 } else { 1 };
            let mut body = conv_norm(width, 3, stride, ("conv1", "bn1")).to_vec();
            body.push(LayerSpec::Relu);
            body.extend(conv_norm(width, 3, 1, ("conv2", "bn2")));
            let projection = (stride == 2).then_some((width, stride));
            layers.extend(block(format!("layer{}.{index}", stage + 1), body, projection));
        }
    }
    layers.extend(resnet_head(order.n_classes));
    layers
}

fn resnet50(order: &Order<'_>) -> Vec<LayerSpec> {
    let mut layers = conv_norm(64, 7, 2, ("conv1", "bn1")).to_vec();
    layers.push(LayerSpec::Relu);
    layers.push(LayerSpec::MaxPool(PoolSpec { size: 3, stride: Some(2), padding: 1 }));
    for (stage, (width, n_blocks)) in [(64, 3), (128, 4), (256, 6), (512, 3)].into_iter().enumerate() {
        for index in 0..n_blocks {
            let stride = if stage > 0 && index == 0 { 2 } else { 1 };
            let mut body = conv_norm(width, 1, 1, ("conv1", "bn1")).to_vec();
            body.push(LayerSpec::Relu);
            body.extend(conv_norm(width, 3, stride, ("conv2", "bn2")));
            body.push(LayerSpec::Relu);
            body.extend(conv_norm(4 * width, 1, 1, ("conv3", "bn3")));
            let projection = (index == 0).then_some((4 * width, stride));
            layers.extend(block(format!("layer{}.{index}", stage + 1), body, projection));
        }
    }
    layers.extend(resnet_head(order.n_classes));
    layers
}

#[cfg(test)]
mod tests {
    use super::{ZOO, describe};
    use crate::model::Network;

    fn n_params(name: &str) -> usize {
        Network::new(&describe(name, None, None).unwrap()).unwrap().n_params()
    }

    #[test]
    fn parameter_counts_are_the_published_ones() {
        assert_eq!(n_params("mnist-cnn"), 1_199_882);
        assert_eq!(n_params("cifar-cnn"), 1_250_858);
        assert_eq!(n_params("resnet20"), 272_474);
        assert_eq!(n_params("resnet50"), 25_557_032);
        assert_eq!(n_params("gpt2"), 124_439_808);
        assert_eq!(n_params("gpt2-medium"), 354_823_168);
        assert_eq!(n_params("gpt2-large"), 774_030_080);
        assert_eq!(n_params("gpt2-xl"), 1_557_611_200);
        assert_eq!(n_params("mlp"), 784 * 512 + 512 + 512 * 512 + 512 + 5130);
    }

    #[test]
    fn the_list_is_sorted_and_whole() {
        assert!(ZOO.is_sorted_by_key(|entry| entry.name));
        for entry in ZOO {
            assert!(n_params(entry.name) > 0, "{}", entry.name);
        }
    }

    #[test]
    fn wrong_names_are_answered_with_the_nearest() {
        let error = describe("mnist-cn", None, None).unwrap_err().to_string();
        assert!(error.contains("did you mean `mnist-cnn`?") && error.contains("resnet50"), "{error}");
        assert!(describe("resnet20:3", None, None).unwrap_err().to_string().contains("no widths"));
        let error = describe("unet-small", Some(&[30, 32, 1]), None).unwrap_err().to_string();
        assert!(error.contains("multiples of 4") && error.contains("[30, 32, 1]"), "{error}");
        assert!(describe("mlp:3,x", None, None).unwrap_err().to_string().contains("whole numbers"));
        assert!(describe("gpt:2x30x4", None, None).unwrap_err().to_string().contains("multiple of the heads"));
        assert!(describe("gpt:2,32,4", None, None).unwrap_err().to_string().contains("whole numbers"));
        assert!(describe("speech-dense:3,3", None, None).unwrap_err().to_string().contains("one width"));
    }
}
