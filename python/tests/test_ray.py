"""Swarms on a Ray cluster of two nodes, both on this machine."""

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from test_examples import blocks_of
from test_worker import data, net
from torch.nn import functional as F

ray = pytest.importorskip("ray", reason="Ray is not installed: pip install ray")
pytest.importorskip("nettorrent._core")

from ray.cluster_utils import Cluster  # noqa: E402

import nettorrent.ray  # noqa: E402

PROGRAM = os.environ.get("NETTORRENT") or shutil.which("nettorrent")
needs_program = pytest.mark.skipif(PROGRAM is None, reason="the program is not there: set NETTORRENT to its path")


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """Where peers have their runs."""
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="module")
def cluster(home):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", str(home))
        here = os.path.dirname(__file__)
        patch.setenv("PYTHONPATH", os.pathsep.join([here, *filter(None, [os.environ.get("PYTHONPATH")])]))
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
        cluster.add_node(num_cpus=1)
        cluster.wait_for_nodes()
        yield cluster
        cluster.shutdown()


@pytest.fixture
def connected(cluster):
    ray.init(address=cluster.address, log_to_driver=False)
    yield
    ray.shutdown()


def train(connect):
    model = net()
    shared = {"optimizer": torch.optim.SGD(model.parameters(), lr=0.1), "epochs": 3, "batch": 16}
    return connect(model, F.cross_entropy, data(), **shared).run()


def test_an_actor_on_each_node_trains_with_the_others(connected, tmp_path, home, capfd):
    events = []
    result = nettorrent.ray.launch(train, out=tmp_path / "run", callbacks=[events.append])
    assert (result.ending, result.epoch) == ("finished", 3)
    assert [event["epoch"] for event in events if event["event"] == "epoch"] == [1, 2, 3]
    assert len({event["peer"] for event in events if event["event"] == "times"}) == 2
    assert result.checkpoint.startswith(str(tmp_path / "run")) and os.path.exists(f"{result.checkpoint}/model.safetensors")
    assert len(list((home / "nettorrent").glob("run-*/peer-*/checkpoints"))) == 2
    out, err = capfd.readouterr()
    assert "epoch 3/3" in out and "nt3" not in out + err, "the ticket is for peers only"


GUIDE = Path(__file__).parents[2] / "docs/src/guides/python.md"


@pytest.mark.skipif(not GUIDE.exists(), reason="the guide is not here")
def test_the_guides_code_runs(connected, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code = blocks_of(GUIDE)[0]["on_ray.py"]
    values = {"__name__": "__main__"}
    exec(compile(code, "on_ray.py", "exec"), values)
    assert values["result"].ending == "finished" and values["result"].folder.startswith("runs/ray-")


def test_what_goes_wrong_in_the_function_is_raised_here(connected, tmp_path):
    def fails(connect):
        raise ValueError("this function never works")

    with pytest.raises(ValueError, match="never works"):
        nettorrent.ray.launch(fails, out=tmp_path / "run", progress=False)
    def fails_at_the_second(connect):
        try:
            (tmp_path / "first").touch(exist_ok=False)
        except FileExistsError:
            raise ValueError("here it does not work") from None
        train(connect)

    with pytest.raises(ValueError, match="here it does not work"):
        nettorrent.ray.launch(fails_at_the_second, out=tmp_path / "waiting", progress=False)
    with pytest.raises(RuntimeError, match="has to call connect"):
        nettorrent.ray.launch(lambda connect: None, out=tmp_path / "run", progress=False)
    with pytest.raises(TimeoutError, match="no room for 3 peers"):
        nettorrent.ray.launch(train, nodes=3, cpus=1, patience=0.5)


def launched(cluster, place, *arguments):
    command = [str(PROGRAM), "launch", "--ray", "--address", cluster.address, "--run", "run", "--threads", "1", *arguments]
    environment = {**os.environ, "NETTORRENT_PYTHON": sys.executable}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen(command, cwd=place, env=environment, text=True, **pipes)


@needs_program
def test_a_job_is_launched_on_the_nodes_and_collected(cluster, tmp_path, home):
    planned = launched(cluster, tmp_path, "--epochs", "2", "--dry-run").communicate(timeout=60)[0]
    assert "peer-1@NODE: joins" in planned and "hold nettorrent-" in planned and not (tmp_path / "run").exists()
    process = launched(cluster, tmp_path, "--epochs", "2", "--json")
    out, err = process.communicate(timeout=180)
    assert process.returncode == 0, err
    events = [json.loads(line) for line in out.splitlines()]
    assert [event["epoch"] for event in events if event["event"] == "epoch"] == [1, 2]
    assert len({event["peer"] for event in events if event["event"] == "times"}) == 2
    kept = [json.loads(line)["event"] for line in (tmp_path / "run/events.jsonl").read_text().splitlines()]
    assert kept.count("epoch") == 2 and kept[-1] == "stop"
    judged = subprocess.run([str(PROGRAM), "eval", "run", "--json"], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert json.loads(judged.stdout)["accuracy"] > 0.5
    assert len(list((home / "nettorrent/run").glob("peer-*/run"))) == 2


@needs_program
def test_ctrl_c_has_the_peers_in_actors_leave(cluster, tmp_path, home):
    shutil.rmtree(home / "nettorrent/run", ignore_errors=True)
    process = launched(cluster, tmp_path, "--epochs", "100000", "--json")
    for line in process.stdout:
        if json.loads(line)["event"] == "epoch":
            break
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=120)
    assert process.returncode == 130 and "the newest checkpoint of peer-" in err, err
    for peer in ("peer-0", "peer-1"):
        last = (home / "nettorrent/run" / peer / "run/events.jsonl").read_text().splitlines()[-1]
        assert json.loads(last)["reason"] == "interrupted"


@needs_program
def test_a_cluster_that_is_not_there_is_named(tmp_path):
    command = [str(PROGRAM), "launch", "--ray", "--address", "127.0.0.1:9", "--run", "run"]
    environment = {**os.environ, "NETTORRENT_PYTHON": sys.executable}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode != 0 and "cannot reach a Ray cluster at 127.0.0.1:9" in done.stderr, done.stderr
