"""gradus.caffe: nets, solvers and weights in the files of Caffe.

    net = gd.caffe.net("deploy.prototxt", weights="plates.caffemodel")
    prob = net(image)
    gd.caffe.save(net, "copy.caffemodel")
    gd.caffe.save_net(resnet, "resnet.prototxt", image)
"""
from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from gradus import _core

if TYPE_CHECKING:
    from gradus._fit import History
    from gradus.nn import Module

__all__ = ["draw", "extract", "inputs", "load", "net", "outputs", "read_blob", "save", "save_net", "test", "train",
           "write_blob"]

Path = str | os.PathLike[str]


def _names(names: str | Iterable[str] | None) -> str | None:
    return names if names is None or isinstance(names, str) else " ".join(names)


def _files(paths: Path | Iterable[Path] | None) -> str | None:
    if paths is None or isinstance(paths, str | os.PathLike):
        return None if paths is None else os.fspath(paths)
    return ",".join(os.fspath(path) for path in paths)


def net(path: Path, weights: Path | Iterable[Path] | None = None, outputs: str | Iterable[str] | None = None,
        train: bool = False, level: int = 0, stages: str | Iterable[str] | None = None,
        dummy: str | None = None) -> Module:
    """The net of a prototxt as a module.

    weights: .caffemodel files; outputs: names of blobs in place of the net's outputs; train: the layers of the phase
    TRAIN, in train mode; dummy: shapes of data that need not be there, "data=3,227,227". The module takes the inputs of
    the text, then the tops of its data layers."""
    import gradus.nn  # noqa: F401 (the classes of modules)

    module: Any = _core._caffe_net(os.fspath(path), _files(weights), _names(outputs), train, level, _names(stages), dummy)
    return module  # type: ignore[no-any-return]


def inputs(net: Module) -> dict[str, tuple[int, ...]]:
    """The inputs of a net by their names, with the shapes of the text; empty for other modules."""
    return dict(_core._caffe_blobs(net)[0])


def outputs(net: Module) -> dict[str, tuple[int, ...]]:
    """The outputs of a net by their names, with their shapes; empty for other modules."""
    return dict(_core._caffe_blobs(net)[1])


def train(solver: Path, device: str | None = None, weights: Path | Iterable[Path] | None = None,
          snapshot: Path | None = None, checkpoints: Path | None = None, resume: bool = False, iterations: int = 0,
          level: int = 0, stages: str | Iterable[str] | None = None, dummy: str | None = None, workers: int = 0,
          log: Callable[[str], object] | None = None, jit: bool = True, interrupt: bool = True) -> History:
    """Trains as a solver.prototxt says, and returns the history; its model is the trained net.

    weights: .caffemodel files to start from; snapshot: a .solverstate to continue from; checkpoints and resume: a folder
    for the library's own checkpoints, from which a run continues with the same bits; iterations: at most so many; level and
    stages: of the net to train, besides those of the solver; log: gets the lines of Caffe's log, for example print. Without it
    they go to the logger "gradus"."""
    import gradus._fit  # noqa: F401 (the class of histories)
    import gradus.nn  # noqa: F401 (the classes of modules)

    history, module = _core._caffe_train(
        os.fspath(solver), device, _files(weights), _files(snapshot), _files(checkpoints), resume, iterations, level,
        _names(stages), dummy, workers, log, jit, interrupt)
    history.model = module
    return history  # type: ignore[no-any-return]


def test(net: Path, weights: Path | Iterable[Path] | None = None, iterations: int = 50, level: int = 0,
         stages: str | Iterable[str] | None = None, dummy: str | None = None, workers: int = 0,
         log: Callable[[str], object] | None = None) -> dict[str, float]:
    """The means of the outputs of a net on batches of its data layers, in the phase TEST."""
    import gradus._fit  # noqa: F401 (the class of histories)

    history = _core._caffe_test(os.fspath(net), _files(weights), iterations, level, _names(stages), dummy, workers, log)
    return {name: column[-1] for name, column in history.history.items()}


def load(net: Module, paths: Path | Iterable[Path]) -> None:
    """Copies the weights of .caffemodel files to the layers of the same names. A shape that differs is an error, after
    which nothing has changed; layers that a file lacks keep their values."""
    _core._caffe_load(_files(paths), net)


def save(net: Module, path: Path) -> None:
    """Writes the layers and weights of a net as a .caffemodel."""
    _core._caffe_save(os.fspath(path), net)


def save_net(net: Module, path: Path, *inputs: _core.Tensor) -> None:
    """Writes a module as a prototxt that Caffe and OpenCV read. The inputs are examples, which give the shapes; a net of
    gradus.caffe.net needs none. From then on save writes the weights of its layers. What Caffe has no layer for is an
    error that names it."""
    _core._caffe_save_net(os.fspath(path), net, list(inputs))


def draw(net: Path, file: Path, train: bool = False, level: int = 0, stages: str | Iterable[str] | None = None,
         dummy: str | None = None, left_to_right: bool = False) -> None:
    """Draws the layers of a prototxt with the names, types and fields of the text: an SVG image, or for a file that ends in
    .dot a text for Graphviz. Without the data of the net, and without dummy, the picture has no shapes."""
    _core._caffe_draw(os.fspath(net), os.fspath(file), train, level, _names(stages), dummy, left_to_right)


def extract(net: Path, blobs: str | Iterable[str], file: Path, weights: Path | Iterable[Path] | None = None,
            iterations: int = 1, level: int = 0, stages: str | Iterable[str] | None = None, dummy: str | None = None,
            workers: int = 0) -> None:
    """Writes the values of blobs over batches of a net's data layers, in the phase TEST, to a .npz file: an array for each
    blob, with all batches one after the other."""
    _core._caffe_extract(os.fspath(net), _names(blobs), os.fspath(file), _files(weights), iterations, level, _names(stages),
                         dummy, workers)


def read_blob(path: Path) -> _core.Tensor:
    """A blob in a file of its own, such as a mean image (.binaryproto)."""
    tensor: _core.Tensor = _core._caffe_read_blob(os.fspath(path))
    return tensor


def write_blob(path: Path, tensor: _core.Tensor) -> None:
    """Writes a tensor as a blob in a file of its own."""
    _core._caffe_write_blob(os.fspath(path), tensor)
