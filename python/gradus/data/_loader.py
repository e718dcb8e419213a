"""gradus.data.DataLoader: batches of a dataset, by the library's loader."""
from __future__ import annotations

import weakref
from typing import Any, Callable, Iterator

from gradus import _core
from gradus.data._collate import Collate, convert
from gradus.data._datasets import is_built
from gradus.data._samplers import Order, RandomSampler, SequentialSampler, seed_of
from gradus.data._source import Fetcher, Source

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gradus.data._processes import Pool

_live: weakref.WeakSet[Any] = weakref.WeakSet()
_registered = False


def _stop_all() -> None:
    """At the end of the program: workers may run Python code no longer."""
    for loader in list(_live):
        loader._stop()


def _length(o: Any, what: str) -> int:
    try:
        n = len(o)
    except TypeError:
        raise TypeError(f"the {what} is a {type(o).__name__}, which has no length; it needs __len__ and __getitem__"
                        if what == "dataset" else f"the {what} is a {type(o).__name__}, which has no length") from None
    return n


def _is_stream(dataset: Any) -> bool:
    if any(cls.__name__ == "IterableDataset" for cls in type(dataset).__mro__):  # PyTorch's, too
        return True
    return hasattr(dataset, "__iter__") and not (hasattr(dataset, "__len__") and hasattr(type(dataset), "__getitem__"))


class _Part(_core.Loader):
    """A loader of the library, and what belongs to it."""

    _source: Source | None = None
    _order: Order | None = None
    _count = 0  # positions of the order

    def _stop(self) -> None:
        source = self._source
        if source is not None:
            source.stopping = True
        try:
            _core._loader_stop(self)
        finally:
            if source is not None:
                source.stopping = False
                source.clear()


class DataLoader(_Part):
    """Batches of a dataset.

        train = gd.data.DataLoader(gd.data.MNIST("mnist"), batch_size=64, shuffle=True, num_workers=2)
        for images, classes in train:
            ...

    The dataset is a built-in one, which threads of the library read without Python, or any object with __len__ and
    __getitem__. Its samples may be nested tuples, lists and dicts of tensors, arrays, images, numbers and texts; a batch has
    the same structure.

    num_workers: threads that load batches in advance, or processes with processes=True: threads are right for files, images
    and NumPy, which release the GIL, processes for work in Python itself. Batches are the same for either kind and any number.
    seed, generator: of the order and of the random numbers of samples; without them they follow from gd.manual_seed.
    batch_size=None: samples instead of batches. collate_fn: makes a batch of a list of samples. pad=True: extends tensors to
    the largest of the batch. device: where batches are. targets, weights: how many tensors of a batch are that, for fit.
    pin_memory is accepted and needs no setting: batches for a GPU pass through pinned memory.
    """

    def __init__(self, dataset: Any, batch_size: int | None = 1, shuffle: bool | None = False, sampler: Any = None,
                 batch_sampler: Any = None, num_workers: int = 0, collate_fn: Callable[[Any], Any] | None = None,
                 pin_memory: bool = False, drop_last: bool = False, timeout: float = 0,
                 worker_init_fn: Callable[[int], Any] | None = None, multiprocessing_context: Any = None, generator: Any = None,
                 *, prefetch_factor: int | None = None, persistent_workers: bool = False, pin_memory_device: str = "",
                 in_order: bool = True, processes: bool = False, device: Any = None, pad: bool = False, pad_value: float = 0,
                 seed: int | None = None, targets: int = 1, weights: int = 0) -> None:
        self.dataset, self.batch_size, self.num_workers = dataset, batch_size, num_workers
        self.sampler, self.batch_sampler, self.drop_last, self.shuffle = sampler, batch_sampler, drop_last, bool(shuffle)
        self.collate_fn, self.device, self.processes = collate_fn, device, processes
        self.prefetch_factor = 2 if prefetch_factor is None else prefetch_factor
        self.seed = seed_of(generator, seed)
        self._pad, self._kinds = (pad, pad_value), (targets, weights)
        self._epoch, self._resume = 0, False  # the next epoch; it begins in its middle
        self._active: weakref.ref[_Iterator] | None = None
        self._stream = _is_stream(dataset)
        self._check(timeout)
        if not self._stream and not hasattr(type(dataset), "__getitem__"):
            raise TypeError(f"the dataset is a {type(dataset).__name__}; it needs __len__ and __getitem__")
        self._fetcher = Fetcher(dataset, self._collate(), batch_size is None and batch_sampler is None, num_workers, self.seed) \
            if not self._stream else None
        self._init = worker_init_fn
        self._pool: Pool | None = None
        if processes and not self._stream and not self._is_plain():
            assert self._fetcher is not None
            from gradus.data._processes import Pool

            self._pool = Pool(self._fetcher, num_workers, timeout, worker_init_fn, multiprocessing_context, persistent_workers)
        if not self._stream:
            self._build(self)

    def _check(self, timeout: float) -> None:
        ordered = self.sampler is not None or self.batch_sampler is not None
        bad = None
        if self.batch_size is not None and self.batch_size < 1:
            bad = f"batch_size is {self.batch_size}; it must be at least 1, or None for samples"
        elif self.num_workers < 0:
            bad = f"num_workers is {self.num_workers}; it must not be negative"
        elif self.processes and self.num_workers == 0:
            bad = "processes=True needs num_workers, the number of processes"
        elif self.shuffle and ordered:
            bad = "shuffle=True and a sampler both give an order; use one of them"
        elif self.batch_sampler is not None and (self.batch_size not in (1, None) or self.sampler is not None or self.drop_last):
            bad = "a batch_sampler stands for batch_size, shuffle, sampler and drop_last; give it alone"
        elif self.batch_size is None and self.batch_sampler is None and self.drop_last:
            bad = "drop_last needs a batch_size"
        elif self._pad[0] and self.collate_fn is not None:
            bad = "pad=True is for stacking, which collate_fn replaces; use one of them"
        elif self._stream and (ordered or self.shuffle):
            bad = "a dataset that is a stream has an order of its own: shuffle and samplers are for datasets with __getitem__"
        elif timeout < 0:
            bad = f"timeout is {timeout}; it must not be negative"
        if bad:
            raise _core.ArgumentError("DataLoader: " + bad)

    def _collate(self) -> Callable[[Any], Any]:
        if self.collate_fn is not None:
            return self.collate_fn
        return convert if self.batch_size is None and self.batch_sampler is None else Collate(*self._pad)

    def _is_plain(self) -> bool:
        """Whether the library makes the batches alone."""
        return (is_built(self.dataset) and self.collate_fn is None and self.batch_sampler is None
                and self.batch_size is not None)

    def _made_for(self) -> tuple[int, ...]:
        """The lengths that a loader of the library is made for."""
        given = self.batch_sampler if self.batch_sampler is not None else self.sampler
        lengths = (_length(self.dataset, "dataset"),)
        return lengths if given is None or not hasattr(given, "__len__") else (*lengths, len(given))

    def _build(self, part: _Part, positions: int | None = None) -> None:
        """Gives a part its loader. `positions`: of an order whose length is not what its __len__ says."""
        global _registered
        if not _registered:
            import atexit

            atexit.register(_stop_all)
            _registered = True
        self._lengths = self._made_for()
        count, shuffle, sampler = self._lengths[0], self.shuffle, self.sampler
        part._order = None
        if isinstance(sampler, RandomSampler) and sampler._is_shuffle(self.dataset):
            sampler, shuffle = None, True
        elif isinstance(sampler, SequentialSampler) and sampler.data_source is self.dataset:
            sampler = None
        batches = self.batch_sampler is not None
        if batches or (sampler is not None and not isinstance(sampler, _core.Sampler)):
            part._order = Order(self.batch_sampler if batches else sampler, batches)
            if positions is None:
                positions = self._lengths[1] if len(self._lengths) > 1 else len(part._order.table(self._epoch, self.seed))
        part._count = positions or 0
        if batches:
            count = part._count
        part._source = None
        if not self._is_plain():
            assert self._fetcher is not None
            room = max(1, self.num_workers * self.prefetch_factor) + 1
            part._source = Source(self._fetcher, room, part._order if batches else None, self._pool, self._init)
        order: Any = part._order if not batches and part._order is not None else sampler if not batches else None
        size = 1 if batches or self.batch_size is None else self.batch_size
        _core._loader_init(
            part, None if part._source else self.dataset, part._source, count, order, positions or 0,
            (size, shuffle, self.seed, self.num_workers, self.prefetch_factor, self.drop_last, *self._kinds, self._pad[0]
             and part._source is None, self._pad[1], False, self.device, self._pool is None and self.num_workers > 1))
        _live.add(part)

    # --- batches --------------------------------------------------------------------------------------

    def __len__(self) -> int:
        """The number of batches in an epoch."""
        if self._stream:
            n = _length(self.dataset, "dataset")
            return n if self.batch_size is None else n // self.batch_size if self.drop_last else -(-n // self.batch_size)
        self._refresh()
        return _core._loader_batches(self)

    def _running(self) -> _Iterator | None:
        found = self._active() if self._active is not None else None
        return found if found is not None and not found._done else None

    def _refresh(self) -> None:
        """Follows a dataset or a sampler whose length has changed."""
        if self._lengths != self._made_for() and self._running() is None:
            epoch, batch = _core._loader_tell(self)
            self._epoch = max(self._epoch, epoch + (batch > 0))
            self._build(self)

    def __iter__(self) -> Iterator[Any]:
        if self._stream:
            return self._read_stream()
        part: _Part = self
        if self._running() is not None:  # two iterators at once
            part = _Part()
            self._build(part)
            epoch, batch = self._epoch, 0
        else:
            self._refresh()
            epoch, batch = _core._loader_tell(self)
            if not self._resume:
                epoch, batch = max(self._epoch, epoch + (batch > 0)), 0
            self._resume = False
        self._epoch = epoch + 1
        self._check_order(part, epoch)
        if self._pool is not None and self._pool.is_ours():
            self._pool.start()
        _core._loader_seek(part, epoch, batch)
        iterator = _Iterator(self, part)
        if part is self:
            self._active = weakref.ref(iterator)
        return iterator

    def _check_order(self, part: _Part, epoch: int) -> None:
        """A sampler may give another number of samples than its length."""
        order = part._order
        if order is None:
            return
        n = len(order.table(epoch, self.seed))
        expected = n if order.batches or self.batch_size is None else (
            n // self.batch_size if self.drop_last else -(-n // self.batch_size))
        if expected != _core._loader_batches(part) or (not order.batches and n != part._count):
            self._build(part, n)
            assert part._order is not None
            part._order.set(epoch, order.table(epoch, self.seed))

    def _read_stream(self) -> Iterator[Any]:
        samples, collate = iter(self.dataset), self._collate()
        if self.batch_size is None:
            for sample in samples:
                yield self._moved(collate(sample))
            return
        batch = []
        for sample in samples:
            batch.append(sample)
            if len(batch) == self.batch_size:
                yield self._moved(convert(collate(batch)))
                batch = []
        if batch and not self.drop_last:
            yield self._moved(convert(collate(batch)))

    def _moved(self, batch: Any) -> Any:
        from gradus.data._collate import put, take

        if self.device is None:
            return batch
        tensors: list[Any] = []
        rest = take(batch, tensors)
        return put(rest, [t.to(self.device) for t in tensors])

    def close(self) -> None:
        """Ends the workers. The next iteration starts them again."""
        if not self._stream:
            self._stop()
        self._close_pool()

    def _close_pool(self) -> None:
        if self._pool is not None:
            self._pool.close()

    def __repr__(self) -> str:
        return f"DataLoader({self.dataset!r}, batch_size={self.batch_size})"

    # --- state ----------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """The position: seed, epoch and the next batch of it, also in the middle of an epoch."""
        if self._stream:
            raise _core.UnsupportedError("a dataset that is a stream has no position to return to")
        epoch, batch = _core._loader_tell(self)
        if self._running() is None and not self._resume:  # the next iteration begins an epoch
            epoch, batch = max(self._epoch, epoch + (batch > 0)), 0
        state: dict[str, Any] = {"seed": self.seed, "epoch": epoch, "batch": batch, "samples": self._lengths[0],
                                 "batch_size": self.batch_size}
        if self._order is not None and not self._order.repeats and batch > 0:
            state["order"] = self._order.table(epoch, self.seed)  # the sampler may give another one next time
        if hasattr(self.sampler, "state_dict"):
            state["sampler"] = self.sampler.state_dict()
        return state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continues where the state was saved; the next iteration begins with the batch after it."""
        state = dict(state_dict)
        self._refresh()
        for name, own in (("samples", self._lengths[0]), ("batch_size", self.batch_size)):
            if state[name] != own:
                raise _core.StateError(f"the loader has {name} = {own}, and the one that was saved had {state[name]}")
        self.close()
        if hasattr(self.sampler, "load_state_dict") and "sampler" in state:
            self.sampler.load_state_dict(state["sampler"])
        self.seed, self._epoch = state["seed"], state["epoch"]
        if self._fetcher is not None:
            self._fetcher.seed = self.seed
        order = state.get("order")
        self._active = None
        self._build(self, len(order) if order is not None else None)
        if order is not None and self._order is not None:
            self._order.set(state["epoch"], order)
        self._resume = True
        _core._loader_seek(self, state["epoch"], state["batch"])

    def __reduce__(self) -> Any:
        raise TypeError("a DataLoader cannot be pickled; pickle its dataset and its state_dict()")


class _Iterator:
    """The batches of an epoch."""

    def __init__(self, loader: DataLoader, part: _Part) -> None:
        self._loader, self._part, self._done = loader, part, False

    def __iter__(self) -> _Iterator:
        return self

    def __len__(self) -> int:
        """The batches that are left."""
        return 0 if self._done else _core._loader_batches(self._part) - _core._loader_tell(self._part)[1]

    def __next__(self) -> Any:
        if self._done:
            raise StopIteration
        part, failure = self._part, None
        source = part._source
        try:
            tensors = _core._loader_next(part)
        except Exception:
            epoch, batch = _core._loader_tell(part)
            failure = source.take_failure(epoch, batch - 1) if source is not None else None
            if failure is None:
                raise
        if failure is not None:
            try:
                raise failure
            finally:
                del failure
        if tensors is None:
            self._end(False)
            raise StopIteration
        if source is None:
            return tensors
        epoch, batch = _core._loader_tell(part)
        slot = source.find(epoch, batch - 1)
        if slot is None:  # it cannot happen
            raise _core.StateError("a batch of the loader was lost")
        return source.restore(slot, tensors, self._loader.device)

    def _end(self, early: bool) -> None:
        self._done = True
        loader, part = self._loader, self._part
        if early:
            part._stop()
        elif part._source is not None:
            part._source.clear()
        pool = loader._pool
        if pool is not None and not pool.persistent and loader._running() is None:
            loader._close_pool()

    def __del__(self) -> None:
        if not self._done:
            try:
                self._end(True)
            except Exception:
                pass  # the interpreter ends
