"""torch.utils.data's names: those of gradus.data.

Batches are as in PyTorch, but a tuple of tensors stays a tuple (PyTorch makes a list of it), Python's floats become float32, and
the seed of a loader without a generator follows from gd.manual_seed.
"""
from gradus.data import (
    BatchSampler as BatchSampler, ConcatDataset as ConcatDataset, DataLoader as DataLoader, Dataset as Dataset,
    DistributedSampler as DistributedSampler, IterableDataset as IterableDataset, RandomSampler as RandomSampler,
    Sampler as Sampler, SequentialSampler as SequentialSampler, StackDataset as StackDataset, Subset as Subset,
    SubsetRandomSampler as SubsetRandomSampler, TensorDataset as TensorDataset, WeightedRandomSampler as WeightedRandomSampler,
    default_collate as default_collate, default_convert as default_convert, get_worker_info as get_worker_info,
    random_split as random_split)
