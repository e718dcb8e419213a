"""gradus.tensorboard: logs for TensorBoard (tensorboard --logdir FOLDER) from a loop of your own.

    with gd.tensorboard.SummaryWriter("runs/1") as writer:
        writer.add_scalar("loss/train", loss, step)
"""
from __future__ import annotations

import os
from typing import Any

from gradus import _core

__all__ = ["SummaryWriter"]


class SummaryWriter(_core.Board):
    """An event file in a folder. Each event is complete in the file when its call returns."""

    def __init__(self, log_dir: str | os.PathLike[str]) -> None:
        _core._board_init(self, os.fspath(log_dir))

    def add_scalar(self, tag: str, scalar_value: Any, global_step: int = 0) -> None:
        """A number: values with one tag are one curve, and a slash in a tag begins a group."""
        _core._board_add(self, "scalar", tag, float(scalar_value), global_step)

    def add_image(self, tag: str, img_tensor: Any, global_step: int = 0) -> None:
        """An image (H, W) or (C, H, W): integers from 0 to 255, floats from 0 to 1."""
        _core._board_add(self, "image", tag, img_tensor, global_step)

    def add_histogram(self, tag: str, values: Any, global_step: int = 0) -> None:
        """The histogram of the finite elements of a tensor."""
        _core._board_add(self, "histogram", tag, values, global_step)

    def add_text(self, tag: str, text_string: str, global_step: int = 0) -> None:
        """A text, which TensorBoard shows as Markdown."""
        _core._board_add(self, "text", tag, text_string, global_step)

    def flush(self) -> None:
        """Nothing: events are in the file already."""

    def close(self) -> None:
        """Closes the file."""
        _core._board_close(self)

    def __enter__(self) -> SummaryWriter:
        return self

    def __exit__(self, *failure: object) -> None:
        self.close()
