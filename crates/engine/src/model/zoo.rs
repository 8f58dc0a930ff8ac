//! Well-known networks by name.

use super::description::{LayerSpec, ModelSpec};
use super::layer_options::{ConvSpec, DenseSpec, NormSpec, PoolSpec, RecurrentSpec, ResidualSpec, StepsKept};
use crate::nearest::nearest;

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
    /// Widths for names such as `mlp:512,512`; empty when the name takes none.
    pub default_widths: &'static [usize],
    layers: fn(&Order<'_>) -> Vec<LayerSpec>,
}

/// What a network is ordered for.
struct Order<'a> {
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
    let order = Order { n_classes: n_classes.unwrap_or(entry.default_classes), widths: &widths };
    Ok(ModelSpec { input: input.to_vec(), layers: (entry.layers)(&order) })
}

fn widths(name: &str, entry: &ZooEntry, given: Option<&str>) -> Result<Vec<usize>, ZooError> {
    let Some(given) = given else { return Ok(entry.default_widths.to_vec()) };
    let wrong = |problem: String| ZooError::Widths { name: name.to_owned(), problem };
    if entry.default_widths.is_empty() {
        return Err(wrong(format!("{} has no widths to set; write it without a colon", entry.name)));
    }
    let widths: Vec<usize> = given
        .split(',')
        .map(|part| part.trim().parse().ok().filter(|&width| width > 0))
        .collect::<Option<_>>()
        .ok_or_else(|| wrong("widths are whole numbers above 0 with commas between, as in `mlp:512,512`".into()))?;
    if entry.name != "mlp" && widths.len() != 1 {
        return Err(wrong(format!("{} takes one width", entry.name)));
    }
    Ok(widths)
}

fn conv(out: usize, kernel: usize, padding: usize) -> LayerSpec {
    LayerSpec::Conv(ConvSpec { out, kernel, stride: 1, padding, bias: true, name: None })
}

fn dense(out: usize) -> LayerSpec {
    LayerSpec::Dense(DenseSpec { out, bias: true, name: None })
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

fn resnet_head(n_classes: usize) -> [LayerSpec; 2] {
    [LayerSpec::GlobalPool, LayerSpec::Dense(DenseSpec { out: n_classes, bias: true, name: Some("fc".into()) })]
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
        assert!(describe("mlp:3,x", None, None).unwrap_err().to_string().contains("whole numbers"));
        assert!(describe("speech-dense:3,3", None, None).unwrap_err().to_string().contains("one width"));
    }
}
