"""Checks that checkpoints cross between the engine and PyTorch, both ways.

    python bench/interop.py
    python bench/interop.py --engine target/release/nettorrent --models mnist-cnn,resnet20

From the engine: `nettorrent model init MODEL -o FILE` must load into the PyTorch module, strictly.
To the engine: PyTorch saves its weights; `nettorrent predict --weights FILE` must say of random pictures what PyTorch says
in eval mode. The pictures are PNG files, and a tiny data set in their format tells the engine how to normalise them.
"""

import argparse
import json
import struct
import subprocess
import sys
import tempfile
import zlib
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch_models import ZOO

TOLERANCE = 1e-4
# What the engine does to CIFAR-10's pixels.
CIFAR_MEAN, CIFAR_DEVIATION = [0.4914, 0.4822, 0.4465], [0.2470, 0.2435, 0.2616]


def run(command):
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(map(str, command))}\n{(done.stderr or done.stdout).strip()}")
    return done.stdout


def from_engine(engine, model, folder):
    weights = folder / f"{model}-engine.safetensors"
    run([engine, "model", "init", model, "-o", weights])
    tensors = load_file(weights)
    ZOO[model][0]().load_state_dict(tensors, strict=True)
    return f"{len(tensors)} tensors of the engine load in PyTorch"


def write_png(path, pixels):
    """Pixels as bytes [height, width, channels], grey or colour."""
    height, width, channels = pixels.shape
    lines = b"".join(b"\0" + bytes(row.flatten().tolist()) for row in pixels)
    head = struct.pack(">IIBBBBB", width, height, 8, 2 if channels == 3 else 0, 0, 0, 0)
    parts = [(b"IHDR", head), (b"IDAT", zlib.compress(lines)), (b"IEND", b"")]
    body = b"".join(struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
                    for kind, data in parts)
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + body)


def write_set(folder, shape):
    """A data set of ten black pictures: IDX for grey ones, CIFAR-10's format for colour."""
    channels, height, width = shape
    folder.mkdir()
    if channels == 1:
        for part in ["train", "t10k"]:
            pixels = bytes(10 * height * width)
            (folder / f"{part}-images-idx3-ubyte").write_bytes(struct.pack(">IIII", 2051, 10, height, width) + pixels)
            (folder / f"{part}-labels-idx1-ubyte").write_bytes(struct.pack(">II", 2049, 10) + bytes(range(10)))
    else:
        records = b"".join(bytes([label]) + bytes(3 * height * width) for label in range(10))
        for name in [f"data_batch_{i}" for i in range(1, 6)] + ["test_batch"]:
            (folder / f"{name}.bin").write_bytes(records)


def to_engine(engine, model, folder):
    make, shape, _ = ZOO[model]
    if shape not in [(1, 8, 8), (1, 28, 28), (3, 32, 32)]:
        return f"pictures of {shape} are not checked this way; the fixtures cover them"
    torch.manual_seed(0)
    net = make().eval()
    pixels = torch.randint(0, 256, (4, *shape))
    x = pixels / 255
    if shape[0] == 3:
        x = (x - torch.tensor(CIFAR_MEAN).view(3, 1, 1)) / torch.tensor(CIFAR_DEVIATION).view(3, 1, 1)
    with torch.no_grad():
        expected = net(x)
    weights, data = folder / f"{model}-torch.safetensors", folder / f"{model}-data"
    # Contiguous copies: safetensors refuses views.
    save_file({name: tensor.contiguous().clone() for name, tensor in net.state_dict().items()}, weights)
    write_set(data, shape)
    pictures = [folder / f"{model}-{i}.png" for i in range(len(pixels))]
    for path, picture in zip(pictures, pixels):
        write_png(path, picture.permute(1, 2, 0))
    command = [engine, "predict", "--weights", weights, "--model", model, "--data", data, "--json", *pictures]
    answers = [json.loads(line) for line in run(command).splitlines()]
    error = float((torch.tensor([answer["logits"] for answer in answers]) - expected).abs().max())
    if not error <= TOLERANCE * max(1.0, float(expected.abs().max())):
        raise RuntimeError(f"logits differ by {error:.2e}")
    return f"PyTorch's weights predict alike in the engine (logits differ by {error:.1e})"


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--engine", default="target/release/nettorrent")
    p.add_argument("--models", default=",".join(ZOO), help="comma-separated, of " + ", ".join(ZOO))
    a = p.parse_args()
    failed = False
    with tempfile.TemporaryDirectory() as folder:
        for model in a.models.split(","):
            for check in [from_engine, to_engine]:
                try:
                    print(f"{model}: {check(a.engine, model, Path(folder))}", flush=True)
                except (RuntimeError, OSError, KeyError, ValueError) as e:
                    failed = True
                    print(f"{model}: FAILED: {e}", flush=True)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
