"""ssd.py - Permute, the layer of SSD that this Caffe has, and the gradients of Normalize; opencv_cases.py has the others.
"""
import numpy as np

from case import Case, generator, layer


@generator("Permute", 40)
def permute(r):
    rank = r.integer(1, 5)
    order = list(range(rank))
    r.shuffle(order)
    return Case(layer("Permute", ["x"], ["y"], permute_param={"order": order[:r.integer(0, rank)]}), {"x": r.shape(rank)})


@generator("Normalize", 40)
def normalize(r):
    shape = r.shape(r.integer(2, 4))
    across, shared = r.maybe(), r.maybe()
    axes = tuple(range(1, len(shape))) if across else 1
    sizes = [1] * len(shape) if shared else [1, -1] + [1] * (len(shape) - 2)

    def reference(given, gradient):
        x, scale = given["in:x"], given["blob:y:0"].reshape(sizes)
        norm = np.sqrt((x * x).sum(axes, keepdims=True) + 1e-3)
        gy = gradient("y", shape)
        g = gy * scale
        by_scale = gy * x / norm
        return {"top:y": x / norm * scale,
                "gin:x": g / norm - x * (g * x).sum(axes, keepdims=True) / norm ** 3,
                "gblob:y:0": by_scale.sum() if shared else by_scale.sum(tuple(i for i in range(len(shape)) if i != 1))}

    p = {"across_spatial": across, "channel_shared": shared, "eps": 1e-3}
    return Case(layer("Normalize", ["x"], ["y"], norm_param=p), {"x": shape}, reference=reference,
                blobs={("y", 0): r.array(() if shared else (shape[1],))})
