"""Multi-head attention and transformers, with PyTorch's arguments."""
from __future__ import annotations

import copy as _copy
from typing import Any

from gradus import _core
from gradus import _nn_functions as _functions
from gradus._core import Tensor
from gradus.nn import _layers
from gradus.nn._adapted import Adapted
from gradus.nn._containers import ModuleList
from gradus.nn._module import Module

_hidden = float("-inf")


def _added(mask: Tensor | None, dtype: Any) -> Tensor | None:
    """A mask as numbers to be added to the scores: true hides."""
    if mask is None or mask.dtype != _core.bool:
        return None if mask is None else mask.to(dtype)
    return _core.where(mask, _core.tensor(_hidden, dtype=dtype, device=mask.device),
                       _core.tensor(0.0, dtype=dtype, device=mask.device))


class MultiheadAttention(_layers.MultiheadAttention):
    """Attention with several heads: y, weights = attention(query, key, value). query is (L, N, embed_dim), key
    (S, N, kdim) and value (S, N, vdim), with batch_first (N, L, embed_dim) and so on. As in PyTorch, true in the masks
    hides a position, and a float is added to the score. need_weights=False is faster: weights is None then."""

    def __init__(self, embed_dim: int, num_heads: int, dropout: float = 0.0, bias: bool = True, add_bias_kv: bool = False,
                 add_zero_attn: bool = False, kdim: int | None = None, vdim: int | None = None, batch_first: bool = False,
                 **names: Any) -> None:
        self.__dict__["_overrides"] = True
        super().__init__(embed_dim, num_heads, dropout, bias, add_bias_kv, add_zero_attn, kdim, vdim, batch_first, **names)

    def __call__(self, *args: Any, **names: Any) -> Any:
        if _core._module_is_python(self):
            return super().__call__(*args, **names)
        return self.forward(*args, **names)  # the library has created it

    def forward(self, query: Tensor, key: Tensor, value: Tensor, key_padding_mask: Tensor | None = None,
                need_weights: bool = True, attn_mask: Tensor | None = None, average_attn_weights: bool = True,
                is_causal: bool = False) -> tuple[Tensor, Tensor | None]:
        if is_causal and attn_mask is None:
            length = 1 if self.batch_first and query.ndim == 3 else 0
            attn_mask = Transformer.generate_square_subsequent_mask(query.shape[length], device=query.device,
                                                                    dtype=query.dtype)
        if need_weights:
            return self._with_weights(query, key, value, key_padding_mask, attn_mask, average_attn_weights)
        y = _core._module_forward(self, query, key, value, key_padding_mask, attn_mask)
        return (y[0] if isinstance(y, tuple) else y), None

    _overrides = False

    def _from_library(self, query: Tensor, key: Tensor | None = None, value: Tensor | None = None,
                      key_padding_mask: Tensor | None = None, attn_mask: Tensor | None = None) -> Any:
        key = query if key is None else key
        y = self.forward(query, key, key if value is None else value, key_padding_mask, False, attn_mask)
        return y[0]

    def _projected(self, inputs: tuple[Tensor, Tensor, Tensor]) -> list[Tensor]:
        packed = getattr(self, "in_proj_weight", None)
        weights = ([self.q_proj_weight, self.k_proj_weight, self.v_proj_weight] if packed is None
                   else _core.chunk(packed, 3, 0))
        biases = [None] * 3 if self.in_proj_bias is None else _core.chunk(self.in_proj_bias, 3, 0)
        return [_core.linear(x, w, b) for x, w, b in zip(inputs, weights, biases)]

    def _with_weights(self, query: Tensor, key: Tensor, value: Tensor, padding: Tensor | None, mask: Tensor | None,
                      average: bool) -> tuple[Tensor, Tensor]:
        batch = 0 if self.batch_first else 1
        single, heads = query.ndim == 2, self.num_heads
        if single:
            query, key, value = (x.unsqueeze(batch) for x in (query, key, value))
            padding = None if padding is None else padding.unsqueeze(0)
        q, k, v = self._projected((query, key, value))
        if self.batch_first:
            q, k, v = (x.transpose(0, 1) for x in (q, k, v))
        n, appended = q.shape[1], 0
        if self.bias_k is not None:
            k, v = (_core.cat([x, row.expand(1, n, -1)], 0) for x, row in ((k, self.bias_k), (v, self.bias_v)))
            appended += 1
        if self.add_zero_attn:
            k, v = (_functions.pad(x, [0, 0, 0, 0, 0, 1]) for x in (k, v))
            appended += 1
        q, k, v = (_core.permute(x.reshape(x.shape[0], n, heads, -1), [1, 2, 0, 3]) for x in (q, k, v))  # (N, H, L, D)
        scores = q * (q.shape[-1] ** -0.5) @ k.transpose(-1, -2)
        if padding is not None:
            padding = _added(padding, q.dtype).reshape(n, 1, 1, -1)  # type: ignore[union-attr]
        mask = _added(mask, q.dtype)
        if mask is not None and mask.ndim == 3:
            mask = mask.reshape(n, heads, *mask.shape[1:])
        for added in (padding, mask):
            if added is not None:
                scores = scores + (_functions.pad(added, [0, appended]) if appended else added)
        if padding is None and mask is None:
            weights = _functions.softmax(scores, -1)
        else:  # the weights of a query that may attend to nothing are 0
            dead = _core.max(scores, -1, keepdims=True) == _hidden
            weights = _core.where(dead, 0.0, _functions.softmax(_core.where(dead, 0.0, scores), -1))
        if self.dropout and self.training:
            weights = _functions.dropout(weights, self.dropout)
        y = _core.permute(weights @ v, [2, 0, 1, 3])
        y = y.reshape(y.shape[0], n, -1)
        y = self.out_proj(y.transpose(0, 1) if self.batch_first else y)
        weights = _core.mean(weights, 1) if average else weights
        return (y.squeeze(batch), weights.squeeze(0)) if single else (y, weights)


def _activation(activation: Any) -> str:
    """The word for an activation: PyTorch takes functions, too."""
    if isinstance(activation, str):
        return activation
    name = getattr(activation, "__name__", type(activation).__name__).lower()
    if name in ("relu", "gelu"):
        return name
    raise _core.UnsupportedError(f"activation is {activation!r}; a transformer layer has 'relu' or 'gelu'")


class TransformerEncoderLayer(Adapted, _layers.TransformerEncoderLayer):
    """Self-attention and a feed-forward network, each with a residual connection and a layer norm."""

    def __init__(self, d_model: int, nhead: int, dim_feedforward: int = 2048, dropout: float = 0.1,
                 activation: Any = "relu", layer_norm_eps: float = 1e-5, batch_first: bool = False,
                 norm_first: bool = False, bias: bool = True, **names: Any) -> None:
        _layers.TransformerEncoderLayer.__init__(
            self, d_model, nhead, dim_feedforward, dropout, _activation(activation),  # type: ignore[arg-type]
            layer_norm_eps, batch_first, norm_first, bias, **names)

    def _flat(self, src: Tensor, src_mask: Tensor | None = None, src_key_padding_mask: Tensor | None = None,
              is_causal: bool = False) -> tuple[Any, ...]:
        return src, _causal(self, src, src_mask, is_causal), src_key_padding_mask


class TransformerDecoderLayer(Adapted, _layers.TransformerDecoderLayer):
    """Self-attention, attention to the output of an encoder, and a feed-forward network, each with a residual connection
    and a layer norm."""

    def __init__(self, d_model: int, nhead: int, dim_feedforward: int = 2048, dropout: float = 0.1,
                 activation: Any = "relu", layer_norm_eps: float = 1e-5, batch_first: bool = False,
                 norm_first: bool = False, bias: bool = True, **names: Any) -> None:
        _layers.TransformerDecoderLayer.__init__(
            self, d_model, nhead, dim_feedforward, dropout, _activation(activation),  # type: ignore[arg-type]
            layer_norm_eps, batch_first, norm_first, bias, **names)

    def _flat(self, tgt: Tensor, memory: Tensor, tgt_mask: Tensor | None = None, memory_mask: Tensor | None = None,
              tgt_key_padding_mask: Tensor | None = None, memory_key_padding_mask: Tensor | None = None,
              tgt_is_causal: bool = False, memory_is_causal: bool = False) -> tuple[Any, ...]:
        return (tgt, memory, _causal(self, tgt, tgt_mask, tgt_is_causal), memory_mask, tgt_key_padding_mask,
                memory_key_padding_mask)


def _causal(layer: Any, x: Tensor, mask: Tensor | None, is_causal: bool) -> Tensor | None:
    """PyTorch's is_causal says that the mask is causal; without a mask it makes one here."""
    if mask is not None or not is_causal:
        return mask
    length = x.shape[1 if layer.batch_first and x.ndim == 3 else 0]
    return Transformer.generate_square_subsequent_mask(length, device=x.device, dtype=x.dtype)


class TransformerEncoder(Module):
    """A stack of copies of an encoder layer, with an optional norm at its end."""

    def __init__(self, encoder_layer: Module, num_layers: int, norm: Module | None = None,
                 enable_nested_tensor: bool = True, mask_check: bool = True) -> None:
        super().__init__()
        self.layers = ModuleList(_copy.deepcopy(encoder_layer) for _ in range(num_layers))
        self.num_layers, self.norm = num_layers, norm

    def forward(self, src: Tensor, mask: Tensor | None = None, src_key_padding_mask: Tensor | None = None,
                is_causal: bool | None = None) -> Tensor:
        for layer in self.layers:
            src = layer(src, mask, src_key_padding_mask, bool(is_causal))
        return src if self.norm is None else self.norm(src)


class TransformerDecoder(Module):
    """A stack of copies of a decoder layer, with an optional norm at its end."""

    def __init__(self, decoder_layer: Module, num_layers: int, norm: Module | None = None) -> None:
        super().__init__()
        self.layers = ModuleList(_copy.deepcopy(decoder_layer) for _ in range(num_layers))
        self.num_layers, self.norm = num_layers, norm

    def forward(self, tgt: Tensor, memory: Tensor, tgt_mask: Tensor | None = None, memory_mask: Tensor | None = None,
                tgt_key_padding_mask: Tensor | None = None, memory_key_padding_mask: Tensor | None = None,
                tgt_is_causal: bool | None = None, memory_is_causal: bool = False) -> Tensor:
        for layer in self.layers:
            tgt = layer(tgt, memory, tgt_mask, memory_mask, tgt_key_padding_mask, memory_key_padding_mask,
                        bool(tgt_is_causal), memory_is_causal)
        return tgt if self.norm is None else self.norm(tgt)


class Transformer(Module):
    """Vaswani et al. 2017: an encoder and a decoder. src (S, N, d_model) and tgt (T, N, d_model) give (T, N, d_model)."""

    def __init__(self, d_model: int = 512, nhead: int = 8, num_encoder_layers: int = 6, num_decoder_layers: int = 6,
                 dim_feedforward: int = 2048, dropout: float = 0.1, activation: Any = "relu",
                 custom_encoder: Module | None = None, custom_decoder: Module | None = None,
                 layer_norm_eps: float = 1e-5, batch_first: bool = False, norm_first: bool = False, bias: bool = True,
                 device: Any = None, dtype: Any = None) -> None:
        super().__init__()
        made = {"device": device, "dtype": dtype}
        arguments = (d_model, nhead, dim_feedforward, dropout, activation, layer_norm_eps, batch_first, norm_first, bias)

        def norm() -> Module:
            return _layers.LayerNorm(d_model, layer_norm_eps, bias=bias, **made)

        self.encoder = custom_encoder or TransformerEncoder(
            TransformerEncoderLayer(*arguments, **made), num_encoder_layers, norm())
        self.decoder = custom_decoder or TransformerDecoder(
            TransformerDecoderLayer(*arguments, **made), num_decoder_layers, norm())
        self.d_model, self.nhead, self.batch_first = d_model, nhead, batch_first
        from gradus.nn import init

        for parameter in self.parameters():
            if parameter.ndim > 1:
                init.xavier_uniform_(parameter)

    def forward(self, src: Tensor, tgt: Tensor, src_mask: Tensor | None = None, tgt_mask: Tensor | None = None,
                memory_mask: Tensor | None = None, src_key_padding_mask: Tensor | None = None,
                tgt_key_padding_mask: Tensor | None = None, memory_key_padding_mask: Tensor | None = None,
                src_is_causal: bool | None = None, tgt_is_causal: bool | None = None,
                memory_is_causal: bool = False) -> Tensor:
        memory = self.encoder(src, src_mask, src_key_padding_mask, src_is_causal)
        y: Tensor = self.decoder(tgt, memory, tgt_mask, memory_mask, tgt_key_padding_mask, memory_key_padding_mask,
                                 tgt_is_causal, memory_is_causal)
        return y

    @staticmethod
    def generate_square_subsequent_mask(sz: int, device: Any = None, dtype: Any = None) -> Tensor:
        """(sz, sz) with -inf above the diagonal and 0 elsewhere."""
        mask = _core.full((sz, sz), _hidden, dtype=dtype or _core.float32, device=device)
        return _core.triu(mask, 1)


for _name in ("MultiheadAttention", "TransformerEncoderLayer", "TransformerDecoderLayer", "TransformerEncoder",
              "TransformerDecoder", "Transformer"):
    globals()[_name].__module__ = "gradus.nn"
