"""Computes gradients and scores of a PyTorch model, and trains local phases, for a NetTorrent peer, which started this process.

Requests are lines of JSON on standard input, answers lines of JSON on standard output. Numbers lie in a file that both have open:
the model's values, a gradient, the samples of a batch and their labels.
"""

import importlib.util
import inspect
import json
import math
import mmap
import os
import sys
import traceback

answers = os.fdopen(os.dup(1), "w", buffering=1)
# What the user's code prints is for people.
os.dup2(2, 1)

import torch  # noqa: E402
from torch.nn import functional  # noqa: E402


def load_model(source, input_shape, n_classes, seed):
    path, _, name = source.rpartition(":")
    sys.path.insert(0, os.path.dirname(os.path.abspath(path)))
    spec = importlib.util.spec_from_file_location("nettorrent_model", path)
    if spec is None or not os.path.exists(path):
        raise FileNotFoundError(f"there is no Python file {path}")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    if not hasattr(module, name):
        raise AttributeError(f"{path} has no function `{name}`")
    torch.manual_seed(seed)
    build = getattr(module, name)
    offered = {"input_shape": tuple(input_shape), "n_classes": n_classes}
    parameters = inspect.signature(build).parameters
    model = build(**{key: value for key, value in offered.items() if key in parameters})
    if not isinstance(model, torch.nn.Module):
        raise TypeError(f"{source} gave a {type(model).__name__}, not a torch.nn.Module")
    return model


def tensors_of(model):
    """Trained parameters, then all else that has to travel."""
    parameters = dict(model.named_parameters())
    trained = {name: p for name, p in parameters.items() if p.requires_grad}
    persistent = set(model.state_dict(keep_vars=True))
    buffers = {name: b for name, b in model.named_buffers() if name in persistent}
    return trained, buffers, {name: p for name, p in parameters.items() if not p.requires_grad}


class Worker:
    def __init__(self, request):
        self.set_threads(request)
        device = request.get("device") or ("cuda" if torch.cuda.is_available() else "cpu")
        self.device = torch.device(device)
        self.input_shape = request["input_shape"]
        model = load_model(request["model"], self.input_shape, request["n_classes"], request["seed"])
        self.model = model.to(self.device).train()
        self.trained, self.buffers, self.frozen = tensors_of(self.model)
        self.rest = {**self.buffers, **self.frozen}
        self.optimizer, self.clip_norm, self.before = None, None, {}

    def describe(self):
        def kind(tensors, name):
            return [[key, list(t.shape), name] for key, t in tensors.items()]

        tensors = kind(self.trained, "parameter") + kind(self.buffers, "buffer") + kind(self.frozen, "frozen")
        return {"tensors": tensors, "device": str(self.device)}

    def set_threads(self, request):
        torch.set_num_threads(max(1, request["threads"]))
        return {}

    def open(self, request):
        """The file with the numbers, and where each tensor lies in the flat vector: its start, lengths and steps."""
        n_values, n_batch = request["n_values"], request["n_batch"]
        n_inputs = n_batch
        for n in self.input_shape:
            n_inputs *= n
        with open(request["path"], "r+b") as f:
            self.memory = mmap.mmap(f.fileno(), 0)
        numbers = torch.frombuffer(self.memory, dtype=torch.float32)
        self.values, self.gradient = numbers[:n_values], numbers[n_values : 2 * n_values]
        self.inputs = numbers[2 * n_values : 2 * n_values + n_inputs]
        self.labels = numbers[2 * n_values + n_inputs :].view(torch.int32)
        self.places = {name: (start, lens, steps) for name, start, lens, steps in request["places"]}
        missing = set(self.places).symmetric_difference({**self.trained, **self.rest})
        if missing:
            raise ValueError(f"the model has other tensors than the swarm's: {', '.join(sorted(missing)[:3])}")
        return {}

    def at(self, vector, name):
        start, lens, steps = self.places[name]
        return vector.as_strided(lens, steps, vector.storage_offset() + start)

    def load(self):
        with torch.no_grad():
            for name, tensor in {**self.trained, **self.rest}.items():
                numbers = self.at(self.values, name)
                if not tensor.is_floating_point():
                    numbers = numbers.round()
                tensor.copy_(numbers.reshape(tensor.shape))

    def store(self, vector, tensors):
        for name, tensor in tensors.items():
            place = self.at(vector, name)
            place.copy_(tensor.detach().reshape(place.shape))

    def initial(self, _):
        self.store(self.values, {**self.trained, **self.rest})
        return {}

    def batch(self, n):
        size = 1
        for length in self.input_shape:
            size *= length
        inputs = self.inputs[: n * size].view(n, *self.input_shape).to(self.device)
        if len(self.input_shape) == 3:
            # Pictures come as rows, columns, channels.
            inputs = inputs.permute(0, 3, 1, 2).contiguous()
        return inputs, self.labels[:n].long().to(self.device)

    def score(self, loss, output, labels, also):
        """What is said of a batch, and another number, with one wait for the device."""
        right = (output.detach().argmax(1) == labels).sum()
        loss, right, also = torch.stack([x.detach().double() for x in (loss, right, also)]).tolist()
        # JSON has no infinity.
        loss_sum = loss * len(labels) if math.isfinite(loss) else None
        return {"loss_sum": loss_sum, "n_correct": int(right)}, also

    def backward(self, request, share=1.0):
        torch.manual_seed(request["seed"])
        inputs, labels = self.batch(request["n"])
        output = self.model(inputs)
        loss = functional.cross_entropy(output, labels)
        (loss if share == 1.0 else loss * share).backward()
        return loss, output, labels

    def gradient_of(self, request):
        self.load()
        self.model.zero_grad(set_to_none=True)
        before = {name: t.detach().clone() for name, t in self.buffers.items()}
        loss, output, labels = self.backward(request)
        self.store(self.gradient, {n: torch.zeros_like(p) if p.grad is None else p.grad for n, p in self.trained.items()})
        self.store(self.gradient, {name: old.float() - self.buffers[name].float() for name, old in before.items()})
        return self.score(loss, output, labels, loss)[0]

    def begin_phase(self, request):
        """Brings the values to the device for a local phase, with a fresh optimizer; its vectors follow."""
        self.load()
        settings, parameters = request["optimizer"], list(self.trained.values())
        decay, epsilon = settings["weight_decay"], request["epsilon"]
        kind, momentum = settings["kind"], settings["momentum"]
        common = {"lr": settings["lr"], "weight_decay": decay}
        if kind == "sgd":
            self.optimizer = torch.optim.SGD(parameters, momentum=momentum, nesterov=settings["nesterov"], **common)
        elif kind == "adagrad":
            self.optimizer = torch.optim.Adagrad(parameters, eps=epsilon, **common)
        elif kind == "rmsprop":
            self.optimizer = torch.optim.RMSprop(parameters, alpha=settings["alpha"], momentum=momentum, eps=epsilon, **common)
        else:
            which = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}[kind]
            self.optimizer = which(parameters, betas=(settings["beta1"], settings["beta2"]), eps=epsilon, **common)
        self.clip_norm, self.n_steps = settings.get("clip_norm"), request["n_steps"]
        if kind != "sgd":
            for p in parameters:
                self.optimizer.state[p]["step"] = torch.tensor(float(self.n_steps))
        return {}

    def load_vector(self, request):
        for name, p in self.trained.items():
            numbers = self.at(self.gradient, name).reshape(p.shape).to(p.device, p.dtype, copy=True)
            self.optimizer.state[p][request["name"]] = numbers.clone(memory_format=torch.preserve_format)
        return {}

    def store_vector(self, request):
        states = {name: self.optimizer.state[p].get(request["name"]) for name, p in self.trained.items()}
        self.store(self.gradient, {name: torch.zeros_like(self.trained[name]) if s is None else s for name, s in states.items()})
        return {}

    def train(self, request):
        """Adds a part of a batch to its gradient. With the last part it takes the step, or undoes what the batch did to the statistics."""
        if request["is_first"]:
            self.model.zero_grad(set_to_none=True)
            self.before = {name: t.detach().clone() for name, t in self.buffers.items()}
            self.loss_sum, self.n = 0.0, 0
        loss, output, labels = self.backward(request, request["share"])
        grads = [p.grad for p in self.trained.values() if p.grad is not None]
        norm = torch.stack([grad.float().norm() for grad in grads]).norm() if grads else torch.zeros_like(loss)
        answer, norm = self.score(loss, output, labels, norm)
        self.loss_sum, self.n = self.loss_sum + (math.nan if answer["loss_sum"] is None else answer["loss_sum"]), self.n + len(labels)
        if request["is_last"]:
            is_usual = math.isfinite(norm) and self.loss_sum <= request["most_loss"] * self.n
            answer["is_usual"] = is_usual
            self.end_batch(request["lr"], grads, norm) if is_usual else self.undo_batch()
        return answer

    def end_batch(self, lr, grads, norm):
        if self.clip_norm is not None and norm > self.clip_norm:
            torch._foreach_mul_(grads, self.clip_norm / norm)
        for group in self.optimizer.param_groups:
            group["lr"] = lr
        self.optimizer.step()
        self.n_steps += 1

    def undo_batch(self):
        with torch.no_grad():
            for name, old in self.before.items():
                self.buffers[name].copy_(old)

    def end_phase(self, _):
        self.store(self.values, {**self.trained, **self.rest})
        return {"n_steps": self.n_steps}

    def evaluate(self, request):
        """The score of a batch."""
        if request["load"]:
            self.load()
        self.model.eval()
        with torch.no_grad():
            inputs, labels = self.batch(request["n"])
            output = self.model(inputs)
            loss = functional.cross_entropy(output, labels)
            score, _ = self.score(loss, output, labels, loss)
        self.model.train()
        return score


def problem(error):
    frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename != "<string>"]
    place = f" ({frames[-1].filename}, line {frames[-1].lineno})" if frames else ""
    return {"error": f"{type(error).__name__}: {error}{place}"}


def main():
    worker = None
    for line in sys.stdin:
        try:
            request = json.loads(line)
            if request["do"] == "begin":
                worker = Worker(request)
                answer = worker.describe()
            else:
                answer = getattr(worker, {"gradient": "gradient_of"}.get(request["do"], request["do"]))(request)
        except Exception as error:
            answer = problem(error)
        answers.write(json.dumps(answer) + "\n")


main()
