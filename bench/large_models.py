"""Two models of the sizes people train on GPUs: ResNet-50 and a GPT with 124 million parameters."""

import torch
from torch import nn
from torch.nn import functional


class Bottleneck(nn.Module):
    def __init__(self, n_in, width, stride):
        super().__init__()
        n_out = 4 * width
        self.body = nn.Sequential(
            nn.Conv2d(n_in, width, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(inplace=True),
            nn.Conv2d(width, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(inplace=True),
            nn.Conv2d(width, n_out, 1, bias=False), nn.BatchNorm2d(n_out),
        )
        changes = stride != 1 or n_in != n_out
        shortcut = [nn.Conv2d(n_in, n_out, 1, stride, bias=False), nn.BatchNorm2d(n_out)]
        self.shortcut = nn.Sequential(*shortcut) if changes else nn.Identity()

    def forward(self, x):
        return functional.relu(self.body(x) + self.shortcut(x), inplace=True)


def resnet50(n_classes=1000):
    layers = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)]
    n_in = 64
    for width, n_blocks, stride in [(64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)]:
        for k in range(n_blocks):
            layers.append(Bottleneck(n_in, width, stride if k == 0 else 1))
            n_in = 4 * width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(n_in, n_classes))


class Block(nn.Module):
    def __init__(self, width, n_heads):
        super().__init__()
        self.n_heads = n_heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(approximate="tanh"), nn.Linear(4 * width, width))

    def forward(self, x):
        n, length, width = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(n, length, 3, self.n_heads, -1).permute(2, 0, 3, 1, 4)
        attended = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).reshape(n, length, width))
        return x + self.mlp(self.norm2(x))


class Gpt(nn.Module):
    """GPT-2's smallest size, with its 124,439,808 parameters. It gives the loss of predicting each next token."""

    def __init__(self, n_tokens=50257, length=1024, n_layers=12, width=768, n_heads=12):
        super().__init__()
        self.token, self.position = nn.Embedding(n_tokens, width), nn.Embedding(length, width)
        self.blocks = nn.Sequential(*(Block(width, n_heads) for _ in range(n_layers)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, n_tokens, bias=False)
        self.head.weight = self.token.weight
        nn.init.normal_(self.token.weight, std=0.02)

    def forward(self, tokens):
        x = self.token(tokens) + self.position.weight[: tokens.shape[1]]
        logits = self.head(self.norm(self.blocks(x)))
        return functional.cross_entropy(logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())


def n_params(model):
    return sum(p.numel() for p in model.parameters())


if __name__ == "__main__":
    assert n_params(resnet50()) == 25_557_032, n_params(resnet50())
    assert n_params(Gpt()) == 124_439_808, n_params(Gpt())
