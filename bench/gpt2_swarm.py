"""Trains GPT-2 with four processes over sockets, and tells each one's peak memory.

    python bench/gpt2_swarm.py target/release/nettorrent --threads 4

With `diloco` in 8 and in 4 bits, and in a pipeline of four stages, for a few steps of random tokens in random text. A pipeline cannot be cut
between an embedding and a head that is the same matrix, so there the head is a matrix of its own, with 38.6 million parameters more.
"""

import argparse
import json
import random
import subprocess
import sys
import tempfile
from pathlib import Path

N_PEERS, LENGTH, N_WORDS = 4, 64, 50257
# Embedding and positions first; then two layers of the description for each block, and the norm and the head.
STAGES = "[{layers=9},{layers=8},{layers=8},{layers=4}]"
SETTINGS = {
    "diloco, 8 bits": ("gpt2.toml", ["swarm.strategy=diloco", "swarm.options.bits=8", "swarm.options.local_steps=2"]),
    "diloco, 4 bits": ("gpt2.toml", ["swarm.strategy=diloco", "swarm.options.bits=4", "swarm.options.local_steps=2"]),
    "pipeline of 4 stages": ("untied.toml", [f"pipeline.stages={STAGES}"]),
}


def write_tokenizer(file):
    """As many words as GPT-2 has tokens: w0, w1 and so on."""
    words = {f"w{k}": k for k in range(N_WORDS)}
    tokenizer = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "normalizer": None, "post_processor": None,
                 "decoder": None, "pre_tokenizer": {"type": "WhitespaceSplit"},
                 "model": {"type": "WordLevel", "vocab": words, "unk_token": "w0"}}
    file.write_text(json.dumps(tokenizer))


def write_files(binary, model, folder):
    write_tokenizer(folder / "tokenizer.json")
    # Sixteen samples to train on, and what is held back.
    text = random.Random(1).choices(range(2000), k=LENGTH * 18 + 1)
    (folder / "text.txt").write_text(" ".join(f"w{word}" for word in text))
    describe = [str(binary), "model", "describe", model, "--input", str(LENGTH), "--classes", str(N_WORDS), "--toml"]
    described = subprocess.run(describe, capture_output=True, text=True, check=True).stdout
    (folder / "gpt2.toml").write_text(described)
    head = '{ dense = { out = %d, bias = false, name = "lm_head" } }' % N_WORDS
    (folder / "untied.toml").write_text(described.replace('{ tied-dense = { to = "wte" } }', head))


def train(a, name, folder):
    model, settings = SETTINGS[name]
    settings = [*settings, "data.tokens=tokenizer.json", f"data.length={LENGTH}", "batch=8", "optimizer.kind=adamw", "optimizer.momentum=0", "optimizer.lr=1e-4"]
    common = ["--data", "text.txt", "--threads", a.threads, "--listen", "127.0.0.1:0", "--json"]
    place = Path(tempfile.mkdtemp(dir=folder))
    for file in ("tokenizer.json", "text.txt", "gpt2.toml", "untied.toml"):
        (place / file).symlink_to(folder / file)
    words = ["start", "--wait-for", N_PEERS, "--model", model, "--epochs", a.epochs, "--run", "run-0", *common]
    words += [word for setting in settings for word in ("--set", setting)]
    peers = [subprocess.Popen([a.nettorrent, *map(str, words)], cwd=place, stdout=subprocess.PIPE, text=True)]
    losses, n_params = [], None
    for event in map(json.loads, peers[0].stdout):
        if event["event"] == "ticket":
            for peer in range(1, N_PEERS):
                words = ["join", event["ticket"], "--run", f"run-{peer}", *common]
                peers.append(subprocess.Popen([a.nettorrent, *map(str, words)], cwd=place, stdout=subprocess.DEVNULL))
        elif event["event"] == "start":
            n_params = event["n_params"]
        elif event["event"] == "epoch":
            losses.append({"epoch": event["epoch"], "step": event["step"], "train_loss": event["train_loss"], "seconds": event["seconds"]})
    if any(peer.wait() != 0 for peer in peers):
        sys.exit(f"{name}: a peer failed")
    stops = [[json.loads(line) for line in (place / f"run-{peer}" / "events.jsonl").open()][-1] for peer in range(N_PEERS)]
    return {"setting": name, "n_params": n_params, "epochs": losses, "peak_mib": [round(stop["peak_rss_bytes"] / 2**20) for stop in stops]}


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("nettorrent")
    p.add_argument("--model", default="gpt2")
    p.add_argument("--threads", type=int, default=1, help="of each peer (default: %(default)s)")
    p.add_argument("--epochs", type=int, default=2, help="of two steps each (default: %(default)s)")
    a = p.parse_args()
    a.nettorrent = str(Path(a.nettorrent).resolve())
    with tempfile.TemporaryDirectory() as place:
        write_files(a.nettorrent, a.model, Path(place))
        for name in SETTINGS:
            print(json.dumps(train(a, name, Path(place))), flush=True)


if __name__ == "__main__":
    main()
