"""Measures PyTorch's all-reduce over gloo between processes on this machine; prints one JSON object.

    python bench/gloo_speed.py --peers 3 --floats 1200000 --times 100
"""

import argparse
import json
import os
import socket
import time


def worker(rank, a, port, results):
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), GLOO_SOCKET_IFNAME="lo")
    dist.init_process_group("gloo", rank=rank, world_size=a.peers)
    vector = torch.zeros(a.floats)
    for _ in range(-(-a.times // 5)):
        dist.all_reduce(vector)
    dist.barrier()
    began = time.perf_counter()
    for _ in range(a.times):
        dist.all_reduce(vector)
    elapsed = time.perf_counter() - began
    if rank == 0:
        results.put(elapsed / a.times)
    dist.barrier()
    dist.destroy_process_group()


def main():
    import torch.multiprocessing as mp

    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--peers", type=int, default=3)
    p.add_argument("--floats", type=int, default=1_200_000)
    p.add_argument("--times", type=int, default=100)
    a = p.parse_args()
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    context = mp.get_context("spawn")
    results = context.Queue()
    processes = [context.Process(target=worker, args=(rank, a, port, results)) for rank in range(a.peers)]
    for process in processes:
        process.start()
    seconds = results.get()
    for process in processes:
        process.join()
    print(json.dumps({"peers": a.peers, "floats": a.floats, "times": a.times, "seconds": seconds}))


if __name__ == "__main__":
    main()
