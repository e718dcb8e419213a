"""Where the batches of Python datasets come from: the library's loader calls a Source for each batch."""
from __future__ import annotations

import _thread
from typing import Any, Callable, NamedTuple

from gradus import _core
from gradus._core import Tensor
from gradus.data import _random
from gradus.data._collate import convert, put, take

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gradus.data._processes import Pool

MOST_TENSORS = 16  # in a batch of the library; more stay here


class Stopped(Exception):
    """The loader ends, and nobody waits for the batch."""


class WorkerInfo(NamedTuple):
    """The worker that runs this code: its number, how many there are, the loader's seed and its dataset."""
    id: int
    num_workers: int
    seed: int
    dataset: Any


class _Local(_thread._local):
    info: WorkerInfo | None = None


_local = _Local()


def get_worker_info() -> WorkerInfo | None:
    """The worker that runs this code; None where there is none."""
    return _local.info


def set_worker(number: int, fetcher: Fetcher, init: Callable[[int], Any] | None) -> None:
    """This thread or process is a worker from now on."""
    _local.info = WorkerInfo(number, fetcher.num_workers, fetcher.seed, fetcher.dataset)
    if init is not None:
        init(number)


class Fetcher:
    """Makes batches of a dataset: on the caller's thread, on workers, or in processes, which get a copy."""

    def __init__(self, dataset: Any, collate: Callable[[Any], Any], single: bool, num_workers: int, seed: int) -> None:
        self.dataset, self.collate = dataset, collate
        self.single = single  # no batches: samples as they are
        self.num_workers, self.seed = num_workers, seed

    def sample(self, number: int, key: int) -> Any:
        """One sample. An exception names it."""
        _random.begin_sample(key, number)
        try:
            return _random.get_sample(self.dataset, number)
        except Exception as failure:
            if isinstance(failure, StopIteration):  # it would end the training loop
                failure = RuntimeError("__getitem__ raised StopIteration")
            failure.add_note(f"This was sample {number} of {type(self.dataset).__name__}.")
            raise failure

    def fetch(self, numbers: list[int], key: int, source: Source | None = None) -> tuple[list[Tensor], Any]:
        """The tensors of a batch, and what is left of it without them."""
        outer = _random.current()
        samples = []
        try:
            for number in numbers:
                if source is not None and source.stopping:
                    raise Stopped
                samples.append(self.sample(number, key))
        finally:
            _random.begin_sample(*outer) if outer else _random.end_samples()
        tensors: list[Tensor] = []
        try:
            batch = convert(self.collate(samples[0] if self.single else samples))
        except Exception as failure:
            shown = ", ".join(map(str, numbers[:8])) + (", ..." if len(numbers) > 8 else "")
            failure.add_note(f"This was the batch of the samples {shown} of {type(self.dataset).__name__}.")
            raise
        return tensors, take(batch, tensors)


class _Slot(NamedTuple):
    epoch: int
    batch: int
    structure: Any
    extra: list[Tensor]
    failure: BaseException | None


class Source:
    """What the library's loader calls. It keeps what is no tensor in the latest batches."""

    def __init__(self, fetcher: Fetcher, room: int, batches: Any, pool: Pool | None, init: Callable[[int], Any] | None) -> None:
        self.fetcher, self.batches, self.pool, self.init = fetcher, batches, pool, init
        self.name = type(fetcher.dataset).__name__
        self._slots: list[_Slot | None] = [None] * room  # one more than the library has batches in advance
        self._started = 0
        self.stopping = False

    def make(self, numbers: list[int], key: int, epoch: int, batch: int) -> list[Tensor]:
        """The tensors of batch `batch` of an epoch, which has these samples. Called on any thread."""
        try:
            if self.batches is not None:  # the samples are batches of a batch sampler
                numbers = self.batches.table(epoch, self.fetcher.seed)[numbers[0]]
            tensors, structure = self._fetch(numbers, key)
            self._store(_Slot(epoch, batch, structure, tensors[MOST_TENSORS:], None))
            return tensors[:MOST_TENSORS] or [_core.zeros(1)]  # the library wants a tensor
        except BaseException as failure:
            self._store(_Slot(epoch, batch, None, [], failure))
            raise

    def _fetch(self, numbers: list[int], key: int) -> tuple[list[Tensor], Any]:
        if self.pool is not None and self.pool.is_ours():
            return self.pool.fetch(numbers, key, self)
        if self.fetcher.num_workers and _local.info is None and self.pool is None:
            self._started += 1
            set_worker((self._started - 1) % self.fetcher.num_workers, self.fetcher, self.init)
        return self.fetcher.fetch(numbers, key, self)

    def _store(self, slot: _Slot) -> None:
        at = slot.batch % len(self._slots)
        old = self._slots[at]
        self._slots[at] = slot
        if old is not None and old.failure is not None:
            _core._forget_exception(old.failure)

    def find(self, epoch: int, batch: int) -> _Slot | None:
        """What is there of a batch that the library has given."""
        slot = self._slots[batch % len(self._slots)]
        return slot if slot is not None and (slot.epoch, slot.batch) == (epoch, batch) else None

    def take_failure(self, epoch: int, batch: int) -> BaseException | None:
        """The exception in place of a batch. It is the caller's then: its traceback may hold this loader."""
        slot = self.find(epoch, batch)
        if slot is None or slot.failure is None:
            return None
        self._slots[batch % len(self._slots)] = None
        _core._forget_exception(slot.failure)
        return slot.failure

    def restore(self, slot: _Slot, tensors: tuple[Tensor, ...], device: Any) -> Any:
        """The batch as the dataset made it."""
        extra = [t.to(device) for t in slot.extra] if device is not None else slot.extra
        return put(slot.structure, [*tensors, *extra])

    def clear(self) -> None:
        """Frees what is left of batches that nobody will ask for."""
        for i, slot in enumerate(self._slots):
            self._slots[i] = None
            if slot is not None and slot.failure is not None:
                _core._forget_exception(slot.failure)

    def warn_about_gil(self, percent: int) -> None:
        """Called once by the library, after it has measured."""
        import logging

        logging.getLogger("gradus").warning(
            "the workers of a loader of %s waited for Python's lock (GIL) for %d %% of their time, because its __getitem__ is "
            "mostly Python code, which runs on one thread at a time; DataLoader(processes=True) runs it in processes",
            self.name, percent)
