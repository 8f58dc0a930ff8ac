"""A swarm on a Ray cluster: an actor on each node, with a peer in each."""

from __future__ import annotations

import io
import queue
import tarfile
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import ray
from ray.util.placement_group import placement_group, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from ._anywhere import of_this_peer
from ._api import join, start
from ._progress import Progress
from ._swarm import Swarm
from ._watch import Callback, Event, Result

Connect = Callable[..., Swarm]
"""Called as `nettorrent.start`; all peers but the first join instead."""
Train = Callable[[Connect], Any]


def launch(
    train: Train,
    *,
    nodes: int | None = None,
    cpus: int | None = None,
    gpus: float = 0,
    address: str | None = None,
    out: str | Path | None = None,
    callbacks: Iterable[Callback] = (),
    progress: bool = True,
    patience: float = 300.0,
) -> Result:
    """Runs `train(connect)` in an actor on each node. `connect` takes what `nettorrent.start` takes, and gives a `Swarm`.

        def train(connect):
            model = make_model()
            return connect(model, loss, data, test, optimizer="sgd", lr=0.1, epochs=3, batch=64).run()

        result = nettorrent.ray.launch(train, nodes=4, gpus=1)

    The first peer starts the swarm, and the others join it with a ticket that goes only through Ray. There are so many
    `nodes` as the cluster has if none are given, and several peers on a node if it has fewer. Each reserves `cpus` (all
    of the smallest node if none are given) and `gpus`. What happens is shown and told to `callbacks` here; the newest
    checkpoint is brought into `out` (runs/ray-TIME), which the result names. Ctrl-C has all peers leave.

    Ray is connected to at `address` unless it is already. Every node needs this package. An exception of a `train` is
    raised here if no peer finishes; `patience` is how many seconds the cluster may take to have room.
    """
    if not ray.is_initialized():
        ray.init(address=address)
    n_peers, cpus = _fit(nodes, cpus, gpus)
    folder = Path(out) if out is not None else Path("runs", time.strftime("ray-%Y%m%d-%H%M%S"))
    if (folder / "checkpoints").exists():
        raise ValueError(f"{folder} holds a run already: choose another folder with out=")
    places = _reserve(n_peers, cpus, gpus, patience)
    try:
        name = f"{folder.name}-{time.time_ns()}"
        peers = [
            ray.remote(Peer)
            .options(
                num_cpus=cpus,
                num_gpus=gpus,
                max_concurrency=4,
                scheduling_strategy=PlacementGroupSchedulingStrategy(places, placement_group_bundle_index=k),
            )
            .remote(f"nettorrent/{name}/peer-{k}")
            for k in range(n_peers)
        ]
        shown: list[Callback] = [Progress(lambda: True)] if progress else []
        return _Launched(peers, train, folder, [*shown, *callbacks]).follow()
    finally:
        remove_placement_group(places)


def _fit(n_peers: int | None, cpus: int | None, gpus: float) -> tuple[int, int]:
    """How many peers there are, and how many CPUs each has."""
    resources = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    sizes = [int(has["CPU"]) for has in resources if has.get("CPU", 0) >= 1 and has.get("GPU", 0) >= gpus]
    if not sizes:
        raise ValueError(f"no node of the cluster has a CPU and {gpus:g} GPUs")
    n_peers = n_peers or len(sizes)
    return n_peers, cpus or max(1, min(sizes) // -(-n_peers // len(sizes)))


def _reserve(n_peers: int, cpus: int, gpus: float, patience: float) -> Any:
    bundle = {"CPU": cpus, "GPU": gpus} if gpus else {"CPU": cpus}
    n_nodes = sum(node["Alive"] and node["Resources"].get("CPU", 0) >= 1 for node in ray.nodes())
    places = placement_group([bundle] * n_peers, strategy="STRICT_SPREAD" if n_peers <= n_nodes else "SPREAD")
    if not places.wait(patience):
        remove_placement_group(places)
        raise TimeoutError(
            f"after {patience:g} s the cluster has no room for {n_peers} peers with {bundle} each: use fewer nodes= or "
            "cpus="
        )
    return places


class Peer:
    """A peer in its actor. Its calls come in threads of their own."""

    def __init__(self, folder: str) -> None:
        self._folder = Path.home() / folder
        self._swarm: Swarm | None = None
        self._told: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self._has_connected, self._has_ended, self._leaves = threading.Event(), threading.Event(), False

    def run(self, train: Train, n_peers: int, ticket: str | None) -> Result:
        """Trains to the end."""

        def connect(*described: Any, **options: Any) -> Swarm:
            options.update(out=self._folder, progress=False)
            options["callbacks"] = [*options.get("callbacks", ()), self._told.put]
            if ticket is None:
                self._swarm = start(*described, **{**options, "wait_for": n_peers})
            else:
                self._swarm = join(ticket, *described, **of_this_peer(options))
            self._has_connected.set()
            if self._leaves:
                self._swarm.leave()
            return self._swarm

        try:
            train(connect)
        finally:
            self._has_ended.set()
            self._has_connected.set()
        if self._swarm is None or self._swarm.result is None:
            raise RuntimeError("the function has to call connect(…), and to train with the swarm that it gives")
        return self._swarm.result

    def ticket(self) -> str | None:
        """The swarm's ticket, once there is one; None if there will be none."""
        self._has_connected.wait()
        return self._swarm.ticket if self._swarm and not self._has_ended.is_set() else None

    def events(self) -> list[Event]:
        """What has happened since; after a second if nothing has."""
        try:
            told = [self._told.get(timeout=1)]
        except queue.Empty:
            return []
        while not self._told.empty():
            told.append(self._told.get())
        return told

    def leave(self) -> None:
        """Leaves the swarm, now or as soon as it is there."""
        self._leaves = True
        if self._swarm is not None:
            self._swarm.leave()

    def archive(self) -> bytes | None:
        """The newest checkpoint, as a tar file."""
        steps = sorted((self._folder / "checkpoints").glob("step-*"))
        if not steps:
            return None
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w") as archive:
            for path in (steps[-1], self._folder / "job.toml", self._folder / "events.jsonl"):
                if path.exists():
                    archive.add(path, path.relative_to(self._folder))
        return packed.getvalue()


class _Launched:
    """The peers of a swarm, as they are followed from here."""

    def __init__(self, peers: list[Any], train: Train, folder: Path, tellers: list[Callback]) -> None:
        self._peers, self._train, self._folder, self._tellers = peers, train, folder, tellers
        self._runs: list[Any] = []
        self._source, self._has_begun = 0, False
        self._ends: dict[int, Result] = {}
        self._problems: dict[int, BaseException] = {}

    def follow(self) -> Result:
        try:
            self._begin()
            self._watch()
        except KeyboardInterrupt:
            self._leave()
            self._watch()
        return self._conclude()

    def _leave(self) -> None:
        for peer in self._peers:
            peer.leave.remote()

    def _begin(self) -> None:
        n_peers = len(self._peers)
        self._runs = [self._peers[0].run.remote(self._train, n_peers, None)]
        try:
            ticket = ray.get(self._peers[0].ticket.remote())
        except ray.exceptions.RayError:
            # Why, its end tells.
            return
        if ticket is not None:
            self._runs += [peer.run.remote(self._train, n_peers, ticket) for peer in self._peers[1:]]

    def _watch(self) -> None:
        """Tells what happens, until all have ended."""
        while left := [k for k in range(len(self._runs)) if k not in self._ends and k not in self._problems]:
            follows = self._source in left
            # It is asked before its events, so that none is missed when it has ended.
            ended, _ = ray.wait([self._runs[k] for k in left], timeout=0 if follows else 1)
            if follows:
                self._tell(self._events())
            for run in ended:
                self._end(self._runs.index(run))

    def _end(self, k: int) -> None:
        """Takes in how a peer has ended. Where it failed, another one tells what happens from now on."""
        try:
            self._ends[k] = ray.get(self._runs[k])
            return
        except ray.exceptions.RayTaskError as problem:
            self._problems[k] = problem.as_instanceof_cause()
        except ray.exceptions.RayError as problem:
            self._problems[k] = problem
        if not self._has_begun:
            # The others would wait for it.
            self._leave()
        others = [k for k in range(len(self._runs)) if k not in self._ends and k not in self._problems]
        if k == self._source and others:
            self._source = others[0]
            self._events()

    def _events(self) -> list[Event]:
        try:
            return ray.get(self._peers[self._source].events.remote())
        except ray.exceptions.RayError:
            return []

    def _tell(self, events: list[Event]) -> None:
        for event in events:
            self._has_begun |= event["event"] == "view"
            for tell in self._tellers:
                tell(event)

    def _conclude(self) -> Result:
        for tell in self._tellers:
            if isinstance(tell, Progress):
                tell.close()
        finished = sorted(self._ends, key=lambda k: self._ends[k].ending != "finished")
        for k in finished:
            packed = ray.get(self._peers[k].archive.remote())
            if packed is not None:
                with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
                    archive.extractall(self._folder, filter="data")
                if self._problems and self._ends[k].ending != "finished":
                    break
                return self._here(self._ends[k])
        for problem in self._problems.values():
            raise problem
        raise RuntimeError("no peer has a checkpoint: training was left before its first step")

    def _here(self, result: Result) -> Result:
        """The same, with this machine's paths."""
        result.folder = str(self._folder)
        result.checkpoint = str(max((self._folder / "checkpoints").glob("step-*")))
        return result
