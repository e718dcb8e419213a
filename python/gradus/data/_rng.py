"""The random numbers of a sample as an object."""
from __future__ import annotations

import random as _random
from typing import Any

from gradus import _core


class SampleRng(_random.Random):
    """The random numbers of a sample, with all methods of Python's random.Random.

    ``numpy.random.default_rng(rng.getrandbits(64))`` makes a generator of NumPy from it.
    """

    _state: bytearray

    def __new__(cls, state: bytearray) -> SampleRng:
        return super().__new__(cls, 0)  # type: ignore[call-arg]

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
