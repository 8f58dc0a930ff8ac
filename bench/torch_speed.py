"""Measures PyTorch's training speed on one model; prints one JSON object, in the words of `nettorrent bench --json`.

    python bench/torch_speed.py mnist-cnn --batch 64 --threads 1 --seconds 3 --format channels-last

A step is zero_grad, forward, cross-entropy, backward and SGD (lr 0.01, momentum 0.5), in train mode, dropout on.
Inputs are drawn beforehand. Steps before the clock starts let the allocator, the thread pool and the choice of
kernels settle.
"""

import argparse
import json
import os
import resource
import sys
import time

N_BATCHES = 8
MIN_WARM_UP_STEPS = 3
MIN_WARM_UP_SECONDS = 0.5


def arguments():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("model")
    p.add_argument("--input", type=int, default=256, help="for language models: tokens in a sample")
    p.add_argument("--classes", type=int, default=256, help="for language models: how many tokens there are")
    p.add_argument("--batch", type=int, default=64)
    p.add_argument("--threads", type=int, default=1)
    p.add_argument("--seconds", type=float, default=3)
    p.add_argument("--format", choices=["default", "channels-last"], default="default")
    p.add_argument("--fused", action="store_true", help="use the fused SGD instead of PyTorch's default")
    return p.parse_args()


def peak_rss_bytes():
    """The peak of this program alone: where the kernel tells it, `ru_maxrss` would count what started us too."""
    try:
        with open("/proc/self/status") as status:
            return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM"))
    except (OSError, StopIteration):
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak * 1024


def main():
    a = arguments()
    # The libraries under PyTorch read these once, when they are loaded.
    os.environ["OMP_NUM_THREADS"] = os.environ["MKL_NUM_THREADS"] = str(a.threads)
    import torch
    from torch.nn import functional
    from torch_models import ZOO, is_language_model, language_model, n_params

    torch.set_num_threads(a.threads)
    import_rss_bytes = peak_rss_bytes()
    torch.manual_seed(0)
    if is_language_model(a.model):
        net = language_model(a.model, a.input, a.classes).train()
        inputs = [torch.randint(0, a.classes, (a.batch, a.input)) for _ in range(N_BATCHES)]
        labels = [torch.randint(0, a.classes, (a.batch * a.input,)) for _ in range(N_BATCHES)]
    else:
        make, shape, n_classes = ZOO[a.model]
        layout = torch.channels_last if a.format == "channels-last" and len(shape) == 3 else torch.contiguous_format
        net = make().to(memory_format=layout).train()
        inputs = [torch.rand(a.batch, *shape).contiguous(memory_format=layout) for _ in range(N_BATCHES)]
        labels = [torch.randint(0, n_classes, (a.batch,)) for _ in range(N_BATCHES)]
    sgd = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.5, fused=a.fused or None)
    n_classes = a.classes if is_language_model(a.model) else n_classes

    def run(min_steps, min_seconds):
        n_steps, start, elapsed = 0, time.perf_counter(), 0.0
        while n_steps < min_steps or elapsed < min_seconds:
            sgd.zero_grad()
            outputs = net(inputs[n_steps % N_BATCHES]).reshape(-1, n_classes)
            functional.cross_entropy(outputs, labels[n_steps % N_BATCHES]).backward()
            sgd.step()
            n_steps, elapsed = n_steps + 1, time.perf_counter() - start
        return n_steps, elapsed

    run(MIN_WARM_UP_STEPS, MIN_WARM_UP_SECONDS)
    n_steps, elapsed = run(1, a.seconds)
    print(json.dumps({
        "model": a.model, "batch": a.batch, "threads": torch.get_num_threads(), "format": a.format,
        "samples_per_s": n_steps * a.batch / elapsed, "steps": n_steps, "seconds": elapsed,
        "parameters": n_params(net), "peak_rss_bytes": peak_rss_bytes(), "import_rss_bytes": import_rss_bytes,
        "torch": torch.__version__,
    }))


if __name__ == "__main__":
    main()
