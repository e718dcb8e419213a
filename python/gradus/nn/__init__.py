"""gradus.nn: modules and layers with PyTorch's names and meanings.

    net = gd.nn.Sequential(gd.nn.Linear(784, 100), gd.nn.ReLU(), gd.nn.Linear(100, 10))

The layers are the library's; docs/reference/layers.md has all of them. A size that the first call tells is None:
gd.nn.Linear(None, 10), or gd.nn.LazyLinear(10).
"""
from __future__ import annotations

import importlib as _importlib
import sys as _sys

from gradus import _core
from gradus.nn._containers import ModuleDict as ModuleDict, ModuleList as ModuleList
from gradus.nn._containers import ParameterDict as ParameterDict, ParameterList as ParameterList
from gradus.nn._containers import Sequential as Sequential
from gradus.nn._module import Module as Module, Parameter as Parameter
from gradus._records import Records as _Records

TYPE_CHECKING = False
if TYPE_CHECKING:  # a type checker keeps the first meaning of a name
    from gradus.nn._attention import (
        MultiheadAttention as MultiheadAttention, Transformer as Transformer, TransformerDecoder as TransformerDecoder,
        TransformerDecoderLayer as TransformerDecoderLayer, TransformerEncoder as TransformerEncoder,
        TransformerEncoderLayer as TransformerEncoderLayer)
    from gradus.nn._losses import (
        BCELoss as BCELoss, BCEWithLogitsLoss as BCEWithLogitsLoss, CrossEntropyLoss as CrossEntropyLoss,
        MultiLabelSoftMarginLoss as MultiLabelSoftMarginLoss, MultiMarginLoss as MultiMarginLoss, NLLLoss as NLLLoss,
        NLLLoss2d as NLLLoss2d, TripletMarginWithDistanceLoss as TripletMarginWithDistanceLoss)
    from gradus.nn._more import (
        AdaptiveAvgPool1d as AdaptiveAvgPool1d, AdaptiveAvgPool2d as AdaptiveAvgPool2d,
        AdaptiveAvgPool3d as AdaptiveAvgPool3d, AdaptiveMaxPool1d as AdaptiveMaxPool1d,
        AdaptiveMaxPool2d as AdaptiveMaxPool2d, AdaptiveMaxPool3d as AdaptiveMaxPool3d, Embedding as Embedding,
        EmbeddingBag as EmbeddingBag, Fold as Fold, Identity as Identity, LazyBatchNorm1d as LazyBatchNorm1d,
        LazyBatchNorm2d as LazyBatchNorm2d, LazyBatchNorm3d as LazyBatchNorm3d, LazyConv1d as LazyConv1d,
        LazyConv2d as LazyConv2d, LazyConv3d as LazyConv3d, LazyConvTranspose1d as LazyConvTranspose1d,
        LazyConvTranspose2d as LazyConvTranspose2d, LazyConvTranspose3d as LazyConvTranspose3d,
        LazyInstanceNorm1d as LazyInstanceNorm1d, LazyInstanceNorm2d as LazyInstanceNorm2d,
        LazyInstanceNorm3d as LazyInstanceNorm3d, LazyLinear as LazyLinear, MaxUnpool1d as MaxUnpool1d,
        MaxUnpool2d as MaxUnpool2d, MaxUnpool3d as MaxUnpool3d, Unfold as Unfold, Upsample as Upsample,
        UpsamplingBilinear2d as UpsamplingBilinear2d, UpsamplingNearest2d as UpsamplingNearest2d)
    from gradus.nn._recurrent import GRU as GRU, LSTM as LSTM, LSTMCell as LSTMCell, RNN as RNN
    from gradus.nn._layers import *  # type: ignore[assignment]

_records = _Records("layer", Module, "gradus.nn")
# Classes that stand in the place of a record's, or have none, by the files that have them.
_homes = {name: file for file, names in {
    "_attention": "MultiheadAttention Transformer TransformerDecoder TransformerDecoderLayer TransformerEncoder "
                  "TransformerEncoderLayer",
    "_losses": "BCELoss BCEWithLogitsLoss CrossEntropyLoss MultiLabelSoftMarginLoss MultiMarginLoss NLLLoss NLLLoss2d "
               "TripletMarginWithDistanceLoss",
    "_more": "AdaptiveAvgPool1d AdaptiveAvgPool2d AdaptiveAvgPool3d AdaptiveMaxPool1d AdaptiveMaxPool2d AdaptiveMaxPool3d "
             "Embedding EmbeddingBag Fold Identity LazyBatchNorm1d LazyBatchNorm2d LazyBatchNorm3d LazyConv1d LazyConv2d "
             "LazyConv3d LazyConvTranspose1d LazyConvTranspose2d LazyConvTranspose3d LazyInstanceNorm1d "
             "LazyInstanceNorm2d LazyInstanceNorm3d LazyLinear MaxUnpool1d MaxUnpool2d MaxUnpool3d Unfold Upsample "
             "UpsamplingBilinear2d UpsamplingNearest2d",
    "_recurrent": "GRU LSTM LSTMCell RNN",
}.items() for name in names.split()}


def _class_for(record: str) -> type:
    """The class for a module that the library has created."""
    name = _records.names.get(record)
    if record in ("upsample", "embedding_bag"):  # their classes in Python are called with other arguments
        return _records.get(name) if name else Module
    if name:
        found: type = globals().get(name) or _find(name)
        return found
    return {"sequential": Sequential, "list": ModuleList}.get(record, Module)


def _find(name: str) -> type:
    """A class, which stays an attribute of the module."""
    found: type = getattr(_importlib.import_module("gradus.nn." + _homes.get(name, "_layers")), name)
    globals()[name] = found
    return found


_core._set_finder(_core.Module, _class_for)

if not TYPE_CHECKING:

    def __getattr__(name):
        if name in _homes or name in _records:
            return _find(name)
        if name in ("functional", "init", "utils", "parameter"):
            return _importlib.import_module("gradus.nn." + name)
        raise AttributeError(f"module 'gradus.nn' has no attribute '{name}'", name=name, obj=_sys.modules[__name__])


def __dir__() -> list[str]:
    return sorted(set(globals()) | set(_homes) | set(dir(_records)))
