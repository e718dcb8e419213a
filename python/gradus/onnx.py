"""gradus.onnx: saving modules as ONNX files, and loading them.

    gd.onnx.save(net, "net.onnx", gd.zeros(1, 1, 28, 28))
    net = gd.onnx.load("net.onnx")
"""
from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from gradus import _core

if TYPE_CHECKING:
    from gradus.nn import Module

__all__ = ["load", "metadata", "save"]


def save(model: Any, path: str | os.PathLike[str], *inputs: Any, outputs: Any = None,
         input_names: Sequence[str] = ("input",), output_names: Sequence[str] = ("output",), any_batch: bool = True,
         any_length: bool = False, own_ops: bool = False, external_above: int = 1 << 26,
         metadata: Mapping[str, str] | None = None) -> None:
    """Writes a module in eval mode, for inputs like these, to an ONNX file.

    any_batch: the first size of the inputs is unknown in the file; any_length: the second, too. own_ops: ops that ONNX
    lacks become nodes that only this library reads. Tensors of more than external_above bytes go to a second file.
    A session is written with its symbols: save(session, path, x, outputs=y)."""
    pairs = tuple(text for pair in (metadata or {}).items() for text in pair)
    if isinstance(model, _core.Session):
        if outputs is None:
            raise TypeError("outputs are needed for a session: save(session, path, x, outputs=y)")
        _core._onnx_save(model, os.fspath(path), inputs, outputs, pairs, own_ops, external_above)
        return
    if not isinstance(model, _core.Module):
        raise TypeError(f"the first argument must be a module or a session, not {type(model).__name__}")
    if not inputs:
        raise TypeError("inputs are needed, from which the file gets shapes and dtypes: save(net, path, x)")
    for names in (input_names, output_names):
        if isinstance(names, str) or any(" " in name for name in names):
            raise TypeError("names of inputs and outputs are a sequence of words")
    _core._onnx_save_module(model, os.fspath(path), inputs, " ".join(input_names), " ".join(output_names), pairs,
                            any_batch, any_length, own_ops, external_above)


def load(path: str | os.PathLike[str]) -> Module:
    """An ONNX file as a module, which can be called, trained and saved."""
    import gradus.nn  # noqa: F401 (the classes of modules)

    module: Any = _core._onnx_module(os.fspath(path))
    return module  # type: ignore[no-any-return]


def metadata(path: str | os.PathLike[str], key: str) -> str | None:
    """The text that stands in the file's metadata under this key, or None."""
    text: str | None = _core._onnx_metadata(os.fspath(path), key)
    return text
