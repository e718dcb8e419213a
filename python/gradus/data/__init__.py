"""gradus.data: datasets, and a DataLoader with PyTorch's arguments.

    train = gd.data.DataLoader(gd.data.MNIST("mnist"), batch_size=64, shuffle=True, num_workers=2)
    for images, classes in train:
        ...

The library reads built-in datasets (docs/reference/datasets.md) with threads of its own; a dataset of a program is any
object with __len__ and __getitem__.
"""
from __future__ import annotations

from typing import Any

from gradus.data import _datasets
from gradus.data._collate import default_collate as default_collate, default_convert as default_convert
from gradus.data._datasets import (
    ConcatDataset as ConcatDataset, Dataset as Dataset, IterableDataset as IterableDataset, StackDataset as StackDataset,
    Subset as Subset, TensorDataset as TensorDataset, random_split as random_split)
from gradus.data._loader import DataLoader as DataLoader
from gradus.data._random import get_sample_rng as get_sample_rng
from gradus.data._samplers import (
    BatchSampler as BatchSampler, BucketedSampler as BucketedSampler, DistributedSampler as DistributedSampler,
    RandomSampler as RandomSampler, Sampler as Sampler, SequentialSampler as SequentialSampler,
    StratifiedSampler as StratifiedSampler, SubsetRandomSampler as SubsetRandomSampler,
    WeightedRandomSampler as WeightedRandomSampler)
from gradus.data._source import WorkerInfo as WorkerInfo, get_worker_info as get_worker_info

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gradus.data._rng import SampleRng as SampleRng

    def __getattr__(name: str) -> type[Any]: ...  # built-in datasets

_same_files = {"FashionMNIST": "MNIST", "KMNIST": "MNIST"}  # other data in the files of

if not TYPE_CHECKING:

    def __getattr__(name):
        record = _same_files.get(name, name)
        if record in _datasets.records:
            found = _datasets.record_class(record)
            if name != record:
                found = type(name, (found,), {"__module__": __name__})
            globals()[name] = found
            return found
        if name == "SampleRng":
            from gradus.data._rng import SampleRng

            return SampleRng
        raise AttributeError(f"module 'gradus.data' has no attribute '{name}'")


def __dir__() -> list[str]:
    return sorted(set(globals()) | set(dir(_datasets.records)) | set(_same_files) | {"SampleRng"})
