"""Random numbers of samples: a function of the loader's seed, the epoch and the number of the sample.

A sample draws the same numbers in every kind and number of workers. The numbers of this thread's sample are kept as a
pair (key, stream), and become an object when someone asks for it.
"""
from __future__ import annotations

import _thread
from typing import Any

from gradus import _core

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gradus.data._rng import SampleRng


class _Current(_thread._local):
    key: int | None = None  # of the loader's seed and the epoch; None: this thread makes no sample
    stream = 0
    state: bytearray | None = None
    rng: SampleRng | None = None


_current = _Current()


def begin_sample(key: int, stream: int) -> None:
    """This thread makes a sample from now on."""
    current = _current
    current.key, current.stream, current.state, current.rng = key, stream, None, None


def end_samples() -> None:
    """This thread makes no sample any more."""
    _current.key = None
    _current.state = _current.rng = None


def current() -> tuple[int, int] | None:
    """The sample that this thread makes, for nested calls."""
    return None if _current.key is None else (_current.key, _current.stream)


def sample_key() -> int:
    """The key of random numbers of this thread's samples; 0 outside of a loader."""
    return _current.key or 0


def current_state() -> bytearray:
    """The random numbers that a transform draws from: those of the sample, or of the process (gd.manual_seed)."""
    if _current.key is None:
        seed, call = _core.get_rng_state()
        _core.set_rng_state((seed, call + 1))
        return _core._random_new(seed, call)
    if _current.state is None:
        _current.state = _core._random_new(_current.key, _current.stream)
    return _current.state


def get_sample_rng() -> SampleRng:
    """The random numbers of the sample that is being made, for datasets and what they call.

        class Noisy(gd.data.Dataset):
            def __getitem__(self, i):
                return self.x[i] + gd.data.get_sample_rng().gauss(0, 0.1)

    They depend on the loader's seed, the epoch and the number of the sample only. A __getitem__ or a function of map with an
    argument `rng` gets them as that. Outside of a loader they follow from gd.manual_seed.
    """
    rng = _current.rng
    if rng is None:
        from gradus.data._rng import SampleRng  # Python's random takes a while to import

        rng = SampleRng(current_state())
        if _current.key is not None:
            _current.rng = rng
    return rng


def takes_rng(function: Any) -> bool:
    """Whether a function has an argument `rng`."""
    code = getattr(getattr(function, "__func__", function), "__code__", None)
    return code is not None and "rng" in code.co_varnames[:code.co_argcount + code.co_kwonlyargcount]


def get_sample(dataset: Any, index: int) -> Any:
    """A sample of any dataset; a __getitem__ with an argument `rng` gets the random numbers."""
    if takes_rng(type(dataset).__getitem__):
        return dataset.__getitem__(index, rng=get_sample_rng())
    return dataset[index]
