"""Samplers: which samples an epoch has, in which order.

A sampler is one of the library's; an object with a function order(seed, epoch) that returns a sequence of numbers, so that an
epoch can be repeated and resumed; or any object with __iter__, as PyTorch's.
"""
from __future__ import annotations

import _thread
from typing import Any, Iterator, Sequence

from gradus import _core


def shuffled(count: int, seed: int, epoch: int = 0) -> Any:
    """The numbers below `count` in a random order, as a tensor."""
    return _core._sampler_order(None, count, True, seed & (2**64 - 1), epoch)


def seed_of(generator: Any, seed: int | None = None) -> int:
    """The seed that a generator of PyTorch, a number or neither gives: then one follows from gd.manual_seed."""
    if seed is None and generator is not None:
        seed = generator.initial_seed() if hasattr(generator, "initial_seed") else int(generator)
    if seed is None:
        first, call = _core.get_rng_state()
        _core.set_rng_state((first, call + 1))
        seed = _core._random_word(_core._random_new(first, call)) << 32 | call & (2**32 - 1)
    return seed & (2**64 - 1)


class Sampler:
    """Base of samplers. A subclass has __iter__, which yields numbers of samples, and __len__."""

    def __init__(self, data_source: Any = None) -> None:
        pass

    def __iter__(self) -> Iterator[Any]:
        raise NotImplementedError(f"{type(self).__name__} has no function __iter__")


class _Built(_core.Sampler, Sampler):
    """A sampler of the library, for a dataset with `_samples` samples."""

    _samples: int
    _seed = 0

    def __iter__(self) -> Iterator[int]:
        self._epoch = getattr(self, "_epoch", -1) + 1
        return iter(_core._sampler_order(self, self._samples, False, self._seed, self._epoch).tolist()
                    if self._samples else [])

    def __len__(self) -> int:
        return self._samples


class _Ordered(Sampler):
    """A sampler with a function order(seed, epoch)."""

    _seed: int | None = None

    def order(self, seed: int, epoch: int) -> Sequence[int]:
        """The numbers of the samples of an epoch."""
        raise NotImplementedError

    def __iter__(self) -> Iterator[int]:
        if self._seed is None:
            self._seed = seed_of(None)
        self._epoch = getattr(self, "_epoch", -1) + 1
        return iter(self.order(self._seed, self._epoch))


class SequentialSampler(_Ordered):
    """All samples in their order."""

    def __init__(self, data_source: Any) -> None:
        self.data_source = data_source

    def order(self, seed: int, epoch: int) -> Sequence[int]:
        return range(len(self.data_source))

    def __len__(self) -> int:
        return len(self.data_source)


class RandomSampler(_Ordered):
    """All samples in random order, or `num_samples` of them; with replacement a sample may come several times."""

    def __init__(self, data_source: Any, replacement: bool = False, num_samples: int | None = None, generator: Any = None) -> None:
        self.data_source, self.replacement, self._count = data_source, replacement, num_samples
        self._seed = seed_of(generator) if generator is not None else None
        if num_samples is not None and num_samples < 1:
            raise _core.ArgumentError(f"num_samples is {num_samples}; it must be at least 1")

    def _is_shuffle(self, dataset: Any) -> bool:
        """Whether shuffle=True of a loader is the same."""
        return self.data_source is dataset and not self.replacement and self._count is None and self._seed is None

    @property
    def num_samples(self) -> int:
        """The samples in an epoch."""
        return len(self.data_source) if self._count is None else self._count

    def order(self, seed: int, epoch: int) -> Sequence[int]:
        n, seed = len(self.data_source), seed if self._seed is None else self._seed
        if n == 0:
            return []
        if self.replacement:
            from gradus.data._rng import SampleRng

            rng = SampleRng(_core._random_new(seed, epoch))
            return [rng.randrange(n) for _ in range(self.num_samples)]
        rounds = -(-self.num_samples // n)
        numbers: list[int] = []
        for i in range(rounds):
            numbers += shuffled(n, seed, epoch * rounds + i).tolist()
        return numbers[:self.num_samples]

    def __len__(self) -> int:
        return self.num_samples


class SubsetRandomSampler(_Ordered):
    """These samples in random order."""

    def __init__(self, indices: Any, generator: Any = None) -> None:
        self.indices = [int(i) for i in indices]
        self._seed = seed_of(generator) if generator is not None else None

    def order(self, seed: int, epoch: int) -> Sequence[int]:
        seed = seed if self._seed is None else self._seed
        return [self.indices[i] for i in shuffled(len(self.indices), seed, epoch).tolist()] if self.indices else []

    def __len__(self) -> int:
        return len(self.indices)


class WeightedRandomSampler(_Built):
    """Draws sample i with a probability that is proportional to weights[i]."""

    def __init__(self, weights: Any, num_samples: int | None = None, replacement: bool = True, generator: Any = None) -> None:
        self._samples = len(weights)
        self._count = self._samples if num_samples is None else int(num_samples)
        if self._count < 1:
            raise _core.ArgumentError(f"num_samples is {self._count}; it must be at least 1")
        self._seed = seed_of(generator)
        _core._sampler_weighted(self, weights, self._count, bool(replacement))

    def __len__(self) -> int:
        return self._count


class StratifiedSampler(_Built):
    """A random order in which every part has the proportions of classes of the dataset; `classes` has one for each sample."""

    def __init__(self, classes: Any, generator: Any = None) -> None:
        self._samples, self._seed = len(classes), seed_of(generator)
        _core._sampler_stratified(self, classes)


class BucketedSampler(_Built):
    """Batches of samples with like lengths, which need little padding; `pool` batches are sorted together, 0: all."""

    def __init__(self, lengths: Any, pool: int = 100, generator: Any = None) -> None:
        self._samples, self._seed = len(lengths), seed_of(generator)
        _core._sampler_bucketed(self, lengths, pool)


class DistributedSampler(_Built):
    """The samples of process number `rank` of `num_replicas`. All have the same number of samples."""

    def __init__(self, dataset: Any, num_replicas: int, rank: int, shuffle: bool = True, seed: int = 0,
                 drop_last: bool = False) -> None:
        self._samples, self._seed = len(dataset), seed
        _core._sampler_distributed(self, rank, num_replicas, shuffle, drop_last)
        self._count = self._samples // num_replicas if drop_last else -(-self._samples // num_replicas)

    def set_epoch(self, epoch: int) -> None:
        """The next epoch; a DataLoader counts epochs itself."""
        self._epoch = epoch - 1

    def __len__(self) -> int:
        return self._count


class BatchSampler(Sampler):
    """Lists of batch_size numbers of a sampler."""

    def __init__(self, sampler: Any, batch_size: int, drop_last: bool = False) -> None:
        if batch_size < 1:
            raise _core.ArgumentError(f"batch_size is {batch_size}; it must be at least 1")
        self.sampler, self.batch_size, self.drop_last = sampler, batch_size, drop_last

    def _cut(self, numbers: Sequence[int]) -> list[list[int]]:
        size = self.batch_size
        batches = [list(numbers[i:i + size]) for i in range(0, len(numbers), size)]
        return batches[:-1] if self.drop_last and batches and len(batches[-1]) < size else batches

    def order(self, seed: int, epoch: int) -> list[list[int]]:
        """The batches of an epoch."""
        return self._cut(order_of(self.sampler, seed, epoch))

    def __iter__(self) -> Iterator[list[int]]:
        return iter(self._cut(list(self.sampler)))

    def __len__(self) -> int:
        n = len(self.sampler)
        return n // self.batch_size if self.drop_last else -(-n // self.batch_size)


def order_of(sampler: Any, seed: int, epoch: int) -> Sequence[Any]:
    """The order of an epoch."""
    return sampler.order(seed, epoch) if hasattr(sampler, "order") else list(sampler)


class Order:
    """The tables of a sampler of the program, which the library's loader asks for."""

    def __init__(self, sampler: Any, batches: bool) -> None:
        self.sampler, self.batches = sampler, batches
        self.repeats = hasattr(sampler, "order")
        self._lock = _thread.allocate_lock()
        self._tables: dict[int, list[Any]] = {}

    def table(self, epoch: int, seed: int) -> list[Any]:
        """The numbers of the samples in an epoch; for a batch sampler lists of them."""
        found = self._tables.get(epoch)
        if found is not None:  # without the lock, which a fork could find taken
            return found
        with self._lock:
            found = self._tables.get(epoch)
            if found is None:
                given = order_of(self.sampler, seed, epoch)
                found = [[int(i) for i in batch] for batch in given] if self.batches else [int(i) for i in given]
                self._tables = {e: t for e, t in self._tables.items() if e == epoch - 1} | {epoch: found}
            return found

    def set(self, epoch: int, table: list[Any]) -> None:
        """Resumes an epoch."""
        self._tables = {epoch: table}

    def forget(self) -> None:
        """The dataset or the sampler has changed."""
        self._tables = {}
