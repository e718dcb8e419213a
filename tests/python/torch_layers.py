"""Every layer that PyTorch has, too: the same arguments, names and shapes of state, and, with PyTorch's weights, the same
outputs, gradients and buffers, for random configurations in f64. Needs torch; the number of rounds may follow."""
import inspect
import random
import sys
import warnings

import torch

import gradus as gd

warnings.simplefilter("ignore")
ROUNDS = int(sys.argv[1]) if len(sys.argv) > 1 else 6
passed, failures, found = 0, [], set()
rng = random.Random(1)

# What PyTorch has and gradus.nn has not, and why.
ABSENT = {
    "AdaptiveLogSoftmaxWithLoss": "no op", "CTCLoss": "no op", "CrossMapLRN2d": "an old name of LocalResponseNorm",
    "Container": "abstract", "DataParallel": "no copies on several devices", "FractionalMaxPool2d": "no op",
    "FractionalMaxPool3d": "no op", "LinearCrossEntropyLoss": "no op", "SyncBatchNorm": "no process groups",
    "RNNBase": "abstract", "RNNCellBase": "abstract",
}
# Arguments whose names, order or defaults differ, and why.
DIFFERS = {
    "Softmax": "dim=None of PyTorch is deprecated; the default is the last axis", "LogSoftmax": "as Softmax",
    "Softmin": "as Softmax", "RNN": "PyTorch's signature is (*args, **kwargs)", "LSTM": "as RNN", "GRU": "as RNN",
}
NOTHING = {"Sigmoid", "Tanh", "Softsign", "Tanhshrink", "LogSigmoid", "Softmax2d", "Identity", "Module", "ModuleList",
           "ModuleDict", "ParameterList", "ParameterDict", "Sequential"}


def check(name, good, text=""):
    global passed
    passed += bool(good)
    if not good:
        failures.append(f"{name}: {text}")
        print("FAILED", name, text)


# --- signatures -----------------------------------------------------------------------------------


def arguments(cls):
    kinds = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return [p for p in list(inspect.signature(cls.__init__).parameters.values())[1:]
            if p.name not in ("device", "dtype") and p.kind not in kinds]


def default(p):
    value = p.default
    if callable(value) and value is not inspect.Parameter.empty:
        return value.__name__
    return tuple(value) if isinstance(value, list) else value


for name in sorted(dir(torch.nn)):
    theirs = getattr(torch.nn, name)
    if not (isinstance(theirs, type) and issubclass(theirs, torch.nn.Module)):
        continue
    ours = getattr(gd.nn, name, None)
    if name in ABSENT:
        check(name, ours is None, "is there now; remove it from ABSENT")
        continue
    if ours is None:
        check(name, False, "is not there")
        continue
    found.add(name)
    if name in NOTHING or name in DIFFERS or name.startswith("Lazy"):
        continue
    own, wanted = {p.name: p for p in arguments(ours)}, arguments(theirs)
    positional = [p.name for p in own.values() if p.kind is not inspect.Parameter.KEYWORD_ONLY]
    names = [p.name for p in wanted if p.kind is not inspect.Parameter.KEYWORD_ONLY]
    check(name, positional[:len(names)] == names, f"has {positional}, PyTorch {names}")
    for p in wanted:
        if p.name in own:
            a, b = default(own[p.name]), default(p)
            same = a == b or (a in (0, (0,)) and b == 0) or (isinstance(a, tuple) and set(a) == {b})
            check(name, same, f"{p.name} is {a!r}, in PyTorch {b!r}")


# --- configurations -------------------------------------------------------------------------------


def one(*values):
    return rng.choice(values)


def real(*shape):
    return torch.randn(*shape, dtype=torch.float64)


def image(n, channels, size=None, batch=True):
    sizes = [size or rng.randint(6, 9) for _ in range(n)]
    return real(*([2] if batch else []), channels, *sizes)


CONFIGS = {}


def configure(*names):
    def note(make):
        for name in names:
            CONFIGS[name] = make
        return make

    return note


@configure("ReLU", "ReLU6", "LeakyReLU", "ELU", "SELU", "CELU", "Sigmoid", "LogSigmoid", "Tanh", "SiLU", "Mish", "Softplus",
           "Softsign", "Hardsigmoid", "Hardswish", "GELU", "Tanhshrink", "Hardshrink", "Softshrink", "Hardtanh", "Identity")
def activation(name):
    names = {}
    if name in ("ELU", "CELU"):
        names = {"alpha": one(1.0, 0.7)}
    if name == "LeakyReLU":
        names = {"negative_slope": one(0.01, 0.3)}
    if name == "GELU":
        names = {"approximate": one("none", "tanh")}
    if name == "Softplus":
        names = {"beta": one(1.0, 2.0), "threshold": one(20.0, 1.0)}
    if name == "Hardtanh":
        names = {"min_val": -0.5, "max_val": one(0.7, 1.0)}
    if name in ("Hardshrink", "Softshrink"):
        names = {"lambd": one(0.5, 0.2)}
    return (), names, [real(3, 5)]


@configure("Threshold")
def threshold(name):
    return (0.1, one(-1.0, 20.0)), {}, [real(3, 5)]


@configure("RReLU")
def rrelu(name):
    return (0.1, 0.3), {"eval": True}, [real(3, 5)]


@configure("PReLU")
def prelu(name):
    n = one(1, 4)
    return (n,), {"init": 0.3}, [real(3, 4, 5)]


@configure("Softmax", "LogSoftmax", "Softmin", "GLU")
def with_dim(name):
    return (), {"dim": one(-1, 1, 0)}, [real(4, 6, 2)]


@configure("Softmax2d")
def softmax2d(name):
    return (), {}, [image(2, 3, batch=one(True, False))]


@configure("MultiheadAttention")
def attention(name):
    first, n, length, source = one(True, False), 2, rng.randint(2, 4), rng.randint(2, 5)
    names = {"bias": one(True, False), "batch_first": first, "add_bias_kv": one(True, False),
             "add_zero_attn": one(True, False)}
    widths = {"kdim": 6, "vdim": 10} if one(True, False) else {}
    shape = (lambda t, e: (n, t, e)) if first else (lambda t, e: (t, n, e))
    call = {"need_weights": one(True, False), "average_attn_weights": one(True, False)}
    if one(True, False):
        mask = torch.zeros(n, source, dtype=torch.bool)
        mask[1, -1] = True
        call["key_padding_mask"] = mask
    if one(True, False):
        call["attn_mask"] = torch.randn(one((length, source), (n * 2, length, source)), dtype=torch.float64)
        if "key_padding_mask" in call:
            call["key_padding_mask"] = torch.zeros(n, source, dtype=torch.float64)
    return (8, 2), {**names, **widths, "call": call}, [real(*shape(length, 8)), real(*shape(source, widths.get("kdim", 8))),
                                                     real(*shape(source, widths.get("vdim", 8)))]


@configure("Conv1d", "Conv2d", "Conv3d")
def conv(name):
    n, groups = int(name[-2]), one(1, 2)
    names = {"stride": one(1, 2), "padding": one(0, 1, "valid"), "dilation": one(1, 2), "groups": groups,
             "bias": one(True, False), "padding_mode": one("zeros", "reflect", "replicate", "circular")}
    if one(True, False):
        names.update(stride=1, padding="same")
    if isinstance(names["padding"], str):
        names["padding_mode"] = "zeros"
    if names["padding"] == "same" and one(True, False):
        names["dilation"] = 2
    return (4, 6, one(3, (3,) * n, (2, 3, 2)[:n] if names["padding"] != "same" else 3)), names, [image(n, 4)]


@configure("ConvTranspose1d", "ConvTranspose2d", "ConvTranspose3d")
def transpose(name):
    n = int(name[-2])
    names = {"stride": 2, "padding": one(0, 1), "output_padding": one(0, 1), "groups": one(1, 2), "bias": one(True, False),
             "dilation": one(1, 2)}
    return (4, 6, 3), names, [image(n, 4, 4)]


@configure("CosineSimilarity")
def cosine(name):
    return (), {"dim": one(0, 1)}, [real(3, 4), real(3, 4)]


@configure("PairwiseDistance")
def distance(name):
    return (), {"p": one(1.0, 2.0), "keepdim": one(True, False)}, [real(3, 4), real(3, 4)]


@configure("Dropout", "Dropout1d", "Dropout2d", "Dropout3d", "AlphaDropout", "FeatureAlphaDropout")
def dropout(name):
    return (0.3,), {"inplace": False, "eval": True}, [image(int(name[-2]) if name[-1] == "d" else 2, 3)]


@configure("Linear")
def linear(name):
    return (4, 3), {"bias": one(True, False)}, [real(*one((4,), (2, 4), (2, 3, 4)))]


@configure("LazyLinear")
def lazy_linear(name):
    return (3,), {"lazy": True}, [real(2, 4)]


@configure("LazyConv1d", "LazyConv2d", "LazyConv3d", "LazyConvTranspose1d", "LazyConvTranspose2d", "LazyConvTranspose3d")
def lazy_conv(name):
    return (5, 3), {"lazy": True, "stride": one(1, 2)}, [image(int(name[-2]), 4)]


@configure("LazyBatchNorm1d", "LazyBatchNorm2d", "LazyBatchNorm3d", "LazyInstanceNorm1d", "LazyInstanceNorm2d",
           "LazyInstanceNorm3d")
def lazy_norm(name):
    return (), {"lazy": True}, [image(int(name[-2]), 4)]


@configure("Bilinear")
def bilinear(name):
    return (3, 4, 2), {"bias": one(True, False)}, [real(5, 3), real(5, 4)]


@configure("Embedding")
def embedding(name):
    return (10, 3), {"padding_idx": one(None, 2, -1)}, [torch.randint(10, (2, 4))]


@configure("EmbeddingBag")
def bag(name):
    offsets = one(True, False)
    names = {"mode": one("sum", "mean", "max"), "padding_idx": one(None, 2)}
    return (10, 3), names, ([torch.randint(10, (8,)), torch.tensor([0, 3, 5])] if offsets else [torch.randint(10, (3, 4))])


def reduction():
    return one("mean", "sum", "none")


@configure("MSELoss", "L1Loss", "SmoothL1Loss", "HuberLoss", "KLDivLoss", "PoissonNLLLoss")
def regression(name):
    names = {"reduction": reduction()}
    if name == "SmoothL1Loss":
        names["beta"] = one(1.0, 0.5)
    if name == "HuberLoss":
        names["delta"] = one(1.0, 0.5)
    if name == "KLDivLoss":
        names.update(log_target=one(True, False), reduction=one("batchmean", "sum", "mean"))
    if name == "PoissonNLLLoss":
        names.update(log_input=True, full=one(True, False))
    return (), names, [real(4, 3), real(4, 3).abs() + 0.1]


@configure("GaussianNLLLoss")
def gaussian(name):
    return (), {"full": one(True, False), "reduction": reduction()}, [real(4, 3), real(4, 3), real(4, 3).abs() + 0.2]


@configure("BCELoss", "BCEWithLogitsLoss", "MultiLabelSoftMarginLoss")
def binary(name):
    x = real(4, 3)
    names = {"reduction": reduction()}
    if one(True, False):
        names["weight"] = real(3).abs()
    if name == "BCEWithLogitsLoss" and one(True, False):
        names["pos_weight"] = real(3).abs()
    return (), names, [x.sigmoid() if name == "BCELoss" else x, torch.randint(2, (4, 3)).double()]


@configure("SoftMarginLoss", "HingeEmbeddingLoss")
def signs(name):
    return (), {"reduction": reduction()}, [real(4, 3), torch.randint(2, (4, 3)) * 2 - 1]


@configure("MarginRankingLoss", "CosineEmbeddingLoss")
def ranking(name):
    rows = (4,) if name == "MarginRankingLoss" else (4, 3)
    return (), {"margin": one(0.0, 0.3), "reduction": reduction()}, [real(*rows), real(*rows), torch.randint(2, (4,)) * 2 - 1]


@configure("TripletMarginLoss", "TripletMarginWithDistanceLoss")
def triplet(name):
    return (), {"margin": one(1.0, 0.5), "swap": one(True, False), "reduction": reduction()}, [real(4, 3) for _ in range(3)]


@configure("NLLLoss", "CrossEntropyLoss", "NLLLoss2d")
def classes(name):
    shape = one((4, 5), (4, 5, 3), (2, 5, 3, 2))
    names = {"reduction": reduction(), "ignore_index": one(-100, 2)}
    if one(True, False):
        names["weight"] = real(5).abs()
    if name == "CrossEntropyLoss":
        names["label_smoothing"] = one(0.0, 0.1)
    return (), names, [real(*shape), torch.randint(5, (shape[0], *shape[2:]))]


@configure("MultiMarginLoss")
def multi_margin(name):
    names = {"p": one(1, 2), "margin": one(1.0, 0.5), "reduction": reduction()}
    if one(True, False):
        names["weight"] = real(5).abs()
    return (), names, [real(4, 5), torch.randint(5, (4,))]


@configure("MultiLabelMarginLoss")
def multi_label(name):
    return (), {"reduction": reduction()}, [real(2, 4), torch.tensor([[3, 0, -1, 1], [1, -1, 2, 0]])]


@configure("BatchNorm1d", "BatchNorm2d", "BatchNorm3d", "InstanceNorm1d", "InstanceNorm2d", "InstanceNorm3d")
def norm(name):
    names = {"affine": one(True, False), "track_running_stats": one(True, False), "eps": one(1e-5, 1e-3),
             "momentum": one(0.1, 0.3)}
    if name[0] == "B":
        names["momentum"] = one(0.1, None)
    return (4,), {**names, "eval": one(True, False)}, [image(int(name[-2]), 4)]


@configure("LayerNorm")
def layer_norm(name):
    return (one(4, [4], (3, 4)),), {"elementwise_affine": one(True, False), "bias": one(True, False)}, [real(2, 3, 4)]


@configure("RMSNorm")
def rms_norm(name):
    return (one(4, [4], (3, 4)),), {"elementwise_affine": one(True, False), "eps": one(None, 1e-5)}, [real(2, 3, 4)]


@configure("GroupNorm")
def group_norm(name):
    return (one(1, 2, 4), 4), {"affine": one(True, False)}, [real(2, 4, 5)]


@configure("LocalResponseNorm")
def response(name):
    return (one(2, 3),), {"alpha": 0.1, "beta": 0.7, "k": 1.5}, [real(2, 5, 4)]


@configure(*[f"{kind}Pad{n}d" for kind in ("Zero", "Constant", "Reflection", "Replication", "Circular") for n in (1, 2, 3)])
def pad(name):
    n = int(name[-2])
    sizes = one(1, tuple(rng.randint(0, 2) for _ in range(2 * n)))
    return (sizes, 0.5) if name[0:3] == "Con" else (sizes,), {}, [image(n, 2)]


@configure("MaxPool1d", "MaxPool2d", "MaxPool3d")
def max_pool(name):
    n = int(name[-2])
    return (one(2, 3),), {"stride": one(None, 1, 2), "padding": one(0, 1), "ceil_mode": one(True, False),
                          "return_indices": one(True, False), "dilation": one(1, 2)}, [image(n, 3, batch=one(True, False))]


@configure("AvgPool1d", "AvgPool2d", "AvgPool3d")
def avg_pool(name):
    names = {"stride": one(None, 1, 2), "padding": one(0, 1), "ceil_mode": one(True, False),
             "count_include_pad": one(True, False)}
    if name != "AvgPool1d":
        names["divisor_override"] = one(None, 3)
    return (one(2, 3),), names, [image(int(name[-2]), 3)]


@configure("LPPool1d", "LPPool2d", "LPPool3d")
def lp_pool(name):
    return (2, one(2, 3)), {"stride": one(None, 1, 2), "ceil_mode": one(True, False)}, [image(int(name[-2]), 3).abs()]


@configure("AdaptiveAvgPool1d", "AdaptiveAvgPool2d", "AdaptiveAvgPool3d", "AdaptiveMaxPool1d", "AdaptiveMaxPool2d",
           "AdaptiveMaxPool3d")
def adaptive(name):
    n = int(name[-2])
    size = one(2, 3, 4 if n == 1 else (None, 2, 3)[:n])
    return (size,), {"return_indices": one(True, False)} if "Max" in name else {}, [image(n, 3)]


@configure("MaxUnpool1d", "MaxUnpool2d", "MaxUnpool3d")
def unpool(name):
    n = int(name[-2])
    y, at = getattr(torch.nn.functional, f"max_pool{n}d")(image(n, 3, 6), 2, return_indices=True)
    return (2,), {"call": one({}, {"output_size": (6,) * n})}, [y, at]


@configure("RNN", "LSTM", "GRU")
def recurrent(name):
    first, both, layers = one(True, False), one(True, False), one(1, 2)
    names = {"num_layers": layers, "bias": one(True, False), "batch_first": first, "bidirectional": both}
    if name == "RNN":
        names["nonlinearity"] = one("tanh", "relu")
    state = real(layers * (1 + both), 2, 3)
    if name == "LSTM":
        state = (state, real(layers * (1 + both), 2, 3))
    x = real(2, 4, 5) if first else real(4, 2, 5)
    return (5, 3), names, [x] + ([state] if one(True, False) else [])


@configure("RNNCell", "LSTMCell", "GRUCell")
def cell(name):
    names = {"bias": one(True, False)}
    if name == "RNNCell":
        names["nonlinearity"] = one("tanh", "relu")
    state = real(2, 3)
    return (5, 3), names, [real(2, 5)] + ([(state, real(2, 3)) if name[0] == "L" else state] if one(True, False) else [])


@configure("Flatten")
def flatten(name):
    return (), {"start_dim": one(1, 0), "end_dim": one(-1, 2)}, [real(2, 3, 4, 2)]


@configure("Unflatten")
def unflatten(name):
    return (1, one((2, 3), (-1, 2))), {}, [real(2, 6, 2)]


@configure("PixelShuffle", "PixelUnshuffle", "ChannelShuffle")
def shuffle(name):
    return (2,), {}, [real(2, 8, 4, 6)]


@configure("Upsample")
def upsample(name):
    n = rng.randint(1, 3)
    mode = one("nearest", ("linear", "bilinear", "trilinear")[n - 1])
    names = one({"size": 11}, {"scale_factor": 2}, {"scale_factor": (2.0, 3.0, 1.5)[:n]})
    if mode != "nearest":
        names["align_corners"] = one(True, False)
    return (), {"mode": mode, **names}, [image(n, 2)]


@configure("UpsamplingNearest2d", "UpsamplingBilinear2d")
def upsampling(name):
    return (), one({"size": (9, 11)}, {"scale_factor": 2}), [image(2, 2)]


@configure("Fold")
def fold(name):
    return ((6, 7), (2, 3)), {"padding": 1, "stride": one(1, 2)}, None


@configure("Unfold")
def unfold(name):
    return ((2, 3),), {"padding": one(0, 1), "stride": one(1, 2), "dilation": one(1, 2)}, [image(2, 3)]


def transformer_names():
    return {"dim_feedforward": 16, "dropout": 0.0, "activation": one("relu", "gelu"), "batch_first": one(True, False),
            "norm_first": one(True, False), "bias": one(True, False)}


@configure("TransformerEncoderLayer")
def encoder_layer(name):
    call = {"src_mask": torch.triu(torch.full((4, 4), float("-inf"), dtype=torch.float64), 1)} if one(True, False) else {}
    names = transformer_names()
    return (8, 2), {**names, "call": call}, [real(2, 4, 8) if names["batch_first"] else real(4, 2, 8)]


@configure("TransformerDecoderLayer")
def decoder_layer(name):
    names = transformer_names()
    x, memory = real(4, 2, 8), real(3, 2, 8)
    both = [x.transpose(0, 1), memory.transpose(0, 1)] if names["batch_first"] else [x, memory]
    return (8, 2), names, [t.contiguous() for t in both]


@configure("TransformerEncoder", "TransformerDecoder")
def stack(name):
    return (8, 2), {"stack": True, "dim_feedforward": 16, "dropout": 0.0}, [real(4, 2, 8)] + (
        [real(3, 2, 8)] if "De" in name else [])


@configure("Transformer")
def transformer(name):
    return (8, 2, 1, 2, 16), {"dropout": 0.0, "norm_first": one(True, False)}, [real(4, 2, 8), real(3, 2, 8)]


# --- comparison -----------------------------------------------------------------------------------


def ours_of(value, leaves=None):
    if isinstance(value, torch.Tensor):
        t = gd.tensor(value.detach().numpy())
        if leaves is not None and value.is_floating_point():
            t.requires_grad_()
            leaves.append(t)
        return t
    if isinstance(value, tuple):
        return tuple(ours_of(v, leaves) for v in value)
    return {k: ours_of(v) for k, v in value.items()} if isinstance(value, dict) else value


def theirs_of(value, leaves):
    if isinstance(value, torch.Tensor):
        t = value.clone()
        if t.is_floating_point():
            t.requires_grad_()
            leaves.append(t)
        return t
    return tuple(theirs_of(v, leaves) for v in value) if isinstance(value, tuple) else value


def flat(y):
    return [t for part in y for t in flat(part)] if isinstance(y, (tuple, list)) else [y]


def same(a, b):
    if a is None or b is None:
        return a is None and b is None
    b = b.detach()
    return tuple(a.shape) == tuple(b.shape) and torch.allclose(torch.from_numpy(a.detach().numpy()).to(b.dtype), b, 1e-7, 1e-9,
                                                               equal_nan=True)


def make(library, name, args, names, dtype):
    cls = getattr(library.nn, name)
    parameterless = name in ("Fold", "Unfold") or name.startswith("Upsampl") or name.startswith("TripletMarginWith")
    if name in ("TransformerEncoder", "TransformerDecoder"):
        layer = getattr(library.nn, name + "Layer")(*args, dtype=dtype, **names)
        return cls(layer, 2, library.nn.LayerNorm(8, dtype=dtype))
    has_dtype = "dtype" in inspect.signature(getattr(torch.nn, name).__init__).parameters or "kwargs" in inspect.signature(
        getattr(torch.nn, name).__init__).parameters and name in ("RNN", "LSTM", "GRU")
    return cls(*args, **names, **({"dtype": dtype} if has_dtype and not parameterless else {}))


def compare(name):
    args, names, inputs = CONFIGS[name](name)
    call, evaluates, lazy = names.pop("call", {}), names.pop("eval", False), names.pop("lazy", False)
    names.pop("stack", None)
    if inputs is None:  # of Fold
        shape = torch.nn.Unfold(args[1], padding=names["padding"], stride=names["stride"])(real(2, 3, *args[0]))
        inputs = [real(*shape.shape)]
    text = f"{name}(*{args}, **{ {k: v for k, v in names.items() if not isinstance(v, torch.Tensor)} }) {call.keys()}"
    theirs = make(torch, name, args, names, torch.float64)
    ours = make(gd, name, args, {k: ours_of(v) for k, v in names.items()}, gd.float64)
    leaves, own = [], []
    b_in, a_in = [theirs_of(x, leaves) for x in inputs], [ours_of(x, own) for x in inputs]
    if lazy:
        theirs(*b_in), ours(*a_in)
    for module in (theirs, ours):
        module.train(not evaluates)
    wanted = theirs.state_dict()
    shapes = {k: tuple(v.shape) for k, v in wanted.items()}
    check(text, {k: tuple(v.shape) for k, v in ours.state_dict().items()} == shapes,
          f"state {ours.state_dict().keys()}, PyTorch {shapes}")
    check(text, list(ours.state_dict()) == list(shapes), f"order of state {list(ours.state_dict())}, PyTorch {list(shapes)}")
    ours.load_state_dict(wanted)
    b = flat(theirs(*b_in, **call))
    a = flat(ours(*a_in, **ours_of(call)))
    check(text, len(a) == len(b) and all(same(x, y) for x, y in zip(a, b)), "outputs")
    pairs = [(x, y) for x, y in zip(a, b) if y is not None and y.requires_grad]
    if pairs:
        factors = [torch.randn(y.shape, dtype=torch.float64) for _, y in pairs]
        sum((y * f).sum() for (_, y), f in zip(pairs, factors)).backward()
        total = None
        for (x, _), f in zip(pairs, factors):
            part = (x * gd.tensor(f.numpy())).sum()
            total = part if total is None else total + part
        total.backward()
        for k, (x, y) in enumerate(zip(own, leaves)):
            if y.grad is not None:
                check(text, same(x.grad, y.grad), f"gradient of input {k}")
        grads = dict(ours.named_parameters())
        for k, p in theirs.named_parameters():
            check(text, p.grad is None or same(grads[k].grad, p.grad), f"gradient of {k}")
    for k, v in theirs.state_dict().items():
        check(text, same(ours.state_dict()[k], v), f"{k} after the call")


torch.manual_seed(1)
containers = {"Module", "ModuleList", "ModuleDict", "ParameterList", "ParameterDict", "Sequential"}
check("configurations", not found - set(CONFIGS) - containers, str(sorted(found - set(CONFIGS) - containers)))
for name in sorted(set(CONFIGS) & found):
    for _ in range(ROUNDS):
        state = rng.getstate()
        try:
            compare(name)
        except Exception as error:  # noqa: BLE001
            rng.setstate(state)
            args, names, _ = CONFIGS[name](name)
            check(name, False, f"{type(error).__name__}: {error} for {args} "
                  f"{ {k: v for k, v in names.items() if not isinstance(v, torch.Tensor)} }")
print(f"{len(found)} classes; absent: {', '.join(ABSENT)}")
print(f"{passed} passed, {len(failures)} failed")
raise SystemExit(bool(failures))
