"""The examples and the guide's code, as they stand."""

import queue
import re
import runpy
import sys
import threading
from pathlib import Path

import pytest

import nettorrent
from nettorrent import _api

pytest.importorskip("nettorrent._core")

EXAMPLES = Path(__file__).parent.parent / "examples"


@pytest.fixture(autouse=True)
def short_and_apart(tmp_path, monkeypatch):
    """Runs of two epochs at most, in a folder that goes away."""
    make_job = _api.make_job
    monkeypatch.setattr(_api, "make_job", lambda *args, epochs, **more: make_job(*args, epochs=min(2, epochs), **more))
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(EXAMPLES))
    monkeypatch.setattr(sys, "argv", ["example"])


@pytest.mark.parametrize(
    ("name", "needs", "says"),
    [
        ("fit", None, r"finished: accuracy [789]\d"),
        ("own_loop", None, r"finished: accuracy [789]\d"),
        ("lightning_module", "lightning", r"finished: loss 0\.[0-3]"),
        ("huggingface", "transformers", r"global_step=63"),
    ],
)
def test_examples_run(capsys, monkeypatch, name, needs, says):
    if needs:
        pytest.importorskip(needs)
    make_job = _api.make_job
    monkeypatch.setattr(_api, "make_job", lambda *args, epochs, **more: make_job(*args, epochs=1, **more))
    runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")
    assert re.search(says, capsys.readouterr().out)
    assert len((EXAMPLES / f"{name}.py").read_text().splitlines()) <= 40


def test_one_example_starts_and_another_joins(monkeypatch, capsys):
    tickets = queue.Queue()
    start = nettorrent.start

    def start_for_two(*args, **options):
        swarm = start(*args, **options, wait_for=2)
        tickets.put(swarm.ticket)
        return swarm

    monkeypatch.setattr(nettorrent, "start", start_for_two)
    main = runpy.run_path(str(EXAMPLES / "own_loop.py"))["main"]
    first = threading.Thread(target=main, daemon=True)
    first.start()
    monkeypatch.setattr(sys, "argv", ["own_loop", tickets.get(timeout=60)])
    main()
    first.join(60)
    assert len(re.findall(r"finished: accuracy [789]\d", capsys.readouterr().out)) == 2


GUIDE = Path(__file__).parent.parent.parent / "docs" / "src" / "guides" / "python.md"
README = Path(__file__).parent.parent / "README.md"


def blocks_of(page):
    """The page's Python code: what has a file name in its first line by that name, the rest together."""
    named, rest = {}, []
    for block in re.findall(r"^```python\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL):
        name = re.match(r"# (\S+\.py)\n", block)
        if name:
            named[name.group(1)] = block
        else:
            rest.append(block)
    return named, "\n".join(rest)


def run_code(block, page, **given):
    values = {"__name__": "__main__", **given}
    exec(compile(block, str(page), "exec"), values)
    return values


@pytest.mark.skipif(not GUIDE.exists(), reason="the guide is not here")
def test_the_guides_code_runs(monkeypatch):
    pytest.importorskip("safetensors")
    named, rest = blocks_of(GUIDE)
    monkeypatch.setattr(nettorrent, "fit", _with_less_to_say(nettorrent.fit))
    values = run_code(rest, GUIDE)
    assert values["result"].ending == "finished"
    shared = {name: values[name] for name in ("torch", "nn", "nettorrent", "x", "y")}
    assert run_code(named["loop.py"], GUIDE, **shared)["swarm"].result.accuracy > 0.8
    _start_and_join(named["train.py"], monkeypatch)


@pytest.mark.skipif(not GUIDE.exists(), reason="the guide is not here")
def test_the_guides_code_for_frameworks_runs(tmp_path):
    transformers = pytest.importorskip("transformers")
    lightning = pytest.importorskip("lightning")
    import torch
    from test_swarm import blobs, small_net
    from torch.nn import functional as F

    named, _ = blocks_of(GUIDE)
    small = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}
    model = transformers.BertForSequenceClassification(transformers.BertConfig(vocab_size=8, num_labels=2, **small))
    tokens = torch.randint(0, 8, (48, 6))
    rows = [{"input_ids": row, "labels": row[0] % 2} for row in tokens]
    args = transformers.TrainingArguments(str(tmp_path), lr_scheduler_type="cosine", num_train_epochs=1, use_cpu=True)
    made = run_code(named["huggingface.py"], GUIDE, model=model, args=args, train_set=rows)
    assert made["trainer"].state.epoch == 1.0

    class Module(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.net = small_net()

        def training_step(self, batch, batch_idx):
            return F.cross_entropy(self.net(batch[0]), batch[1])

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.1)

    made = run_code(named["lightning.py"], GUIDE, module=Module(), train_data=blobs(192, 1))
    assert made["result"].ending == "finished"


def test_the_readmes_code_runs(monkeypatch):
    named, rest = blocks_of(README)
    assert run_code(rest, README)["result"].ending == "finished"
    _start_and_join(named["train.py"], monkeypatch)


def _with_less_to_say(fit):
    return lambda *args, **options: fit(*args, **{"progress": False, **options})


def _start_and_join(block, monkeypatch):
    """Runs a program twice: once to start, once with the ticket."""
    tickets, ends = queue.Queue(), []
    start = nettorrent.start

    def start_and_tell(*args, **options):
        swarm = start(*args, **options)
        tickets.put(swarm.ticket)
        return swarm

    monkeypatch.setattr(nettorrent, "start", start_and_tell)
    first = threading.Thread(target=lambda: ends.append(run_code(block, "train.py")["swarm"].result), daemon=True)
    first.start()
    monkeypatch.setattr(sys, "argv", ["train.py", tickets.get(timeout=60)])
    ends.append(run_code(block, "train.py")["swarm"].result)
    first.join(60)
    assert [end.ending for end in ends] == ["finished"] * 2 and ends[0].step == ends[1].step
