import os
import sys
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parent.parent)]

import pytest  # noqa: E402
import torch  # noqa: E402
from fake_core import Core  # noqa: E402

torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def only_the_cpu(request, monkeypatch):
    """Tests compare with plain loops on the CPU, also where there is a GPU, except those that are about it."""
    if request.module.__name__ != "test_cuda":
        monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
        monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)


@pytest.fixture
def core(monkeypatch):
    """The part in Rust, played by Python."""
    fake = Core()
    monkeypatch.setitem(sys.modules, "nettorrent._core", fake)
    return fake
