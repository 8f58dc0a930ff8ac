"""Measures PyTorch's all-reduce over gloo between processes on this machine; prints one JSON object.

    python bench/gloo_speed.py --peers 3 --floats 1200000 --times 100
"""

import argparse
import json
import time

import workers


def worker(rank, a):
    import torch
    import torch.distributed as dist

    vector = torch.zeros(a.floats)
    for _ in range(-(-a.times // 5)):
        dist.all_reduce(vector)
    dist.barrier()
    began = time.perf_counter()
    for _ in range(a.times):
        dist.all_reduce(vector)
    return (time.perf_counter() - began) / a.times


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--peers", type=int, default=3)
    p.add_argument("--floats", type=int, default=1_200_000)
    p.add_argument("--times", type=int, default=100)
    a = p.parse_args()
    seconds = workers.run(worker, a)[0]
    print(json.dumps({"peers": a.peers, "floats": a.floats, "times": a.times, "seconds": seconds}))


if __name__ == "__main__":
    main()
