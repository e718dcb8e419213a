"""gd.save_state and gd.load_state: the state of several objects in one safetensors file."""
from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from gradus import _core

__all__ = ["LoadReport", "load_state", "save_state"]


class LoadReport(NamedTuple):
    """What a partial load has done."""
    loaded: int
    missing: int
    unexpected: int
    unfit: int
    text: str


def _parts(parts: Mapping[str, Any] | None, named: dict[str, Any]) -> list[tuple[str, Any]]:
    both = {**(parts or {}), **named}
    if not both:
        raise _core.ArgumentError("there are no parts: save_state(path, net=net, adam=optimizer)")
    return list(both.items())


def save_state(path: str | os.PathLike[str], parts: Mapping[str, Any] | None = None, /, *, checksum: bool = False,
               shard_bytes: int = 0, **named: Any) -> None:
    """Writes modules, optimizers, schedules, metrics, loaders and tensors to a safetensors file: save_state("run.safetensors",
    net=net, adam=optimizer). The names of parts stand before those of their tensors: net.fc.weight. The name "" of a dict
    has no prefix. A path that ends in .index.json is an index of shards of at most shard_bytes."""
    _core._save_state(os.fspath(path), _parts(parts, named), checksum, shard_bytes)


def load_state(path: str | os.PathLike[str], parts: Mapping[str, Any] | None = None, /, *, partial: bool = False,
               prefix: str | None = None, rename: Callable[[str], str | None] | str | None = None,
               **named: Any) -> LoadReport | None:
    """Reads what save_state has written, into objects of the same kind, or weights from files of PyTorch and .npz files. If
    something does not fit, nothing has changed.
    partial: loads what fits and returns a report. prefix: only names of the file with this prefix, which is removed.
    rename(name): the name in the objects for a name of the file, or None to leave it out; or rules as a text:
    "encoder.*=*, fc.*=head.*, decoder.*=" (the last one leaves names out)."""
    report = _core._load_state(os.fspath(path), _parts(parts, named), partial, prefix, rename)
    return LoadReport(*report) if partial else None
