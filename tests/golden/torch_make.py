"""torch_make.py [FOLDER] [PART] - ONNX files exported by PyTorch, with their results.

    python tests/golden/torch_make.py                      # all models, into tests/golden/torch
    python tests/golden/torch_make.py /tmp/files lstm      # models with lstm in their name

Needs a Python with torch, onnx and onnxscript; the tests do not need it. Models are exported by
torch.export (NAME.onnx) and by TorchScript (NAME.script.onnx). NAME.pb has the inputs i0, i1, ...
and the outputs o0, o1, ... of a run in PyTorch. For a model with unknown sizes the run has other sizes than
the export. Metadata about the Python program (file names and lines) and the shapes of intermediate values
are removed.

tests/unit/onnx/test_onnx_others.c loads and runs the models; tests/golden/onnx_check.py checks the files that it saves.
"""

import os
import sys
import warnings

import onnx
import torch
import torch.nn.functional as F
from torch import nn

from onnx_sample import save_sample

MODELS = {}  # name: (constructor, inputs, options)


def model(name, *inputs, **options):
    """Registers a function that creates a module, or that is the model itself.

    inputs: tensors, or shapes of random tensors. run: other inputs for the run, if sizes may change.
    dynamic: the axes of unknown size of each input, as {0: "n"}. by: the exporters. opset: the version of
    ONNX's operators.
    """
    def register(make):
        MODELS[name] = (make, inputs, options)
        return make
    return register


class Function(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *inputs):
        return self.function(*inputs)


def layers(name, make, *inputs, **options):
    """Registers a model that is one expression."""
    model(name, *inputs, **options)(make)


def function(name, f, *inputs, **options):
    model(name, *inputs, **options)(lambda: Function(f))


BATCH = {0: "n"}
SCRIPT, BOTH = ["script"], ["export", "script"]

# --- networks -------------------------------------------------------------------------------------

layers("mlp", lambda: nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 6), nn.Tanh(), nn.Linear(6, 3), nn.Softmax(-1)),
       (2, 5), run=[(3, 5)], dynamic=[BATCH], by=BOTH)
layers("conv_bn_relu", lambda: nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2)),
       (2, 3, 6, 6), run=[(1, 3, 6, 6)], dynamic=[BATCH], by=BOTH)
layers("depthwise", lambda: nn.Sequential(nn.Conv2d(4, 4, 3, groups=4, bias=False), nn.ReLU6(), nn.Conv2d(4, 3, 1)), (1, 4, 6, 6))
layers("conv_dilated", lambda: nn.Conv2d(2, 3, 3, dilation=2, padding=2), (1, 2, 8, 8),
       run=[(2, 2, 9, 7)], dynamic=[{0: "n", 2: "h", 3: "w"}])
layers("conv_grouped", lambda: nn.Conv2d(4, 6, 3, groups=2), (1, 4, 5, 5))
layers("conv_same", lambda: nn.Conv2d(2, 3, 4, padding="same"), (1, 2, 7, 7))
layers("conv_reflect", lambda: nn.Conv2d(2, 3, 3, padding=1, padding_mode="reflect"), (1, 2, 5, 5), by=BOTH)
layers("conv_circular", lambda: nn.Conv1d(2, 3, 3, padding=1, padding_mode="circular"), (1, 2, 5))
layers("conv1d", lambda: nn.Conv1d(3, 4, 3, stride=2), (2, 3, 9), run=[(1, 3, 12)], dynamic=[{0: "n", 2: "t"}])
layers("conv_transpose", lambda: nn.ConvTranspose2d(3, 2, 3, stride=2, padding=1, output_padding=1), (1, 3, 4, 4),
       run=[(2, 3, 3, 5)], dynamic=[{0: "n", 2: "h", 3: "w"}], by=BOTH)
layers("conv_transpose_groups", lambda: nn.ConvTranspose2d(4, 4, 2, stride=2, groups=2, dilation=2), (1, 4, 3, 3))
layers("conv_transpose1d", lambda: nn.ConvTranspose1d(2, 3, 4, stride=2, padding=1), (2, 2, 5))
layers("max_pool", lambda: nn.MaxPool2d(3, stride=2, padding=1, ceil_mode=True), (1, 2, 8, 8))
layers("max_pool_indices", lambda: nn.MaxPool2d(2, return_indices=True), (1, 2, 4, 4), by=BOTH)
layers("avg_pool", lambda: nn.AvgPool2d(3, stride=2, padding=1), (1, 2, 7, 7))
layers("avg_pool_inside", lambda: nn.AvgPool2d(3, stride=2, padding=1, count_include_pad=False, ceil_mode=True), (1, 2, 6, 6), by=BOTH)
layers("adaptive_avg", lambda: nn.AdaptiveAvgPool2d(1), (2, 3, 5, 4), run=[(1, 3, 4, 6)], dynamic=[{0: "n", 2: "h", 3: "w"}], by=BOTH)
layers("adaptive_avg_2", lambda: nn.AdaptiveAvgPool2d((2, 3)), (1, 2, 6, 6))
layers("adaptive_uneven", lambda: nn.AdaptiveAvgPool2d((3, 4)), (1, 2, 7, 6))
layers("lp_pool", lambda: nn.LPPool2d(2, 2), (1, 2, 4, 4))
layers("pixel_shuffle", lambda: nn.Sequential(nn.PixelShuffle(2), nn.PixelUnshuffle(2)), (1, 8, 3, 2), by=BOTH)
layers("channel_shuffle", lambda: nn.ChannelShuffle(2), (1, 4, 2, 2))


class Residual(nn.Module):
    def __init__(self, channels=4):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(3, channels, 3, 2, 1, bias=False), nn.Conv2d(channels, channels, 3, 1, 1, bias=False)
        self.bn1, self.bn2, self.down = nn.BatchNorm2d(channels), nn.BatchNorm2d(channels), nn.Conv2d(3, channels, 1, 2)
        self.head = nn.Linear(channels, 3)
        for bn in (self.bn1, self.bn2):
            nn.init.uniform_(bn.running_mean), nn.init.uniform_(bn.running_var, 0.5, 2), nn.init.uniform_(bn.weight)

    def forward(self, x):
        y = F.relu(self.bn1(self.conv1(x)))
        y = F.relu(self.bn2(self.conv2(y)) + self.down(x))
        return self.head(torch.flatten(F.adaptive_avg_pool2d(y, 1), 1))


layers("resnet", Residual, (2, 3, 8, 8), run=[(3, 3, 8, 8)], dynamic=[BATCH], by=BOTH)

layers("norms", lambda: nn.Sequential(nn.GroupNorm(2, 4), nn.InstanceNorm2d(4, affine=True), nn.LocalResponseNorm(3), nn.LayerNorm([3, 3])), (2, 4, 3, 3))
layers("group_norm", lambda: nn.GroupNorm(3, 6), (2, 6, 4), run=[(3, 6, 5)], dynamic=[{0: "n", 2: "t"}])
layers("batch_norm1d", lambda: nn.BatchNorm1d(4), (3, 4), by=BOTH)
layers("rms_norm", lambda: nn.RMSNorm(6), (2, 3, 6))
layers("activations", lambda: nn.Sequential(nn.ELU(0.5), nn.SELU(), nn.CELU(1.5), nn.LeakyReLU(0.1), nn.Softplus(), nn.SiLU(), nn.Mish()), (3, 7))
layers("activations_2", lambda: nn.Sequential(nn.Hardswish(), nn.Hardsigmoid(), nn.Hardtanh(-0.5, 0.7), nn.GELU("tanh"), nn.Softsign(), nn.PReLU(7), nn.Threshold(0.1, 0.2)), (3, 7))
layers("activations_3", lambda: nn.Sequential(nn.LogSigmoid(), nn.Tanhshrink(), nn.Softshrink(0.1), nn.Hardshrink(0.1), nn.GLU(-1)), (3, 8))

# --- recurrent ------------------------------------------------------------------------------------


class Recurrent(nn.Module):
    """Returns the outputs, then the last states."""

    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, *inputs):
        y, state = self.layer(inputs[0], inputs[1:] if len(inputs) == 3 else inputs[1] if len(inputs) == 2 else None)
        return (y, *state) if isinstance(state, tuple) else (y, state)


layers("lstm", lambda: Recurrent(nn.LSTM(3, 4)), (5, 2, 3))
layers("lstm_state", lambda: Recurrent(nn.LSTM(3, 4, batch_first=True)), (2, 5, 3), (1, 2, 4), (1, 2, 4), by=BOTH)
layers("lstm_batch", lambda: Recurrent(nn.LSTM(3, 4, batch_first=True)), (2, 5, 3), run=[(3, 4, 3)], dynamic=[{0: "n", 1: "t"}], by=SCRIPT)
layers("lstm_deep", lambda: Recurrent(nn.LSTM(3, 2, num_layers=2, bidirectional=True)), (4, 2, 3), by=BOTH)
layers("gru", lambda: Recurrent(nn.GRU(3, 4)), (5, 2, 3))
layers("gru_deep", lambda: Recurrent(nn.GRU(3, 2, num_layers=2, bidirectional=True, batch_first=True)), (2, 4, 3), run=[(3, 4, 3)], dynamic=[BATCH], by=BOTH)
layers("gru_no_bias", lambda: Recurrent(nn.GRU(3, 2, bias=False)), (4, 2, 3))
layers("rnn", lambda: Recurrent(nn.RNN(3, 4)), (5, 2, 3))
layers("rnn_deep", lambda: Recurrent(nn.RNN(3, 2, num_layers=2, bidirectional=True, nonlinearity="relu")), (3, 2, 3), by=BOTH)


class Cells(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm, self.gru = nn.LSTMCell(3, 4), nn.GRUCell(4, 4)

    def forward(self, x):
        h, c = self.lstm(x)
        return self.gru(h, c)


layers("cells", Cells, (2, 3))

# --- attention ------------------------------------------------------------------------------------

layers("encoder_layer_first", lambda: nn.TransformerEncoderLayer(8, 2, 12, norm_first=True, activation="gelu"), (4, 2, 8),
       run=[(3, 1, 8)], dynamic=[{0: "t", 1: "n"}])


class SelfAttention(nn.Module):
    def __init__(self, weights):
        super().__init__()
        self.attention, self.weights = nn.MultiheadAttention(8, 2, batch_first=True), weights

    def forward(self, x):
        y, w = self.attention(x, x, x, need_weights=self.weights)
        return (y, w) if self.weights else y


layers("attention_weights", lambda: SelfAttention(True), (2, 4, 8))
function("sdpa_causal", lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True), (1, 2, 4, 4), (1, 2, 4, 4), (1, 2, 4, 4))
function("sdpa_mask", lambda q, k, v, m: F.scaled_dot_product_attention(q, k, v, attn_mask=m > 0), (1, 2, 3, 4), (1, 2, 5, 4), (1, 2, 5, 4), (3, 5))


class Gpt(nn.Module):
    def __init__(self, vocabulary=11, width=8, heads=2, longest=6, blocks=2):
        super().__init__()
        self.token, self.place = nn.Embedding(vocabulary, width), nn.Embedding(longest, width)
        self.blocks = nn.ModuleList(GptBlock(width, heads, longest) for _ in range(blocks))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)

    def forward(self, tokens):
        t = tokens.shape[1]
        x = self.token(tokens) + self.place(torch.arange(t))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


class GptBlock(nn.Module):
    """A block of nanoGPT, with the mask in a buffer."""

    def __init__(self, width, heads, longest):
        super().__init__()
        self.heads, self.norm1, self.norm2 = heads, nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))
        self.register_buffer("mask", torch.tril(torch.ones(longest, longest)).view(1, 1, longest, longest))

    def forward(self, x):
        n, t, c = x.shape
        q, k, v = self.qkv(self.norm1(x)).split(c, dim=2)
        q, k, v = (p.view(n, t, self.heads, c // self.heads).transpose(1, 2) for p in (q, k, v))
        a = (q @ k.transpose(-2, -1)) * (1.0 / (c // self.heads) ** 0.5)
        a = F.softmax(a.masked_fill(self.mask[:, :, :t, :t] == 0, float("-inf")), dim=-1)
        y = (a @ v).transpose(1, 2).contiguous().view(n, t, c)
        x = x + self.out(y)
        return x + self.mlp(self.norm2(x))


TOKENS = torch.tensor([[1, 4, 0, 10, 3], [2, 2, 9, 5, 7]])
layers("gpt_dynamic", lambda: Gpt(blocks=1), TOKENS, run=[torch.tensor([[3, 1, 8], [0, 10, 6], [5, 5, 4]])], dynamic=[{0: "n", 1: "t"}], by=BOTH)


class Rotary(nn.Module):
    """A block of a Llama: rotary positions, grouped heads, RMS norm, SwiGLU."""

    def __init__(self, width=8, heads=2):
        super().__init__()
        self.heads, self.norm = heads, nn.RMSNorm(width)
        self.q, self.k, self.v = nn.Linear(width, width, bias=False), nn.Linear(width, width // heads, bias=False), nn.Linear(width, width // heads, bias=False)
        self.gate, self.up, self.down = nn.Linear(width, 12, bias=False), nn.Linear(width, 12, bias=False), nn.Linear(12, width, bias=False)

    def rotate(self, x, cos, sin):
        a, b = x.chunk(2, dim=-1)
        return x * cos + torch.cat((-b, a), dim=-1) * sin

    def forward(self, x):
        n, t, c = x.shape
        d = c // self.heads
        angle = torch.outer(torch.arange(t).float(), 1.0 / (100.0 ** (torch.arange(0, d, 2).float() / d)))
        angle = torch.cat((angle, angle), dim=-1)
        y = self.norm(x)
        q = self.rotate(self.q(y).view(n, t, self.heads, d).transpose(1, 2), angle.cos(), angle.sin())
        k = self.rotate(self.k(y).view(n, t, 1, d).transpose(1, 2), angle.cos(), angle.sin())
        v = self.v(y).view(n, t, 1, d).transpose(1, 2)
        k, v = (p.expand(n, self.heads, t, d) for p in (k, v))
        mask = torch.full((t, t), float("-inf")).triu(1)
        a = F.softmax(q @ k.transpose(-2, -1) / d**0.5 + mask, dim=-1)
        x = x + (a @ v).transpose(1, 2).reshape(n, t, c)
        return x + self.down(F.silu(self.gate(x)) * self.up(x))


layers("llama_dynamic", Rotary, (2, 4, 8), run=[(1, 5, 8)], dynamic=[{0: "n", 1: "t"}])

# --- windows ------------------------------------------------------------------------------------------


class Window(nn.Module):
    """A block of a Swin transformer: attention in shifted windows, (N, H, W, C)."""

    def __init__(self, dim, size, window, shift, heads=2):
        super().__init__()
        self.dim, self.window, self.shift, self.heads, self.rows = dim, window, shift, heads, size // window
        self.norm, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.qkv, self.proj = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.mlp = nn.Sequential(nn.Linear(dim, 2 * dim), nn.GELU(), nn.Linear(2 * dim, dim))
        self.bias = nn.Parameter(torch.randn(heads, window**2, window**2))
        rows = torch.zeros(1, size, size, 1)
        parts = (slice(0, -window), slice(-window, -shift), slice(-shift, None)) if shift else ()
        for i, h in enumerate(parts):
            for j, w in enumerate(parts):
                rows[:, h, w] = 3 * i + j
        of = self.cut(rows, 1).squeeze(2)
        apart = (of.unsqueeze(1) != of.unsqueeze(2)).float() * -100
        self.register_buffer("mask", apart if shift else None)

    def cut(self, x, c):  # (N, H, W, C) to (N windows, w w, C)
        x = x.view(-1, self.rows, self.window, self.rows, self.window, c)
        return x.permute(0, 1, 3, 2, 4, 5).contiguous().view(-1, self.window**2, c)

    def attend(self, x):
        t, c = self.window**2, self.dim
        q, k, v = self.qkv(x).reshape(-1, t, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4)
        a = q * (c // self.heads) ** -0.5 @ k.transpose(-2, -1) + self.bias
        if self.mask is not None:
            windows = self.mask.shape[0]
            a = a.view(-1, windows, self.heads, t, t) + self.mask.unsqueeze(1).unsqueeze(0)
            a = a.view(-1, self.heads, t, t)
        return self.proj((a.softmax(-1) @ v).transpose(1, 2).reshape(-1, t, c))

    def forward(self, x):
        y = self.norm(x)
        if self.shift:
            y = torch.roll(y, (-self.shift, -self.shift), (1, 2))
        y = self.attend(self.cut(y, self.dim)).view(-1, self.rows, self.rows, self.window, self.window, self.dim)
        y = y.permute(0, 1, 3, 2, 4, 5).contiguous().view(-1, self.rows * self.window, self.rows * self.window, self.dim)
        if self.shift:
            y = torch.roll(y, (self.shift, self.shift), (1, 2))
        x = x + y
        return x + self.mlp(self.norm2(x))


class Swin(nn.Module):
    def __init__(self):
        super().__init__()
        self.patches = nn.Conv2d(1, 8, 2, 2)
        self.blocks = nn.Sequential(Window(8, 16, 2, 0), Window(8, 16, 2, 1))  # 64 windows
        self.merge = nn.Linear(32, 16, bias=False)
        self.last = nn.Sequential(Window(16, 8, 2, 1), nn.LayerNorm(16))
        self.head = nn.Linear(16, 5)

    def forward(self, x):
        x = self.blocks(self.patches(x).permute(0, 2, 3, 1))
        x = torch.cat([x[:, i::2, j::2] for j in (0, 1) for i in (0, 1)], -1)
        return self.head(self.last(self.merge(x)).flatten(1, 2).mean(1))


layers("swin", Swin, (1, 1, 32, 32), run=[(3, 1, 32, 32)], dynamic=[BATCH], by=SCRIPT)

# --- functions ------------------------------------------------------------------------------------

function("slices", lambda x: (x[:, 1:3], x[..., ::2], x[:, -1], x[1:, None, 2:-1], x.flip(1)), (3, 4, 5))
function("slices_dynamic", lambda x: (x[:, 1:], x[:, :-1], x[-1], x[:, ::2]), (3, 4), run=[(2, 7)], dynamic=[{0: "n", 1: "t"}], by=BOTH)
function("cats", lambda a, b: (torch.cat([a, b], 1), torch.stack([a, a * 2], -1), torch.cat([a, b, a], -1)), (2, 3), (2, 3))
function("splits", lambda x: (*x.split(2, 1), *x.chunk(2, 0), *x.split([1, 4], 1)), (4, 5), by=BOTH)
function("splits_dynamic", lambda x: (*x.split([2, 3], 1), *x.chunk(2, 2)), (2, 5, 4), run=[(3, 5, 4)], dynamic=[BATCH])
function("unbind", lambda x: x.unbind(1), (2, 3, 2))
function("gathers", lambda x, i: (torch.gather(x, 1, i), x[:, i[0]], torch.index_select(x, 0, i[:, 0]), torch.take_along_dim(x, i, 1)),
         (2, 4), torch.tensor([[0, 1], [1, 0]]))
function("index_rows", lambda x, i: (x[i], x[i, i], F.embedding(i, x)), (4, 4), torch.tensor([[0, 3], [2, 1]]), by=BOTH)
function("index_neg", lambda x, i: x[i], (4, 3), torch.tensor([-1, 0, -4]), by=BOTH)
function("index_mask", lambda x: x[x > 0], (3, 4), by=BOTH)
function("masked", lambda x, y: (torch.where(x > 0, x, y), x.masked_fill(x < 0, -1.5), torch.where(x > 0.5, 1.0, 0.0)), (3, 4), (3, 1))
function("nonzero", lambda x: torch.nonzero(x > 0), (3, 4), by=BOTH)
function("clips", lambda x: (x.clamp(-0.5, 0.5), x.clamp(min=0), x.clamp(max=0.3), F.hardtanh(x)), (3, 4))
function("clip_tensor", lambda x, a, b: torch.clamp(x, a, b), (3, 4), torch.tensor(-0.5), torch.tensor(0.4), by=BOTH)
function("clip_int", lambda x: x.clamp(1, 3), torch.tensor([0, 1, 2, 5]))
function("einsum", lambda a, b: (torch.einsum("bij,bjk->bik", a, b), torch.einsum("bij->bji", a), torch.einsum("bii->bi", a), torch.einsum("bij,bkj->ik", a, a)), (2, 3, 3), (2, 3, 4), by=BOTH)
function("resize_nearest", lambda x: F.interpolate(x, scale_factor=2), (1, 2, 3, 3), run=[(2, 2, 3, 4)], dynamic=[{0: "n", 2: "h", 3: "w"}], by=BOTH)
function("resize_linear", lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"), (1, 2, 3, 3))
function("resize_linear_size", lambda x: F.interpolate(x, size=(5, 7), mode="bilinear", align_corners=False), (1, 2, 3, 4), by=BOTH)
function("resize_like", lambda x, y: F.interpolate(x, size=y.shape[2:], mode="bilinear"), (1, 2, 3, 3), (1, 2, 6, 5),
         run=[(1, 2, 4, 3), (1, 2, 7, 8)], dynamic=[{2: "h", 3: "w"}, {2: "h2", 3: "w2"}], by=BOTH)
function("resize_cubic", lambda x: F.interpolate(x, size=(5, 7), mode="bicubic"), (1, 2, 3, 4), by=BOTH)
function("resize_1d", lambda x: F.interpolate(x, scale_factor=2.5, mode="linear"), (1, 2, 4))
function("resize_exact", lambda x: F.interpolate(x, size=(5, 7), mode="nearest-exact"), (1, 2, 3, 4))
layers("upsample", lambda: nn.Sequential(nn.Upsample(scale_factor=2), nn.Conv2d(2, 2, 3, padding=1)), (1, 2, 3, 3))
function("pads", lambda x: (F.pad(x, (1, 2)), F.pad(x, (1, 0, 2, 1), value=0.5), F.pad(x, (1, 1, 1, 1), mode="reflect"), F.pad(x, (2, 1, 0, 0), mode="replicate"), F.pad(x, (1, 2, 1, 1), mode="circular"), F.pad(x, (-1, 0))), (1, 2, 4, 4))
function("pad_dynamic", lambda x: F.pad(x, (0, 8 - x.shape[1])), (2, 5), run=[(3, 6)], dynamic=[{0: "n", 1: "t"}], by=BOTH)
function("topk", lambda x: (*torch.topk(x, 2), *torch.topk(x, 1, dim=0, largest=False)), (3, 5), by=BOTH)
function("sorted", lambda x: (*torch.sort(x, dim=1, descending=True), torch.argsort(x, 0)), (3, 5))
function("cumsums", lambda x: (x.cumsum(1), x.cumsum(0)), (3, 4))
function("arg", lambda x: (x.argmax(1), x.argmin(0, keepdim=True), x.argmax()), (3, 4))
function("reductions", lambda x: (x.sum(), x.mean(1), x.sum((0, 2), keepdim=True), x.amax(1), x.amin((0, 1)), x.prod(2), x.logsumexp(1), x.norm(dim=1), x.norm(1, 2)), (2, 3, 4), by=BOTH)
function("reductions_2", lambda x: (x.var(1), x.std(), x.var(0, unbiased=False), *x.max(1), *x.min(0), (x > 0).any(1), (x > -1).all(), x.max(), torch.linalg.vector_norm(x, dim=-1)), (3, 4))
function("arithmetic", lambda x, y: (x + y, x - 2 * y, x / (y.abs() + 1), x // 0.3, x % 0.4, x ** 2, x.abs() ** y, torch.fmod(x, 0.4), 1 - x, torch.remainder(x, y), torch.true_divide(x, 3)), (2, 3), (2, 3))
function("integers", lambda x: (x // 2, x % 3, x * 2, -x, x + 1, x / 2, x.float() * 0.5, torch.div(x, 2, rounding_mode="trunc"), x ** 2), torch.tensor([[-3, 2, 5], [7, -8, 0]]))
function("math", lambda x: (x.exp(), x.abs().log(), x.abs().sqrt(), x.abs().rsqrt(), x.sin(), x.cos(), x.tan(), x.tanh(), x.erf(), x.reciprocal(), x.sign(), x.neg()), (2, 3))
function("math_2", lambda x: (x.floor(), x.ceil(), x.round(), x.trunc(), x.frac(), x.expm1(), x.abs().log1p(), x.abs().log2(), x.abs().log10(), x.square(), x.sigmoid(), x.exp2()), (2, 3))
function("compare", lambda x, y: (x > y, x <= y, x == x, x != y, (x > 0) & (y > 0), (x > 0) | (y > 0), ~(x > 0), (x > 0) ^ (y > 0), torch.maximum(x, y), torch.minimum(x, y), torch.isnan(x), torch.isinf(y)), (2, 3), (2, 3))
function("shapes", lambda x: (x.view(2, -1), x.permute(2, 0, 1), x.transpose(0, 1), x.unsqueeze(1), x[:1].squeeze(0), x.reshape(-1), x.flatten(1), x[:1].expand(4, 3, 4), x.repeat(2, 1, 1), x.movedim(0, -1), x.unflatten(2, (2, 2)), x.mT), (2, 3, 4))
function("shapes_dynamic", lambda x: (x.view(x.shape[0], -1), x.reshape(-1, x.shape[2]), x.flatten(0, 1), x.unsqueeze(0).expand(3, -1, -1, -1), x.repeat(2, 1, 1), x.new_zeros(x.shape[0], 2), torch.ones_like(x)), (2, 3, 4), run=[(3, 2, 4)], dynamic=[{0: "n", 1: "t"}])
function("arange_dynamic", lambda x: (x + torch.arange(x.shape[1]), torch.zeros(x.shape[0], 3) + 1, torch.full((x.shape[1],), 2.5), torch.arange(1, x.shape[1] * 2, 2)), (2, 3), run=[(4, 5)], dynamic=[{0: "n", 1: "t"}], by=BOTH)
function("mean_dynamic", lambda x: (x.sum(1) / x.shape[1], x.mean(), x * x.size(0), x.var(1)), (2, 3), run=[(4, 5)], dynamic=[{0: "n", 1: "t"}], by=BOTH)
function("casts", lambda x: (x.double(), x.half().float(), x.int(), x.long(), x.bool(), (x > 0).float(), x.to(torch.uint8), x.bfloat16().float()), torch.tensor([[0.5, 1.75, 2.0], [3.25, 0.0, 4.5]]))
function("triangles", lambda x: (x.tril(), x.triu(1), x.tril(-1), x.diagonal(), torch.diag_embed(x[0])), (4, 4))
function("products", lambda a, b: (a @ b, a[0] @ b[0], torch.bmm(a, b), torch.baddbmm(a @ b, a, b, beta=0.5, alpha=2), a[0] @ b[0, :, 0], torch.addmm(b[0], b[0], b[1].T @ b[1]), torch.outer(a[0, 0], b[0, :, 0])), (2, 3, 4), (2, 4, 4))
function("scatters", lambda x, i, s: (x.scatter(1, i, s), x.scatter_add(1, i, s), x.scatter_reduce(1, i, s, "amax")), (2, 4), torch.tensor([[0, 1], [3, 0]]), (2, 2), by=BOTH)
function("index_put", lambda x, i, s: (x.index_put((i,), s), x.index_add(0, i, s), x.index_copy(0, i, s)), (4, 3), torch.tensor([0, 2]), (2, 3), by=BOTH)
function("index_put_slice", lambda x, y: (torch.slice_scatter(x, y, 1, 1, 3), torch.select_scatter(x, y[:, 0], 1, 0)), (2, 4), (2, 2))
function("one_hot", lambda i: F.one_hot(i, 5), torch.tensor([[0, 3], [4, 1]]), by=BOTH)
function("softmaxes", lambda x: (x.softmax(0), x.log_softmax(1), x.softmax(-1), F.softmin(x, 1)), (2, 3, 4))
function("losses", lambda x, t: (F.cross_entropy(x, t), F.nll_loss(x, t, reduction="none"), F.mse_loss(x, x * 2), F.l1_loss(x, x * 2), F.smooth_l1_loss(x, x * 3), F.huber_loss(x, 3 * x)), (3, 4), torch.tensor([1, 3, 0]))
function("losses_2", lambda x, t: (F.binary_cross_entropy_with_logits(x, t), F.binary_cross_entropy(x.sigmoid(), t), F.kl_div(x, t), F.cosine_similarity(x, t, 1), F.pairwise_distance(x, t)), (3, 4), torch.rand(3, 4, generator=torch.Generator().manual_seed(1)))
function("unfold", lambda x: F.unfold(x, 2, stride=2), (1, 2, 4, 4))
function("window_unfold", lambda x: x.unfold(1, 3, 2), (2, 7))
function("roll", lambda x: (x.roll(1, 0), x.roll((1, 2), (0, 1))), (3, 4))
function("bucket", lambda x: torch.bucketize(x, torch.tensor([-1.0, 0.0, 1.0])), (2, 3))
layers("embedding", lambda: nn.Embedding(6, 3, padding_idx=0), torch.tensor([[0, 2], [1, 5]]))
layers("bilinear", lambda: nn.Bilinear(2, 3, 4), (5, 2), (5, 3))
layers("double", lambda: nn.Linear(3, 2).double(), torch.linspace(-1, 1, 6, dtype=torch.float64).view(2, 3))
layers("half", lambda: nn.Linear(3, 2).half(), torch.linspace(-1, 1, 6, dtype=torch.float16).view(2, 3))
function("bf16", lambda x: (x.bfloat16() @ x.bfloat16().T).float(), (2, 3))
function("constants", lambda x: (x + torch.tensor([1.0, 2.0, 3.0]), torch.eye(3), torch.linspace(0, 1, 3) * x), (2, 3))
function("std_mean", lambda x: torch.std_mean(x, 1), (2, 5))

# --- other versions of the operators --------------------------------------------------------------

layers("attention_23", lambda: SelfAttention(False), (2, 4, 8), opset=23)
function("sdpa_causal_23", lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True), (1, 2, 4, 4), (1, 2, 4, 4), (1, 2, 4, 4), opset=23)
function("sdpa_grouped_23", lambda q, k, v: F.scaled_dot_product_attention(q, k, v, enable_gqa=True), (1, 4, 3, 4), (1, 2, 5, 4), (1, 2, 5, 4), opset=23)
function("sdpa_mask_23", lambda q, k, v, m: F.scaled_dot_product_attention(q, k, v, attn_mask=m > -1), (1, 2, 3, 4), (1, 2, 5, 4), (1, 2, 5, 4), (3, 5), opset=23)
layers("rms_norm_23", lambda: nn.RMSNorm(6), (2, 3, 6), opset=23)
layers("llama_23", Rotary, (2, 4, 8), run=[(1, 5, 8)], dynamic=[{0: "n", 1: "t"}], opset=23)
layers("mlp_13", lambda: nn.Sequential(nn.Linear(5, 4), nn.GELU(), nn.LayerNorm(4), nn.Softmax(-1)), (2, 5), by=SCRIPT, opset=13)
function("reductions_13", lambda x: (x.sum((0, 2), keepdim=True), x.mean(1), x.amax(1), x.logsumexp(1), x.norm(dim=1)), (2, 3, 4), by=SCRIPT, opset=13)
function("resize_13", lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"), (1, 2, 3, 3), by=SCRIPT, opset=13)
function("shapes_17", lambda x: (x.chunk(2, 1), x.split(3, 1), F.pad(x, (1, 2)), x.unsqueeze(1), x.topk(2).values), (2, 6), by=SCRIPT, opset=17)

# --- branches and loops ---------------------------------------------------------------------------


class Branch(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(3, 2), nn.Linear(3, 2)

    def forward(self, x):
        return torch.cond(x.sum() > 0, lambda v: self.a(v).relu(), lambda v: self.b(v) * 2, (x,))


layers("branch", Branch, (2, 3))
layers("branch_else", Branch, -torch.ones(2, 3))
function("while_loop", lambda x: torch.while_loop(lambda i, v: i < 4, lambda i, v: (i + 1, v * 1.5 + i), (torch.tensor(0), x)), (2, 3))


def scanned(x):
    from torch._higher_order_ops.scan import scan
    return scan(lambda c, v: (c * 0.5 + v, c * v), torch.zeros(3), x, dim=0)


function("scan", scanned, (4, 3))


@torch.jit.script
def loop_script(x, n: int):
    for i in range(n):
        x = x * 0.5 + i
    if bool(x.sum() > 0):
        x = x + 1
    else:
        x = x - 1
    return x


class Looping(nn.Module):
    def forward(self, x):
        return loop_script(x, x.shape[0])


layers("loop_script", Looping, (3, 2), by=SCRIPT)

# --- writing --------------------------------------------------------------------------------------


def tensors(specs):
    return tuple(s if isinstance(s, torch.Tensor) else torch.randn(s) for s in specs)


def strip_metadata(path):
    """Removes metadata about the Python program."""
    m = onnx.load(path)
    del m.graph.value_info[:]
    graphs = [m.graph] + list(m.functions)
    while graphs:
        g = graphs.pop()
        del g.metadata_props[:]
        g.ClearField("doc_string")
        for list_of in (g.node, getattr(g, "value_info", []), getattr(g, "input", []), getattr(g, "output", [])):
            for part in list_of:
                if not isinstance(part, str):
                    del part.metadata_props[:]
                    part.ClearField("doc_string")
        for node in g.node:
            graphs += [a.g for a in node.attribute if a.HasField("g")]
        for tensor in getattr(g, "initializer", []):
            del tensor.metadata_props[:]
    onnx.save(m, path)


def export(module, inputs, names, path, dynamic, how, opset):
    options = dict(input_names=names[0], output_names=names[1], verbose=False, opset_version=opset)
    if how == "export":
        shapes = None
        if dynamic:
            sizes = {}
            of = [{k: sizes.setdefault(v, torch.export.Dim.DYNAMIC) for k, v in axes.items()} for axes in dynamic]
            shapes = (tuple(of),) if getattr(module.forward, "__code__").co_flags & 4 else tuple(of)
        torch.onnx.export(module, inputs, path, dynamo=True, dynamic_shapes=shapes, external_data=False, optimize=True, **options)
    else:
        axes = {name: axes for name, axes in zip(names[0], dynamic or [])}
        torch.onnx.export(module, inputs, path, dynamo=False, dynamic_axes=axes or None, **options)
    strip_metadata(path)


def flat_list(y):
    return [v for part in y for v in flat_list(part)] if isinstance(y, (tuple, list)) else [y]


def export_model(name, folder):
    how, specs, options = MODELS[name]
    torch.manual_seed(len(name))
    inputs, other = tensors(specs), tensors(options.get("run", ()))
    module = how().eval()
    with torch.no_grad():
        result = flat_list(module(*(other or inputs)))
    names = ([f"i{k}" for k in range(len(inputs))], [f"o{k}" for k in range(len(result))])
    failed = []
    for by in options.get("by", ["export"]):
        path = os.path.join(folder, name + (".onnx" if by == "export" else ".script.onnx"))
        try:
            with torch.no_grad():
                export(module, inputs, names, path, options.get("dynamic"), by, options.get("opset"))
        except Exception as e:  # noqa: BLE001
            text = str(e).strip().splitlines()
            failed.append(f"{name} by {by}: {type(e).__name__}: {text[0][:200] if text else ''}")
    if any(os.path.exists(os.path.join(folder, name + end)) for end in (".onnx", ".script.onnx")):
        save_sample(os.path.join(folder, name + ".pb"), [x.numpy() for x in other or inputs], [y.detach().numpy() for y in result])
    return failed


def main():
    warnings.filterwarnings("ignore")
    folder = sys.argv[1] if len(sys.argv) > 1 else os.path.join(os.path.dirname(os.path.abspath(__file__)), "torch")
    part = sys.argv[2] if len(sys.argv) > 2 else ""
    os.makedirs(folder, exist_ok=True)
    for name in MODELS:
        if part in name:
            for line in export_model(name, folder):
                print(line, flush=True)


if __name__ == "__main__":
    main()
