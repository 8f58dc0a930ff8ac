"""Trains one GPT on one text with NetTorrent and with PyTorch and compares the loss on the text's last tenth.

    python bench/shakespeare.py target/release/nettorrent input.txt --seeds 3

Both have the settings of jobs/shakespeare.toml: the same windows of characters, batch, AdamW, warm-up and cosine, initial deviations and
dropout. What differs is the random numbers, so the losses of several seeds are compared, not one.
"""

import argparse
import json
import math
import pathlib
import random
import statistics
import subprocess
import tempfile
from concurrent.futures import ThreadPoolExecutor

import torch
from torch_models import language_model

JOB = pathlib.Path(__file__).parent.parent / "jobs" / "shakespeare.toml"
LR, FLOOR, WARM_UP, DECAY, BETAS = 1e-3, 0.1, 0.2, 0.1, (0.9, 0.99)


def arguments():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("nettorrent")
    p.add_argument("text")
    p.add_argument("--model", default="gpt:6x384x6")
    p.add_argument("--length", type=int, default=64)
    p.add_argument("--batch", type=int, default=32)
    p.add_argument("--epochs", type=int, default=1)
    p.add_argument("--seeds", type=int, default=3)
    p.add_argument("--threads", type=int, default=0, help="NetTorrent's; 0 for all cores")
    p.add_argument("--jobs", type=int, default=1, help="so many seeds at a time with NetTorrent (default: %(default)s)")
    p.add_argument("--keep", metavar="FOLDER", help="keep NetTorrent's runs there")
    p.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu", help="PyTorch's")
    p.add_argument("--side", choices=["both", "nettorrent", "pytorch"], default="both")
    return p.parse_args()


def windows(tokens, length):
    """All windows that lie one after the other, each with the token behind it."""
    n = (len(tokens) - 1) // length
    return torch.stack([tokens[k * length : (k + 1) * length + 1] for k in range(n)])


def start(net):
    """GPT-2's initial values: deviations of 0.02, smaller for what is added to the sum of all layers."""
    n_layers = len(net.h)
    for name, tensor in net.named_parameters():
        if name.endswith("bias"):
            torch.nn.init.zeros_(tensor)
        elif tensor.dim() > 1:
            is_added = name.endswith("attn.c_proj.weight") or name.endswith("mlp.2.weight")
            torch.nn.init.normal_(tensor, std=0.02 / math.sqrt(2 * n_layers) if is_added else 0.02)
    return net


def with_pytorch(a, seed):
    torch.manual_seed(seed)
    text = pathlib.Path(a.text).read_text()
    vocabulary = {c: k for k, c in enumerate(sorted(set(text)))}
    tokens = torch.tensor([vocabulary[c] for c in text])
    n_train = len(tokens) - round(len(tokens) / 10)
    train, test = (windows(part, a.length).to(a.device) for part in (tokens[:n_train], tokens[n_train:]))
    net = start(language_model(a.model, a.length, len(vocabulary))).to(a.device).train()
    optimizer = torch.optim.AdamW(net.parameters(), lr=LR, betas=BETAS, weight_decay=DECAY)
    per_epoch = math.ceil(len(train) / a.batch)

    def loss_of(batch):
        return torch.nn.functional.cross_entropy(net(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten())

    order = list(range(len(train)))
    for step in range(a.epochs * per_epoch):
        if step % per_epoch == 0:
            random.Random(seed * 1000 + step).shuffle(order)
        done = step / per_epoch
        if done < WARM_UP:
            lr = LR * min((done + 1 / per_epoch) / WARM_UP, 1)
        else:
            progress = (done - WARM_UP) / (a.epochs - WARM_UP)
            lr = LR * (FLOOR + (1 - FLOOR) * 0.5 * (1 + math.cos(math.pi * progress)))
        for group in optimizer.param_groups:
            group["lr"] = lr
        at = step % per_epoch * a.batch
        optimizer.zero_grad()
        loss_of(train[order[at : at + a.batch]]).backward()
        optimizer.step()
    net.eval()
    with torch.no_grad():
        losses = [(loss_of(batch).item(), len(batch)) for batch in test.split(256)]
    return sum(loss * n for loss, n in losses) / len(test)


def with_nettorrent(a, seed):
    with tempfile.TemporaryDirectory() as folder:
        run = f"{a.keep or folder}/seed-{seed}"
        settings = [f"data.length={a.length}", f"batch={a.batch}", f"seed={seed}", f"threads={a.threads}"]
        options = [option for setting in settings for option in ("--set", setting)]
        command = [a.nettorrent, "train", str(JOB), "--data", a.text, "--model", a.model, "--epochs", str(a.epochs)]
        subprocess.run([*command, "--run", run, *options], check=True, capture_output=True)
        told = subprocess.run([a.nettorrent, "eval", run, "--json"], check=True, capture_output=True, text=True)
        return json.loads(told.stdout)["loss"]


def main():
    a = arguments()
    sides = {"nettorrent": with_nettorrent, "pytorch": with_pytorch}
    for name, train in sides.items():
        if a.side in ("both", name):
            with ThreadPoolExecutor(a.jobs if name == "nettorrent" else 1) as pool:
                losses = list(pool.map(lambda seed: train(a, seed), range(1, a.seeds + 1)))
            spread = statistics.stdev(losses) if len(losses) > 1 else 0.0
            print(json.dumps({"side": name, "losses": losses, "mean": statistics.mean(losses), "deviation": spread}), flush=True)


if __name__ == "__main__":
    main()
