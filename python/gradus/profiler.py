"""gradus.profiler: time and memory of kernels.

    with gd.profiler.profile() as profile:
        train_one_epoch()
    print(profile.table())
    profile.save("trace.json")         # for chrome://tracing or ui.perfetto.dev
"""
from __future__ import annotations

import os
from typing import NamedTuple

from gradus import _core

__all__ = ["Row", "profile", "record"]


class Row(NamedTuple):
    """All calls of one kernel of one op."""
    op: str
    kernel: str
    device: str
    calls: int
    total_ms: float
    bytes: int
    live_bytes: int


class profile:
    """Measures every kernel in a block, on all threads. plans: captured plans count as one call, and keep their speed."""

    def __init__(self, plans: bool = False) -> None:
        self._plans = plans

    def __enter__(self) -> profile:
        _core._profiler_start(self._plans)
        return self

    def __exit__(self, *failure: object) -> None:
        _core._profiler_stop()

    def rows(self) -> list[Row]:
        """The table, slowest first."""
        return [Row(*row) for row in _core._profiler_rows()]

    def table(self, most: int | None = None) -> str:
        """The rows as text."""
        rows = self.rows()
        total = sum(row.total_ms for row in rows) or 1.0
        lines = [f"{'op':24} {'kernel':32} {'device':8} {'calls':>8} {'ms':>10} {'%':>6} {'GB/s':>7}"]
        for row in rows[:most]:
            speed = row.bytes / row.total_ms / 1e6 if row.total_ms else 0.0
            lines.append(f"{row.op:24.24} {row.kernel:32.32} {row.device:8} {row.calls:8} {row.total_ms:10.3f} "
                         f"{100 * row.total_ms / total:6.1f} {speed:7.1f}")
        return "\n".join(lines)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes every call to a trace file of Chrome's format."""
        _core._profiler_save(os.fspath(path))


class record:
    """A named span in the trace: with gd.profiler.record("forward"): ..."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __enter__(self) -> record:
        self._span = _core._profiler_span(self._name)
        return self

    def __exit__(self, *failure: object) -> None:
        _core._profiler_span_end(*self._span)
