"""RNN, LSTM, GRU and their cells: states are one argument and one result."""
from __future__ import annotations

from typing import Any

from gradus._core import Tensor
from gradus.nn import _layers
from gradus.nn._adapted import Adapted


class _Recurrent(Adapted):
    def flatten_parameters(self) -> None:
        """Does nothing: the library packs weights when it needs that."""


class _OneState(_Recurrent):
    def _flat(self, input: Tensor, hx: Tensor | None = None, *, lengths: Any = None) -> tuple[Any, ...]:
        return input, hx, lengths

    def _from_library(self, input: Tensor, h0: Tensor | None = None, lengths: Any = None) -> Any:
        return self.forward(input, h0) if lengths is None else self.forward(input, h0, lengths=lengths)


class RNN(_OneState, _layers.RNN):
    """Elman recurrent layers: y, h = rnn(x, h0). x is (T, N, input_size), with batch_first (N, T, input_size); `lengths`
    (N) are the numbers of real steps."""


class GRU(_OneState, _layers.GRU):
    """Gated recurrent units: y, h = gru(x, h0). x is (T, N, input_size), with batch_first (N, T, input_size); `lengths`
    (N) are the numbers of real steps."""


class LSTM(_Recurrent, _layers.LSTM):
    """Long short-term memory: y, (h, c) = lstm(x, (h0, c0)). x is (T, N, input_size), with batch_first
    (N, T, input_size); `lengths` (N) are the numbers of real steps."""

    def _flat(self, input: Tensor, hx: tuple[Tensor, Tensor] | None = None, *, lengths: Any = None) -> tuple[Any, ...]:
        h, c = (None, None) if hx is None else hx
        return input, h, c, lengths

    def _results(self, outputs: Any) -> Any:
        y, h, c = outputs
        return y, (h, c)

    def _from_library(self, input: Tensor, h0: Tensor | None = None, c0: Tensor | None = None,
                      lengths: Any = None) -> Any:
        hx = None if h0 is None else (h0, c0)
        return self.forward(input, hx) if lengths is None else self.forward(input, hx, lengths=lengths)


class LSTMCell(Adapted, _layers.LSTMCell):
    """One step of an LSTM: h, c = cell(x, (h, c))."""

    def _flat(self, input: Tensor, hx: tuple[Tensor, Tensor] | None = None) -> tuple[Any, ...]:
        h, c = (None, None) if hx is None else hx
        return input, h, c

    def _from_library(self, input: Tensor, h: Tensor | None = None, c: Tensor | None = None) -> Any:
        return self.forward(input, None if h is None else (h, c))


for _name in ("RNN", "GRU", "LSTM", "LSTMCell"):
    globals()[_name].__module__ = "gradus.nn"
