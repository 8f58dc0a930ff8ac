"""The program's language models against Hugging Face's: the same weights give the same loss."""

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

transformers = pytest.importorskip("transformers")
safetensors_torch = pytest.importorskip("safetensors.torch")

PROGRAM = os.environ.get("NETTORRENT") or shutil.which("nettorrent")
pytestmark = pytest.mark.skipif(PROGRAM is None, reason="the program is not there: set NETTORRENT to its path")

LENGTH, N_BYTES = 16, 256


def gpt2() -> tuple[str, Any]:
    config = transformers.GPT2Config(
        n_layer=2, n_embd=32, n_head=4, n_positions=LENGTH, vocab_size=N_BYTES, attn_pdrop=0, embd_pdrop=0, resid_pdrop=0
    )
    return "gpt:2x32x4", transformers.GPT2LMHeadModel(config)


def llama() -> tuple[str, Any]:
    config = transformers.LlamaConfig(
        num_hidden_layers=2, hidden_size=32, num_attention_heads=4, num_key_value_heads=2, intermediate_size=128,
        vocab_size=N_BYTES, max_position_embeddings=LENGTH, rms_norm_eps=1e-5, rope_theta=10000.0, tie_word_embeddings=False,
    )
    return "llama:2x32x4x2", transformers.LlamaForCausalLM(config)


@pytest.mark.parametrize("make", [gpt2, llama])
def test_losses_are_those_of_hugging_face(make: Callable[[], tuple[str, Any]], tmp_path: Path) -> None:
    torch.manual_seed(1)
    name, model = make()
    with torch.no_grad():
        # Larger than usual, so that every layer matters.
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    weights = {key: value.contiguous() for key, value in model.state_dict().items() if name[0] == "l" or "lm_head" not in key}
    safetensors_torch.save_file(weights, tmp_path / "model.safetensors")
    text = bytes(torch.randint(32, 127, (20 * LENGTH * 10,)).tolist())
    (tmp_path / "text.txt").write_bytes(text)
    done = subprocess.run(
        [str(PROGRAM), "eval", "--weights", "model.safetensors", "--model", name, "--data", "text.txt", "--set", "data.format=text",
         "--set", "data.tokens=bytes", "--set", f"data.length={LENGTH}", "--json"],
        cwd=tmp_path, capture_output=True, text=True,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    tail = torch.tensor(list(text[len(text) - len(text) // 10:]))
    n = (len(tail) - 1) // LENGTH
    windows = torch.stack([tail[k * LENGTH: k * LENGTH + LENGTH + 1] for k in range(n)])
    model.eval()
    with torch.no_grad():
        logits = model(windows[:, :-1]).logits
    loss = torch.nn.functional.cross_entropy(logits.reshape(-1, N_BYTES), windows[:, 1:].reshape(-1)).item()
    assert found["n"] == n
    assert found["loss"] == pytest.approx(loss, abs=1e-5)
