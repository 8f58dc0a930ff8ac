"""Where samples come from: batches by the indices of their samples."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import (
    DataLoader,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    Subset,
    TensorDataset,
    default_collate,
)

Collate = Callable[[list[Any]], Any]

_LABEL_NAMES = ("labels", "label", "target", "targets")


class Samples:
    """A data set whose batches are asked for by index."""

    def __len__(self) -> int:
        raise NotImplementedError

    def read(self, indices: Tensor) -> Any:
        """The batch of these samples, collated, where the data are."""
        raise NotImplementedError

    def labels(self) -> list[int] | None:
        """The class of each sample, where it is known without reading them all."""
        return None


class TensorSamples(Samples):
    """Tensors whose first dimension counts the samples: a batch is one indexing operation."""

    def __init__(self, tensors: Sequence[Any] | Mapping[str, Any]) -> None:
        self._names = list(tensors) if isinstance(tensors, Mapping) else None
        self._tensors = [torch.as_tensor(t) for t in (tensors.values() if isinstance(tensors, Mapping) else tensors)]
        if len({len(t) for t in self._tensors}) != 1:
            raise ValueError(f"the tensors differ in their numbers of samples: {[len(t) for t in self._tensors]}")

    def __len__(self) -> int:
        return len(self._tensors[0])

    def read(self, indices: Tensor) -> Any:
        parts = [t.index_select(0, indices.to(t.device)) for t in self._tensors]
        return parts if self._names is None else dict(zip(self._names, parts, strict=True))

    def labels(self) -> list[int] | None:
        if self._names is None:
            return _as_labels(self._tensors[1], len(self)) if len(self._tensors) == 2 else None
        name = next((name for name in _LABEL_NAMES if name in self._names), None)
        return None if name is None else _as_labels(self._tensors[self._names.index(name)], len(self))


class MapSamples(Samples):
    """A data set with `len` and indexing: PyTorch's, Hugging Face's, or a plain list."""

    def __init__(self, data: Any, collate: Collate) -> None:
        self._data, self._collate = data, collate

    def __len__(self) -> int:
        return len(self._data)

    def read(self, indices: Tensor) -> Any:
        wanted = indices.tolist()
        at_once = getattr(self._data, "__getitems__", None)
        return self._collate(at_once(wanted) if at_once else [self._data[k] for k in wanted])

    def labels(self) -> list[int] | None:
        return _labels_of(self._data)


class StreamSamples(Samples):
    """An iterable data set: the next samples are taken whatever the indices are, and it starts again where it ends."""

    def __init__(self, data: IterableDataset[Any], n_samples: int, collate: Collate) -> None:
        self._data, self._n_samples, self._collate = data, n_samples, collate
        self._items: Iterator[Any] = iter(())

    def __len__(self) -> int:
        return self._n_samples

    def read(self, indices: Tensor) -> Any:
        return self._collate([self._next() for _ in range(len(indices))])

    def _next(self) -> Any:
        for item in self._items:
            return item
        self._items = iter(self._data)
        for item in self._items:
            return item
        raise ValueError("the iterable data set has no samples")


def as_samples(data: Any, collate: Collate | None = None, samples_per_epoch: int | None = None) -> Samples:
    """A data set, a tuple or dict of tensors, or a DataLoader's data set with its collate function."""
    if isinstance(data, Samples):
        return data
    if isinstance(data, DataLoader):
        _warn_of_sampler(data)
        return as_samples(data.dataset, collate or data.collate_fn, samples_per_epoch)
    if isinstance(data, IterableDataset) or (hasattr(data, "__iter__") and not hasattr(data, "__getitem__")):
        if samples_per_epoch is None:
            raise ValueError("an iterable data set does not say how long an epoch is: give samples_per_epoch")
        return StreamSamples(data, samples_per_epoch, collate or default_collate)
    if collate in (None, default_collate):
        if isinstance(data, TensorDataset):
            return TensorSamples(data.tensors)
        if isinstance(data, Mapping) or (isinstance(data, tuple) and all(map(_is_array, data))):
            return TensorSamples(data)
        if isinstance(data, Tensor):
            return TensorSamples([data])
    if not (hasattr(data, "__len__") and hasattr(data, "__getitem__")):
        raise TypeError(
            f"data cannot be a {type(data).__name__}: give a Dataset, a DataLoader, or tensors as (inputs, targets)"
        )
    return MapSamples(data, collate or default_collate)


def test_samples(test: Any, collate: Collate | None) -> Samples:
    """The samples of a test; none if there is none."""
    if test is None:
        return TensorSamples([torch.empty(0)])
    data = test.dataset if isinstance(test, DataLoader) else test
    if isinstance(data, IterableDataset) or not hasattr(data, "__getitem__"):
        raise ValueError(
            "test data need a length and indexing: make a list of them, such as list(itertools.islice(data, 1000))"
        )
    return as_samples(test, collate)


def batch_size(data: Any) -> int | None:
    """The batch size that a DataLoader was given; None for anything else."""
    return data.batch_size if isinstance(data, DataLoader) else None


def to_device(batch: Any, device: torch.device) -> Any:
    """A batch with all its tensors on a device, whatever it is nested in."""
    if isinstance(batch, Tensor):
        if device.type == "cuda" and batch.device.type == "cpu":
            batch = batch.pin_memory()
        return batch.to(device, non_blocking=True)
    if hasattr(batch, "to"):
        return batch.to(device)
    if isinstance(batch, Mapping):
        return {name: to_device(part, device) for name, part in batch.items()}
    if isinstance(batch, tuple) and hasattr(batch, "_fields"):
        return type(batch)(*(to_device(part, device) for part in batch))
    if isinstance(batch, (tuple, list)):
        return type(batch)(to_device(part, device) for part in batch)
    return batch


def _is_array(value: Any) -> bool:
    return hasattr(value, "shape") and hasattr(value, "dtype") and len(value.shape) > 0


def _as_labels(values: Any, n: int) -> list[int] | None:
    """Whole numbers from 0 up, one a sample, or None if these are something else."""
    try:
        labels = torch.as_tensor(values)
    except (TypeError, ValueError, RuntimeError):
        return None
    if labels.shape != (n,) or labels.is_floating_point() or labels.is_complex() or (n and int(labels.min()) < 0):
        return None
    return labels.to(torch.int64).tolist()


def _labels_of(data: Any) -> list[int] | None:
    if isinstance(data, TensorDataset):
        return _as_labels(data.tensors[1], len(data)) if len(data.tensors) == 2 else None
    if isinstance(data, Subset):
        labels = _labels_of(data.dataset)
        return None if labels is None else [labels[k] for k in data.indices]
    columns = getattr(data, "column_names", None)
    if isinstance(columns, list):
        name = next((name for name in _LABEL_NAMES if name in columns), None)
        return None if name is None else _as_labels(data[name][:], len(data))
    name = next((name for name in ("targets", "labels") if hasattr(data, name)), None)
    return None if name is None else _as_labels(getattr(data, name), len(data))


def _warn_of_sampler(loader: DataLoader[Any]) -> None:
    sampler = getattr(loader, "sampler", None)
    is_usual = sampler is None or type(sampler) in (RandomSampler, SequentialSampler)
    if not is_usual and not isinstance(loader.dataset, IterableDataset):
        warnings.warn(
            f"the DataLoader's {type(sampler).__name__} is not used: peers share out the samples themselves. "
            'For classes in equal shares, set job={"order": "balanced"}',
            stacklevel=4,
        )
