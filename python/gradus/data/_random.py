"""Random numbers of samples: a function of the loader's seed, the epoch and the number of the sample.

A sample draws the same numbers in every kind and number of workers. The numbers of this thread's sample are kept as a
pair (key, stream), and become an object when someone asks for it.
"""
from __future__ import annotations

import _thread
import random as _random
from typing import Any

from gradus import _core


class _Current(_thread._local):
    key: int | None = None  # of the loader's seed and the epoch; None: this thread makes no sample
    stream = 0
    state: bytearray | None = None
    rng: SampleRng | None = None


_current = _Current()


class SampleRng(_random.Random):
    """The random numbers of a sample, with all methods of Python's random.Random.

    ``numpy.random.default_rng(rng.getrandbits(64))`` makes a generator of NumPy from it.
    """

    _state: bytearray

    def __new__(cls, state: bytearray) -> SampleRng:
        return super().__new__(cls, 0)

    def __init__(self, state: bytearray) -> None:
        self._state = state
        self.gauss_next = None

    def random(self) -> float:
        """A number in [0, 1)."""
        return _core._random_uniform(self._state)

    def getrandbits(self, k: int) -> int:
        """A number of k random bits."""
        if k < 0:
            raise ValueError("the number of bits must not be negative")
        words = (k + 31) // 32
        bits = 0
        for _ in range(words):
            bits = bits << 32 | _core._random_word(self._state)
        return bits >> (32 * words - k)

    def seed(self, *args: Any, **names: Any) -> None:
        """The numbers of a sample follow from the loader's seed; this changes nothing."""

    def getstate(self) -> Any:
        """The state, for setstate."""
        return bytes(self._state), self.gauss_next

    def setstate(self, state: Any) -> None:
        """Returns to a state of getstate()."""
        self._state[:], self.gauss_next = state

    def __reduce__(self) -> Any:
        return _restore, (bytes(self._state),)


def _restore(state: bytes) -> SampleRng:
    return SampleRng(bytearray(state))


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
    if _current.key is None:
        return SampleRng(current_state())
    if _current.rng is None:
        _current.rng = SampleRng(current_state())
    return _current.rng


def takes_rng(function: Any) -> bool:
    """Whether a function has an argument `rng`."""
    code = getattr(getattr(function, "__func__", function), "__code__", None)
    return code is not None and "rng" in code.co_varnames[:code.co_argcount + code.co_kwonlyargcount]
