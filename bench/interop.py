"""Checks that checkpoints cross between the engine and PyTorch, both ways.

    python bench/interop.py --engine target/release/nettorrent --models mnist-cnn,resnet20
    python bench/interop.py --predict "predict {model} --weights {weights} --input {input} --json"

From the engine: `nettorrent model init MODEL -o FILE` must load into the PyTorch module, strictly.
To the engine: PyTorch saves its weights, and an `input` tensor in NHWC, as two safetensors files; the command given by
`--predict` must print JSON with `logits` (a list for each sample) or `predictions` (a class for each) that agree with
PyTorch's in eval mode. Without `--predict` that way is not checked, and we say so.
"""

import argparse
import json
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch_models import ZOO

TOLERANCE = 1e-4


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


def to_engine(engine, template, model, batch, folder):
    make, shape, _ = ZOO[model]
    torch.manual_seed(0)
    net = make().eval()
    x = torch.rand(batch, *shape)
    with torch.no_grad():
        expected = net(x)
    files = {"weights": folder / f"{model}-torch.safetensors", "input": folder / f"{model}-input.safetensors"}
    # Tensors are contiguous copies: safetensors refuses views. Counters of batches are PyTorch's own affair.
    state = {k: v.contiguous().clone() for k, v in net.state_dict().items() if not k.endswith("num_batches_tracked")}
    save_file(state, files["weights"])
    save_file({"input": (x.permute(0, 2, 3, 1) if x.dim() == 4 else x).contiguous()}, files["input"])
    answer = json.loads(run([engine, *(part.format(model=model, **files) for part in shlex.split(template))]))
    if "logits" in answer:
        error = float((torch.tensor(answer["logits"]) - expected).abs().max())
        if not error <= TOLERANCE * max(1.0, float(expected.abs().max())):
            raise RuntimeError(f"logits differ by {error:.2e}")
        return f"PyTorch's weights predict alike in the engine (logits differ by {error:.1e})"
    if answer["predictions"] != expected.argmax(1).tolist():
        raise RuntimeError(f"predictions differ: {answer['predictions']}, not {expected.argmax(1).tolist()}")
    return f"PyTorch's weights predict alike in the engine ({batch} predictions)"


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--engine", default="target/release/nettorrent")
    p.add_argument("--models", default="mnist-cnn", help="comma-separated, of " + ", ".join(ZOO))
    p.add_argument("--batch", type=int, default=8)
    p.add_argument("--predict", metavar="TEMPLATE", help="arguments with {model}, {weights} and {input}")
    a = p.parse_args()
    failed = False
    with tempfile.TemporaryDirectory() as folder:
        for model in a.models.split(","):
            checks = [lambda: from_engine(a.engine, model, Path(folder))]
            if a.predict:
                checks.append(lambda: to_engine(a.engine, a.predict, model, a.batch, Path(folder)))
            for check in checks:
                try:
                    print(f"{model}: {check()}")
                except (RuntimeError, OSError, KeyError, ValueError) as e:
                    failed = True
                    print(f"{model}: FAILED: {e}")
    if not a.predict:
        print("PyTorch to engine: not checked, no --predict given")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
