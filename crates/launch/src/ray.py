"""Reaches the nodes of a Ray cluster for `nettorrent launch --ray`. Nodes need nothing but Ray and a POSIX shell.

    hold GROUP ADDRESS NODES CPUS GPUS   reserves a place on each node, tells which they are, and keeps them until its input ends
    run GROUP ADDRESS PLACE LINE         has an actor there run a command line, with this process' input and output
"""

import json
import os
import queue
import socket
import subprocess
import sys
import threading

try:
    import ray
    from ray.util.placement_group import placement_group, placement_group_table, remove_placement_group
    from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy
except ImportError as problem:
    sys.exit(
        f"error: Ray is not there for {sys.executable}: {problem}; install it with pip install ray, or name another "
        "Python with NETTORRENT_PYTHON"
    )

CHUNK = 1 << 20
PATIENCE_S = 300


def connect(group, address):
    host, _, port = address.rpartition("://")[2].rpartition(":")
    try:
        if port.isdigit():
            # Ray itself tries for minutes.
            socket.create_connection((host, int(port)), timeout=10).close()
        ray.init(address=address, namespace=group, log_to_driver=False, logging_level="ERROR")
    except (OSError, RuntimeError, ValueError) as problem:
        sys.exit(f"error: cannot reach a Ray cluster at {address}: {problem}")


def usable(gpus):
    """The nodes on which a peer can be: their CPUs, by the node's number."""
    resources = {node["NodeID"]: node["Resources"] for node in ray.nodes() if node["Alive"]}
    return {node: int(has["CPU"]) for node, has in resources.items() if has.get("CPU", 0) >= 1 and has.get("GPU", 0) >= gpus}


def hold(group, address, n_peers, cpus, gpus):
    connect(group, address)
    nodes = usable(gpus)
    if not nodes:
        sys.exit(f"error: no node of the cluster has a CPU and {gpus} GPUs")
    n_peers = n_peers or len(nodes)
    per_node = -(-n_peers // len(nodes))
    cpus = cpus or max(1, min(nodes.values()) // per_node)
    bundle = {"CPU": cpus, "GPU": gpus} if gpus else {"CPU": cpus}
    # One a node; where there are fewer nodes, some have several.
    spread = "STRICT_SPREAD" if per_node == 1 else "SPREAD"
    places = placement_group([bundle] * n_peers, strategy=spread, name=group)
    try:
        if not places.wait(PATIENCE_S):
            sys.exit(
                f"error: after {PATIENCE_S} s the cluster has no room yet for {n_peers} peers with {bundle} each; ask for "
                "fewer --nodes or --cpus"
            )
        address_of = {node["NodeID"]: node["NodeManagerAddress"] for node in ray.nodes()}
        node_of = placement_group_table(places)["bundles_to_node_id"]
        names = [f"peer-{k}@{address_of[node_of[k]]}" for k in range(n_peers)]
        print(json.dumps({"places": names, "cpus": cpus}), flush=True)
        sys.stdin.buffer.read()
    finally:
        remove_placement_group(places)


class Shell:
    """A command line that runs at a node. It hears the end of its input when this actor is gone, too."""

    def start(self, line):
        pipe = subprocess.PIPE
        own = {"start_new_session": True, "cwd": os.path.expanduser("~")}
        self.process = subprocess.Popen(["sh", "-c", line], stdin=pipe, stdout=pipe, stderr=pipe, **own)
        self.said = queue.Queue(maxsize=16)
        streams = ((1, self.process.stdout), (2, self.process.stderr))
        self.readers = [threading.Thread(target=self._read, args=stream, daemon=True) for stream in streams]
        for reader in self.readers:
            reader.start()
        threading.Thread(target=self._end, daemon=True).start()

    def _read(self, number, stream):
        while data := stream.read1(CHUNK):
            self.said.put((number, data))

    def _end(self):
        for reader in self.readers:
            reader.join()
        self.said.put((None, self.process.wait()))

    def write(self, data):
        """Passes input on; the end of it is None."""
        try:
            if data is None:
                self.process.stdin.close()
            else:
                self.process.stdin.write(data)
                self.process.stdin.flush()
        except (BrokenPipeError, ValueError):
            pass

    def read(self):
        """What it has said since, after a while if it says nothing."""
        try:
            said = [self.said.get(timeout=1)]
        except queue.Empty:
            return []
        while not self.said.empty():
            said.append(self.said.get())
        return said


def run(group, address, place, line):
    connect(group, address)
    number = int(place.split("@")[0].removeprefix("peer-"))
    places = ray.util.get_placement_group(group)
    bundle = places.bundle_specs[number]
    where = PlacementGroupSchedulingStrategy(places, placement_group_bundle_index=number)
    takes = {"num_cpus": bundle.get("CPU", 0), "num_gpus": bundle.get("GPU", 0)}
    shell = ray.remote(Shell).options(scheduling_strategy=where, max_concurrency=3, **takes).remote()
    ray.get(shell.start.remote(line))
    threading.Thread(target=pass_input, args=(shell,), daemon=True).start()
    while True:
        for stream, data in ray.get(shell.read.remote()):
            if stream is None:
                # A signal's number is negative here, and above 128 in shells.
                return data if data >= 0 else 128 - data
            output = (sys.stdout if stream == 1 else sys.stderr).buffer
            output.write(data)
            output.flush()


def pass_input(shell):
    try:
        while data := sys.stdin.buffer.read1(CHUNK):
            ray.get(shell.write.remote(data))
        ray.get(shell.write.remote(None))
    except ray.exceptions.RayError:
        pass


def main(what, group, address, *rest):
    if what == "hold":
        n_peers, cpus, gpus = map(int, rest)
        hold(group, address, n_peers, cpus, gpus)
        return 0
    try:
        return run(group, address, *rest)
    except ray.exceptions.RayError as problem:
        print(f"the actor is gone: {str(problem).splitlines()[0]}", file=sys.stderr)
        return 255


if __name__ == "__main__":
    # Nobody waits for threads that read.
    code = main(*sys.argv[1:])
    sys.stdout.flush()
    ray.shutdown()
    os._exit(code)
