"""Tensors in files: safetensors, which other libraries read, too, and files of PyTorch and NumPy."""
from __future__ import annotations

from gradus import _core
from gradus._core import Tensor

__all__ = ["load", "save"]

TYPE_CHECKING = False
if TYPE_CHECKING:
    import os
    from collections.abc import Mapping
    from typing import Any


def save(obj: Tensor | Mapping[str, Any], path: str | os.PathLike[str], *, checksum: bool = False) -> None:
    """Writes a tensor, or a dict of tensors by name, to a safetensors file; dicts in it give names with dots.

    The file is replaced at the end: a full disk or a killed process leaves the old one."""
    if not isinstance(obj, (Tensor, dict)) and isinstance(path, (Tensor, dict)):
        obj, path = path, obj  # the order of safetensors' own save is accepted, too
    items: list[tuple[str, Tensor]] = []
    _collect(obj if isinstance(obj, dict) else {"tensor": obj}, "", items)
    _core._save(path, items, checksum)


def _collect(obj, prefix, items):
    for name, value in obj.items():
        if not isinstance(name, str):
            raise TypeError(f"the names of tensors are strs, not {name!r}")
        if isinstance(value, dict):
            _collect(value, prefix + name + ".", items)
        elif isinstance(value, Tensor):
            items.append((prefix + name, value.detach()))
        else:
            raise TypeError(f"'{prefix}{name}' is no tensor and no dict, but {type(value).__name__}")


def load(path: str | os.PathLike[str]) -> dict[str, Tensor]:
    """The tensors of a file by name, on the default device: a safetensors file, one of PyTorch (state dict, checkpoint, whole
    module, TorchScript), or a .npz file. Nested dicts give names with dots. Nothing in the file is executed."""
    return _core._load(path)
