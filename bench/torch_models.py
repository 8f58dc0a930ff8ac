"""The model zoo as PyTorch modules, with the state-dict names and layouts our checkpoints use.

Run alone, it prints each model's parameter count and checks the ones that are written down:

    python bench/torch_models.py

Input shapes are given as PyTorch wants them: channels, height, width; or frames, coefficients.
"""

import math

import torch
from torch import nn


def mnist_cnn():
    return nn.Sequential(
        nn.Conv2d(1, 32, 3), nn.ReLU(),
        nn.Conv2d(32, 64, 3), nn.ReLU(),
        nn.MaxPool2d(2), nn.Dropout(0.25), nn.Flatten(),
        nn.Linear(9216, 128), nn.ReLU(), nn.Dropout(0.5),
        nn.Linear(128, 10),
    )


def cifar_cnn():
    return nn.Sequential(
        nn.Conv2d(3, 32, 3, padding=1), nn.ReLU(),
        nn.Conv2d(32, 32, 3), nn.ReLU(),
        nn.MaxPool2d(2), nn.Dropout(0.25),
        nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(),
        nn.Conv2d(64, 64, 3), nn.ReLU(),
        nn.MaxPool2d(2), nn.Dropout(0.25), nn.Flatten(),
        nn.Linear(2304, 512), nn.ReLU(), nn.Dropout(0.5),
        nn.Linear(512, 10),
    )


def digits_cnn():
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(),
        nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(),
        nn.MaxPool2d(2), nn.Flatten(),
        nn.Linear(512, 64), nn.ReLU(), nn.Dropout(0.25),
        nn.Linear(64, 10),
    )


def mlp(widths=(784, 512, 512, 10)):
    """Dense layers of the given widths, a ReLU after each but the last."""
    layers = [nn.Flatten()]
    for n_in, n_out in zip(widths, widths[1:]):
        layers += [nn.Linear(n_in, n_out), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def speech_dense(n_features=64 * 13, width=256, n_hidden=5, n_classes=10):
    return mlp([n_features] + [width] * n_hidden + [n_classes])


class LastStepRnn(nn.RNN):
    """An RNN that answers with its last step only, so that a Sequential can hold it under the name `0`."""

    def forward(self, x):
        return super().forward(x)[0][:, -1]


def speech_rnn(n_coefficients=13, width=128, n_classes=10):
    return nn.Sequential(LastStepRnn(n_coefficients, width, batch_first=True), nn.Linear(width, n_classes))


def conv(n_in, n_out, size, stride=1):
    return nn.Conv2d(n_in, n_out, size, stride, padding=size // 2, bias=False)


class ResidualBlock(nn.Module):
    """`relu(bn(conv(...)) + shortcut)` over a list of (width, kernel size, stride).

    The shortcut is a 1x1 convolution with batch norm wherever the shape changes. Convolutions are named
    conv1, bn1, conv2, ... as the ResNets that ship with PyTorch name them, so checkpoints are exchanged.
    """

    def __init__(self, n_in, convs):
        super().__init__()
        width, stride = n_in, 1
        for i, (n_out, size, step) in enumerate(convs, 1):
            setattr(self, f"conv{i}", conv(width, n_out, size, step))
            setattr(self, f"bn{i}", nn.BatchNorm2d(n_out))
            width, stride = n_out, stride * step
        self.n_convs = len(convs)
        self.downsample = None
        if width != n_in or stride != 1:
            self.downsample = nn.Sequential(conv(n_in, width, 1, stride), nn.BatchNorm2d(width))
        # In place, as in the published models: it is what a PyTorch user would run.
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x):
        shortcut = x if self.downsample is None else self.downsample(x)
        for i in range(1, self.n_convs + 1):
            x = getattr(self, f"bn{i}")(getattr(self, f"conv{i}")(x))
            if i < self.n_convs:
                x = self.relu(x)
        x += shortcut
        return self.relu(x)


class ResNet(nn.Module):
    """A stem, stages of residual blocks (each stage after the first halves the image), pooling, a classifier.

    `block(width, stride)` lists the convolutions of one block, as `ResidualBlock` takes them.
    """

    def __init__(self, stem_width, stem_size, stem_pool, block, stages, n_classes):
        super().__init__()
        self.conv1 = conv(3, stem_width, stem_size, 2 if stem_pool else 1)
        self.bn1 = nn.BatchNorm2d(stem_width)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(3, 2, padding=1) if stem_pool else nn.Identity()
        n_in = stem_width
        self.stage_names = []
        for s, (width, n_blocks) in enumerate(stages, 1):
            blocks = []
            for b in range(n_blocks):
                convs = block(width, 2 if s > 1 and b == 0 else 1)
                blocks.append(ResidualBlock(n_in, convs))
                n_in = convs[-1][0]
            self.stage_names.append(f"layer{s}")
            setattr(self, f"layer{s}", nn.Sequential(*blocks))
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(n_in, n_classes)

    def forward(self, x):
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        for name in self.stage_names:
            x = getattr(self, name)(x)
        return self.fc(self.avgpool(x).flatten(1))


def resnet20(n_classes=10):
    """He et al. (2015), for 32x32 images, with convolutions as shortcuts ("option B")."""
    def basic(width, stride):
        return [(width, 3, stride), (width, 3, 1)]
    return ResNet(16, 3, False, basic, [(16, 3), (32, 3), (64, 3)], n_classes)


def resnet50(n_classes=1000):
    """He et al. (2015) with the stride in the 3x3 convolution, as is usual since."""
    def bottleneck(width, stride):
        return [(width, 1, 1), (width, 3, stride), (4 * width, 1, 1)]
    return ResNet(64, 7, True, bottleneck, [(64, 3), (128, 4), (256, 6), (512, 3)], n_classes)


class Attention(nn.Module):
    """Multi-head attention in PyTorch's fused form; projections are made and stored as GPT-2 or as plain layers."""

    def __init__(self, width, n_heads, causal, dropout=0.0):
        super().__init__()
        self.n_heads, self.causal, self.dropout = n_heads, causal, dropout
        self.c_attn, self.c_proj = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x):
        n, steps, width = x.shape
        q, k, v = (part.view(n, steps, self.n_heads, -1).transpose(1, 2) for part in self.c_attn(x).split(width, dim=2))
        dropout = self.dropout if self.training else 0.0
        y = nn.functional.scaled_dot_product_attention(q, k, v, dropout_p=dropout, is_causal=self.causal)
        return self.c_proj(y.transpose(1, 2).reshape(n, steps, width))


class Block(nn.Module):
    """Attention and two dense layers, each added to its input, with layer norm before."""

    def __init__(self, width, n_heads, causal, dropout=0.0, approximate="none"):
        super().__init__()
        self.ln_1, self.attn = nn.LayerNorm(width), Attention(width, n_heads, causal, dropout)
        self.ln_2 = nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(approximate), nn.Linear(4 * width, width))
        self.drop = nn.Dropout(dropout)

    def forward(self, x):
        x = x + self.drop(self.attn(self.ln_1(x)))
        return x + self.drop(self.mlp(self.ln_2(x)))


class Gpt(nn.Module):
    """GPT-2 with the embedding as its head."""

    def __init__(self, n_layers, width, n_heads, length=256, n_tokens=256, dropout=0.1):
        super().__init__()
        self.wte, self.wpe, self.drop = nn.Embedding(n_tokens, width), nn.Embedding(length, width), nn.Dropout(dropout)
        self.h = nn.ModuleList(Block(width, n_heads, True, dropout, "tanh") for _ in range(n_layers))
        self.ln_f = nn.LayerNorm(width)

    def forward(self, tokens):
        x = self.drop(self.wte(tokens) + self.wpe.weight[: tokens.shape[1]])
        for block in self.h:
            x = block(x)
        return nn.functional.linear(self.ln_f(x), self.wte.weight)


class LstmLm(nn.Module):
    """An embedding, an LSTM and a dense layer over every position."""

    def __init__(self, width=512, n_tokens=256):
        super().__init__()
        self.embedding, self.lstm = nn.Embedding(n_tokens, width), nn.LSTM(width, width, batch_first=True)
        self.head = nn.Linear(width, n_tokens)

    def forward(self, tokens):
        return self.head(self.lstm(self.embedding(tokens))[0])


class VitTiny(nn.Module):
    """12 layers of width 192 with 3 heads over 14 by 14 patches, of which the mean decides."""

    def __init__(self, n_classes=1000, side=224):
        super().__init__()
        patch = side // 14 if side >= 112 else max(side // 8, 1)
        self.patches = nn.Conv2d(3, 192, patch, patch)
        self.positions = nn.Parameter(0.02 * torch.randn((side // patch) ** 2, 192))
        self.blocks = nn.Sequential(*(Block(192, 3, False) for _ in range(12)))
        self.norm, self.head = nn.LayerNorm(192), nn.Linear(192, n_classes)

    def forward(self, x):
        x = self.patches(x).flatten(2).transpose(1, 2) + self.positions
        return self.head(self.norm(self.blocks(x)).mean(1))


def language_model(name, length, n_tokens):
    """`gpt:LAYERSxWIDTHxHEADS` or `lstm-lm:WIDTH`, for texts of so many tokens."""
    kind, _, sizes = name.partition(":")
    if kind == "gpt":
        return Gpt(*map(int, (sizes or "6x384x6").split("x")), length=length, n_tokens=n_tokens)
    return LstmLm(int(sizes or 512), n_tokens)


def is_language_model(name):
    return name.partition(":")[0] in ("gpt", "lstm-lm")


# name: (constructor, input shape without the batch, number of classes)
ZOO = {
    "cifar-cnn": (cifar_cnn, (3, 32, 32), 10),
    "digits-cnn": (digits_cnn, (1, 8, 8), 10),
    "mlp": (mlp, (1, 28, 28), 10),
    "mnist-cnn": (mnist_cnn, (1, 28, 28), 10),
    "resnet20": (resnet20, (3, 32, 32), 10),
    "resnet50": (resnet50, (3, 224, 224), 1000),
    "speech-dense": (speech_dense, (64, 13), 10),
    "speech-rnn": (speech_rnn, (64, 13), 10),
    "vit-tiny": (VitTiny, (3, 224, 224), 1000),
}

N_PARAMS = {"cifar-cnn": 1_250_858, "mnist-cnn": 1_199_882, "resnet20": 272_474, "resnet50": 25_557_032}


def n_params(net):
    return sum(math.prod(p.shape) for p in net.parameters())


if __name__ == "__main__":
    for name, (make, shape, _) in ZOO.items():
        n = n_params(make())
        assert n == N_PARAMS.get(name, n), f"{name} has {n} parameters, not {N_PARAMS[name]}"
        print(f"{name:13} {n:>12,} parameters, input {'x'.join(map(str, shape))}")
