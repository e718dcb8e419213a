"""windows.py - layers with weights and windows."""
import numpy as np

from case import Case, E, generator, layer


def sizes(r, axes, least, most):
    """A repeated field: one number, or one for each axis."""
    return r.integer(least, most) if r.maybe() else [r.integer(least, most) for _ in range(axes)]


def window_fields(r, axes):
    """kernel, stride, pad and dilation of a convolution over `axes` axes."""
    p = {}
    if axes == 2 and r.maybe(0.3):
        p["kernel_h"], p["kernel_w"] = r.integer(1, 3), r.integer(1, 4)
    else:
        p["kernel_size"] = sizes(r, axes, 1, 3)
    if axes == 2 and r.maybe(0.2):
        p["stride_h"], p["stride_w"] = r.integer(1, 3), r.integer(1, 3)
    elif r.maybe():
        p["stride"] = sizes(r, axes, 1, 3)
    if axes == 2 and r.maybe(0.2):
        p["pad_h"], p["pad_w"] = r.integer(0, 2), r.integer(0, 2)
    elif r.maybe():
        p["pad"] = sizes(r, axes, 0, 2)
    if r.maybe(0.3):
        p["dilation"] = sizes(r, axes, 1, 2)
    if r.maybe(0.2):
        p["force_nd_im2col"] = True
    return p


def convolution(r, type_name):
    axes = r.choice([0, 1, 2, 2, 2, 2, 3])
    lead = r.choice([0, 1, 1, 1, 1, 1, 2])
    group = r.choice([1, 1, 1, 2, 3])
    p = window_fields(r, axes) if axes else {}
    p.update(num_output=group * r.integer(1, 3), group=group if group > 1 or r.maybe(0.2) else None)
    p["bias_term"] = r.choice([None, True, False])
    if lead != 1 or r.maybe(0.2):
        p["axis"] = lead - (lead + 1 + axes) if r.maybe(0.3) else lead
    shape = r.shape(lead, 1, 3) + (group * r.integer(1, 2),) + tuple(r.integer(5, 8) for _ in range(axes))
    count = r.choice([1, 1, 1, 2, 3])
    names = ["x%d" % i for i in range(count)]
    return Case(layer(type_name, names, ["y%d" % i for i in range(count)], convolution_param=p),
                {name: shape for name in names})


@generator("Convolution", 120)
def convolve(r):
    return convolution(r, "Convolution")


@generator("Convolution", 20)
def convolve_reaching_beyond(r):
    """A window that is a little larger than the plane: Caffe's division by the stride rounds to 0."""
    kernel = r.integer(3, 6)
    stride = r.integer(2, 4)
    pad = r.integer(0, 1)
    size = kernel - 2 * pad - r.integer(1, stride)
    if size < 1:
        size = 1
    return Case(layer("Convolution", ["x"], ["y"], convolution_param=dict(num_output=2, kernel_size=kernel, stride=stride,
                                                                          pad=pad)), {"x": (2, 2, size, r.integer(6, 8))},
                refused=size + 2 * pad - kernel <= -stride)


@generator("Convolution", 10)
def convolve_wrongly(r):
    p = {"num_output": 2, "kernel_size": 3}
    wrong = r.choice([{"group": 2}, {"kernel_size": None}, {"kernel_size": [3, 3, 3]}, {"stride": 0}, {"kernel_h": 2},
                      {"num_output": 0}, {"num_output": None}, {"axis": 4}])
    p.update(wrong)
    return Case(layer("Convolution", ["x"], ["y"], convolution_param=p), {"x": (1, 3, 5, 5)}, refused=True)


@generator("Convolution", 10)
def convolve_shared(r):
    """Two layers with the same weights."""
    p = dict(num_output=3, kernel_size=r.integer(1, 3), pad=1)
    param = [{"name": "w"}, {"name": "b"}]
    return Case(layer("Convolution", ["a"], ["c"], convolution_param=p, param=param) +
                layer("Convolution", ["b"], ["d"], convolution_param=p, param=param),
                {"a": (2, 2, 5, 5), "b": (1, 2, 4, 6)})


@generator("Deconvolution", 120)
def deconvolve(r):
    return convolution(r, "Deconvolution")


@generator("Im2col", 50)
def im2col(r):
    axes = r.integer(1, 3)
    p = window_fields(r, axes)
    p["num_output"] = None
    lead = r.choice([1, 1, 1, 2])
    if lead != 1:
        p["axis"] = lead
    if axes != 2:
        p["force_nd_im2col"] = True
    return Case(layer("Im2col", ["x"], ["y"], convolution_param=p),
                {"x": r.shape(lead, 1, 2) + (r.integer(1, 3),) + tuple(r.integer(5, 7) for _ in range(axes))})


@generator("InnerProduct", 60)
def inner_product(r):
    rank = r.integer(1, 5)
    shape = r.shape(rank)
    axis = r.integer(0, rank - 1)
    p = {"num_output": r.integer(1, 6)}
    if r.maybe(0.8):
        p["axis"] = axis - rank if r.maybe(0.3) else axis
    elif rank < 2:
        p["axis"] = 0
    if r.maybe(0.4):
        p["transpose"] = r.maybe()
    if r.maybe(0.4):
        p["bias_term"] = r.maybe()
    return Case(layer("InnerProduct", ["x"], ["y"], inner_product_param=p), {"x": shape})


@generator("InnerProduct", 10)
def inner_product_shared(r):
    """Weights with another shape of as many elements."""
    axis = r.choice([1, 2])
    first = {"name": "w", "share_mode": E("PERMISSIVE")}
    return Case(layer("InnerProduct", ["a"], ["c"], inner_product_param=dict(num_output=4, bias_term=False), param=[first]) +
                layer("InnerProduct", ["b"], ["d"], inner_product_param=dict(num_output=6, bias_term=False), param=[first]),
                {"a": (2, 3, 2), "b": (3, 4) if axis == 1 else (2, 2, 2)})


@generator("Embed", 30)
def embed(r):
    rows = r.integer(1, 6)
    p = {"num_output": r.integer(1, 5), "input_dim": rows, "bias_term": r.choice([None, True, False])}
    return Case(layer("Embed", ["x"], ["y"], embed_param=p, loss_weight=1.0), {"x": r.integers(r.shape(r.integer(1, 3)), 0, rows - 1)},
                force=False, no_input_grad=["x"])


def pooling_fields(r, pads=True):
    p = {}
    kernel = [r.integer(1, 4), r.integer(1, 4)]
    if r.maybe(0.3):
        p["kernel_h"], p["kernel_w"] = kernel
    else:
        p["kernel_size"] = kernel[0]
        kernel[1] = kernel[0]
    if r.maybe(0.2):
        p["stride_h"], p["stride_w"] = r.integer(1, 4), r.integer(1, 4)
    elif r.maybe(0.7):
        p["stride"] = r.integer(1, 4)
    if pads and r.maybe(0.5):
        if r.maybe(0.4):
            p["pad_h"], p["pad_w"] = r.integer(0, kernel[0] - 1), r.integer(0, kernel[1] - 1)
        else:
            p["pad"] = r.integer(0, min(kernel) - 1)
    return p


def lies_outside(shape, p, up=True):
    """Whether a window has no elements, where Caffe's average may be 0 / 0, and its gradient of a maximum
    is written before the plane."""
    if p.get("pad") or p.get("pad_h") or p.get("pad_w"):
        return False
    for i, side in enumerate("hw"):
        kernel, stride = p.get("kernel_" + side, p.get("kernel_size")), p.get("stride_" + side, p.get("stride", 1))
        windows = -(-(shape[2 + i] - kernel) // stride) + 1
        if (windows - 1) * stride >= shape[2 + i]:
            return True
    return False


@generator("Pooling", 150)
def pooling(r):
    p = pooling_fields(r)
    p["pool"] = r.choice([None, E("MAX"), E("AVE")])
    shape = r.shape(2, 1, 3) + (r.integer(4, 9), r.integer(4, 9))
    tops = ["y"]
    if p["pool"] != "AVE" and r.maybe(0.4):
        tops.append("mask")
    if lies_outside(shape, p):
        p["stride"] = p["stride_h"] = p["stride_w"] = None
    return Case(layer("Pooling", ["x"], tops, pooling_param=p), {"x": shape}, no_grad=["mask"])


@generator("Pooling", 30)
def pooling_rounding_down(r):
    p = pooling_fields(r)
    p["round_mode"] = E("FLOOR")
    p["pool"] = r.choice([None, E("MAX"), E("AVE")])
    return Case(layer("Pooling", ["x"], ["y"], pooling_param=p), {"x": r.shape(2, 1, 3) + (r.integer(4, 9), r.integer(4, 9))})


@generator("Pooling", 40)
def pooling_outside(r):
    """A last window that has no elements."""
    kernel, stride = r.integer(1, 2), r.integer(3, 4)
    size = kernel + stride * r.integer(1, 2) + r.integer(1, stride - 1)
    p = dict(kernel_size=kernel, stride=stride, pool=E("MAX"))
    return Case(layer("Pooling", ["x"], ["y", "mask"], pooling_param=p), {"x": (2, 2, size, size + 1)}, backward=False)


@generator("Pooling", 20)
def pooling_global(r):
    p = dict(global_pooling=True, pool=r.choice([E("MAX"), E("AVE")]))
    return Case(layer("Pooling", ["x"], ["y"], pooling_param=p), {"x": r.shape(4)})


@generator("Pooling", 20)
def pooling_with_ties(r):
    p = pooling_fields(r)
    shape = (1, 2, r.integer(4, 6), r.integer(4, 6))
    if lies_outside(shape, p):
        p["stride"] = p["stride_h"] = p["stride_w"] = None
    return Case(layer("Pooling", ["x"], ["y", "mask"], pooling_param=p), {"x": r.integers(shape, -1, 1)}, no_grad=["mask"])


@generator("Pooling", 10)
def pooling_wrongly(r):
    p = {"kernel_size": 2}
    p.update(r.choice([{"kernel_size": None}, {"kernel_size": 0}, {"kernel_h": 2, "kernel_w": 2}, {"pad": 2},
                       {"pad_h": 1}, {"global_pooling": True}, {"stride_h": 1}, {"kernel_size": 12}]))
    return Case(layer("Pooling", ["x"], ["y"], pooling_param=p), {"x": (1, 1, 4, 4)}, refused=True)


@generator("Pooling", 20)
def pooling_expected(r):
    """Stochastic pooling of the phase TEST, which the package has for GPUs only."""
    kernel, stride = r.integer(1, 3), r.integer(1, 3)
    shape = r.shape(2, 1, 3) + (r.integer(4, 7), r.integer(4, 7))
    if lies_outside(shape, {"kernel_size": kernel, "stride": stride}):
        stride = 1

    def reference(given, gradient):
        x = given["in:x"]
        n, c, h, w = x.shape
        oh, ow = -(-(h - kernel) // stride) + 1, -(-(w - kernel) // stride) + 1
        y, gx, gy = np.zeros((n, c, oh, ow)), np.zeros_like(x), gradient("y", (n, c, oh, ow))
        for i in range(oh):
            for j in range(ow):
                part = (slice(None), slice(None), slice(i * stride, i * stride + kernel),
                        slice(j * stride, j * stride + kernel))
                window = x[part]
                total, squares = window.sum((2, 3)), (window ** 2).sum((2, 3))
                good = total > 0
                safe = np.where(good, total, 1)
                y[:, :, i, j] = np.where(good, squares / safe, 0)
                slope = (2 * window * safe[..., None, None] - squares[..., None, None]) / safe[..., None, None] ** 2
                gx[part] += np.where(good, gy[:, :, i, j], 0)[..., None, None] * slope
        return {"top:y": y, "gin:x": gx}

    zero = r.maybe(0.3)
    return Case(layer("Pooling", ["x"], ["y"], pooling_param=dict(kernel_size=kernel, stride=stride, pool=E("STOCHASTIC"))),
                {"x": np.zeros(shape, np.float32) if zero else r.array(shape, 0.1, 2.0)}, reference=reference)


@generator("SPP", 40)
def spp(r):
    height = r.choice([1, 2, 2, 3])
    return Case(layer("SPP", ["x"], ["y"], spp_param=dict(pyramid_height=height, pool=r.choice([E("MAX"), E("AVE")]))),
                {"x": r.shape(2, 1, 3) + (r.integer(6, 9), r.integer(6, 9))})


@generator("LRN", 60)
def lrn(r):
    p = dict(local_size=r.choice([1, 3, 5, 7]), alpha=r.choice([None, 1e-4, 0.5, 2.0]), beta=r.choice([None, 0.5, 1.0]),
             k=r.choice([None, 2.0, 0.5]), norm_region=r.choice([None, E("ACROSS_CHANNELS"), E("WITHIN_CHANNEL")]))
    return Case(layer("LRN", ["x"], ["y"], lrn_param=p), {"x": r.shape(2, 1, 6) + r.shape(2, 3, 6)})


def batch_norm_case(r, phase, global_stats):
    rank = r.choice([2, 3, 4, 4, 4, 5])
    shape = r.shape(rank, 2, 4)
    if r.maybe(0.1):
        shape = (1,) + shape[1:2] + (1,) * (rank - 2)
    p = dict(use_global_stats=global_stats, moving_average_fraction=r.choice([None, 0.9, 0.0, 1.0]),
             eps=r.choice([None, 1e-3, 0.1]))
    channels = (shape[1],) if rank > 1 else (1,)
    blobs = {("y", 0): r.array(channels), ("y", 1): r.array(channels, 0.5, 4.0),
             ("y", 2): r.array((1,), 0.5, 3.0) if r.maybe(0.8) else np.zeros((1,), np.float32)}
    param = [{"lr_mult": 0.0}] * 3 if r.maybe() else None
    return Case(layer("BatchNorm", ["x"], ["y"], batch_norm_param=p, param=param), {"x": shape}, phase=phase, blobs=blobs,
                tolerance=2e-5), p


@generator("BatchNorm", 60)
def batch_norm(r):
    phase = r.choice(["TRAIN", "TEST"])
    return batch_norm_case(r, phase, True if phase == "TRAIN" else r.choice([None, True]))[0]


@generator("BatchNorm", 60)
def batch_norm_by_batch(r):
    """With the statistics of the batch. The package always uses those of its blobs, so this is Caffe's formula."""
    phase = r.choice(["TRAIN", "TEST"])
    case, p = batch_norm_case(r, phase, False if phase == "TEST" else r.choice([None, False]))
    fraction = 0.999 if p["moving_average_fraction"] is None else p["moving_average_fraction"]
    eps = 1e-5 if p["eps"] is None else p["eps"]

    def reference(given, gradient):
        x = given["in:x"]
        channels = given["blob:y:0"].size
        rows = np.moveaxis(x.reshape(x.shape[0], channels, -1) if x.ndim > 1 else x.reshape(-1, 1, 1), 1, 0)
        rows = rows.reshape(channels, -1)
        m = rows.shape[1]
        mean, var = rows.mean(1), rows.var(1)
        hat = (rows - mean[:, None]) / np.sqrt(var + eps)[:, None]

        def back(t):
            t = t.reshape((channels, x.shape[0]) + x.shape[2:])
            return np.moveaxis(t, 0, 1).reshape(x.shape)

        gy = gradient("y", x.shape)
        g = np.moveaxis(gy.reshape(x.shape[0], channels, -1) if x.ndim > 1 else gy.reshape(-1, 1, 1), 1, 0)
        g = g.reshape(channels, -1)
        gx = (g - g.mean(1)[:, None] - (g * hat).mean(1)[:, None] * hat) / np.sqrt(var + eps)[:, None]
        return {"top:y": back(hat), "gin:x": back(gx),
                "after:y:0": fraction * given["blob:y:0"] + mean,
                "after:y:1": fraction * given["blob:y:1"] + (m / (m - 1) if m > 1 else 1) * var,
                "after:y:2": fraction * given["blob:y:2"] + 1}

    case.reference = reference
    return case


@generator("BatchNorm", 5)
def batch_norm_trained(r):
    """Its blobs cannot have a rate."""
    return Case(layer("BatchNorm", ["x"], ["y"], param=[{"lr_mult": 1.0}]), {"x": (2, 3)}, refused=True)


def axes_fields(r, shape):
    axis = r.integer(0, len(shape) - 1)
    axes = r.choice([-1, 0, 1, 2])
    if axis + axes > len(shape):
        axes = 1
    p = {"axis": axis - len(shape) if r.maybe(0.3) else axis, "num_axes": axes}
    if len(shape) > 2 and r.maybe(0.3):
        p = {}
    return p, axis, axes


@generator("Scale", 60)
def scale(r):
    shape = r.shape(r.integer(1, 5), 1, 4)
    p, _, _ = axes_fields(r, shape)
    p["bias_term"] = r.choice([None, True])
    return Case(layer("Scale", ["x"], ["y"], scale_param=p), {"x": shape})


def second_bottom(r, type_name, bias):
    shape = r.shape(r.integer(1, 5), 1, 4)
    axis = r.integer(0, len(shape) - 1)
    axes = r.integer(0, len(shape) - axis)
    p = {"axis": axis - len(shape) if r.maybe(0.3) else axis}
    if bias:
        p["bias_term"] = r.choice([None, True])
    return Case(layer(type_name, ["x", "s"], ["y"], **{type_name.lower() + "_param": p}),
                {"x": shape, "s": shape[axis:axis + axes]})


@generator("Scale", 40)
def scale_by_bottom(r):
    return second_bottom(r, "Scale", True)


@generator("Bias", 40)
def bias(r):
    shape = r.shape(r.integer(1, 5), 1, 4)
    return Case(layer("Bias", ["x"], ["y"], bias_param=axes_fields(r, shape)[0]), {"x": shape})


@generator("Bias", 30)
def bias_by_bottom(r):
    return second_bottom(r, "Bias", False)


@generator("PReLU", 40)
def prelu(r):
    return Case(layer("PReLU", ["x"], ["y"], prelu_param={"channel_shared": r.choice([None, True, False])}),
                {"x": r.shape(r.integer(2, 4), 1, 4)})


@generator("Crop", 40)
def crop(r):
    rank = r.integer(1, 5)
    small = r.shape(rank, 1, 3)
    axis = r.integer(0, rank - 1)
    one = r.maybe(0.3)
    offsets = [r.integer(0, 2) for _ in range(rank - axis)]
    if one:
        offsets = [offsets[0]] * len(offsets)
    large = tuple(s if i < axis else s + offsets[i - axis] + r.integer(0, 2) for i, s in enumerate(small))
    p = {"axis": axis - rank if r.maybe(0.3) else axis, "offset": offsets[:1] if one else offsets}
    if not any(offsets) and r.maybe():
        p["offset"] = None
    return Case(layer("Crop", ["x", "like"], ["y"], crop_param=p), {"x": large, "like": small})


@generator("Crop", 5)
def crop_wrongly(r):
    return Case(layer("Crop", ["x", "like"], ["y"], crop_param={"axis": 1, "offset": r.integer(1, 3)}),
                {"x": (1, 3, 3), "like": (1, 3, 3)}, refused=True)
