"""Compares GPT-2's gradients and logits with those of Hugging Face's implementation, on random weights in the published layout.

    python bench/gpt2_parity.py target/release/nettorrent                      # 124 million parameters
    python bench/gpt2_parity.py target/release/nettorrent --model gpt2-medium

`nettorrent train` takes one step of plain gradient descent without dropout from weights that `transformers` wrote, so that the change of the
weights is the gradient; `nettorrent predict` then tells the logits of the next token after a text, with the weights after that step. Needs
torch, transformers and safetensors. Differences are relative to the largest value of a tensor.
"""

import argparse
import json
import random
import subprocess
import tempfile
from pathlib import Path

import torch
from gpt2_swarm import write_tokenizer
from safetensors.torch import load_file
from transformers import GPT2Config, GPT2LMHeadModel

SIZES = {"gpt2": (12, 768, 12), "gpt2-medium": (24, 1024, 16), "gpt2-large": (36, 1280, 20)}
# Four windows to train on, and what is held back.
LENGTH, BATCH, N_TOKENS = 64, 4, 320
# Steps so long that the weights' rounding does not matter.
LR = 1.0


def call(*command):
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(map(str, command))}\n{done.stderr}")
    return done.stdout


def write_text(folder, n_words):
    """A tokenizer of as many words as GPT-2 has tokens, a text of them, and its tokens."""
    write_tokenizer(folder / "tokenizer.json")
    tokens = random.Random(1).choices(range(n_words), k=N_TOKENS)
    (folder / "text.txt").write_text(" ".join(f"w{token}" for token in tokens))
    return tokens


def without_dropout(binary, model, n_words):
    told = call(binary, "model", "describe", model, "--input", LENGTH, "--classes", n_words, "--toml")
    return told.replace("dropout = 0.10000000149011612", "dropout = 0.0")


def worst(ours, theirs):
    """The largest difference of two tensors, by the largest value."""
    return ((ours - theirs).abs().max() / theirs.abs().max().clamp(min=1e-12)).item()


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("nettorrent")
    p.add_argument("--model", choices=SIZES, default="gpt2")
    a = p.parse_args()
    n_layers, width, n_heads = SIZES[a.model]
    config = GPT2Config(n_layer=n_layers, n_embd=width, n_head=n_heads, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0)
    torch.manual_seed(1)
    net = GPT2LMHeadModel(config)
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        tokens = write_text(folder, config.vocab_size)
        net.save_pretrained(folder)
        (folder / "model.toml").write_text(without_dropout(a.nettorrent, a.model, config.vocab_size))
        settings = [f"data.tokens={folder}/tokenizer.json", f"data.length={LENGTH}", f"batch={BATCH}", "optimizer.kind=sgd",
                    f"optimizer.lr={LR}", "optimizer.momentum=0.0"]
        call(a.nettorrent, "train", "--model", folder / "model.toml", "--weights", folder / "model.safetensors", "--data",
             folder / "text.txt", "--epochs", 1, "--run", folder / "run", *(word for setting in settings for word in ("--set", setting)))
        stepped = load_file(next((folder / "run").rglob("model.safetensors")))
        windows = torch.tensor([tokens[k * LENGTH : (k + 1) * LENGTH + 1] for k in range(BATCH)])
        logits = net(windows[:, :-1]).logits
        torch.nn.functional.cross_entropy(logits.flatten(0, 1), windows[:, 1:].flatten()).backward()
        before = {name.removeprefix("transformer."): tensor for name, tensor in net.named_parameters()}
        gradients = {name: worst((before[name].detach() - tensor) / LR, before[name].grad) for name, tensor in stepped.items() if name in before}
        assert len(gradients) == len(before), f"{len(before) - len(gradients)} parameters have no counterpart"
        told = json.loads(call(a.nettorrent, "predict", folder / "run", folder / "text.txt", "--json"))
        with torch.no_grad():
            for name, parameter in before.items():
                parameter.copy_(stepped[name])
            theirs = net.eval()(torch.tensor([tokens[-LENGTH:]])).logits[0, -1]
        ours = torch.tensor(told["logits"])
        name = max(gradients, key=gradients.get)
        result = {"model": a.model, "parameters": sum(tensor.numel() for tensor in before.values()), "logits": worst(ours, theirs),
                  "gradients": gradients[name], "worst_gradient": name, "torch": torch.__version__}
        print(json.dumps(result))


if __name__ == "__main__":
    main()
