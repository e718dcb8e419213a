"""opencv_cases.py - cases of SSD's layers, which Caffe 1.0 lacks, for against_opencv.py. case.py describes cases.

`numpy` of a case is a function that computes the expected outputs from its inputs, where OpenCV has not the
option.
"""
import numpy as np

from case import Case, E, generator, layer


@generator("Normalize", 60)
def normalize(r):
    shape = r.shape(4, most=6)
    p = {}
    for name in ("across_spatial", "channel_shared"):
        if r.maybe(0.7):
            p[name] = r.maybe()
    if r.maybe(0.3):
        p["eps"] = r.choice([1e-10, 1e-6, 1e-3])
    if r.maybe():
        p["scale_filler"] = {"type": "constant", "value": 20.0}
    case = Case(layer("Normalize", ["x"], ["y"], norm_param=p), {"x": shape}, backward=False)
    shared = p.get("channel_shared", True)
    case.blobs[("y", 0)] = r.array(() if shared else (shape[1],))
    if p.get("eps", 0) > 1e-8 or (not shared and p.get("across_spatial", True)):
        case.numpy = lambda given: {"y": normalized(given, p)}
    return case


def normalized(given, p):
    x, scale = given["in:x"].astype(np.float64), given["blob:y:0"].astype(np.float64)
    axes = (1, 2, 3) if p.get("across_spatial", True) else 1
    return x / np.sqrt((x * x).sum(axes, keepdims=True) + p.get("eps", 1e-10)) * scale.reshape(1, -1, 1, 1)


@generator("Permute", 20)
def permute(r):
    shape, order = r.shape(4), [0, 1, 2, 3]
    r.shuffle(order)
    return Case(layer("Permute", ["x"], ["y"], permute_param={"order": order}), {"x": shape}, backward=False)


@generator("PriorBox", 100)
def prior_box(r):
    n = r.integer(1, 3)
    least = [r.choice([r.integer(3, 60), round(r.uniform(3, 60), 2)]) for _ in range(n)]
    p = {"min_size": [float(v) for v in least]}
    if r.maybe(0.6):
        p["max_size"] = [round(v * r.uniform(1.1, 2.5), 3) for v in p["min_size"]]
    if r.maybe(0.8):
        p["aspect_ratio"] = [r.choice([2.0, 3.0, 1.0, 0.5, 1.5, 2.0]) for _ in range(r.integer(1, 4))]
    for name in ("flip", "clip"):
        if r.maybe(0.6):
            p[name] = r.maybe()
    if r.maybe(0.7):
        p["variance"] = r.choice([[0.1, 0.1, 0.2, 0.2], [0.25]])
    if r.maybe(0.4):
        p["step"] = r.choice([8.0, 16.0, 7.5])
    elif r.maybe(0.3):
        p["step_h"], p["step_w"] = 8.0, 12.5
    if r.maybe(0.3):
        p["offset"] = r.choice([0.0, 0.5, 0.25])
    if r.maybe(0.3):
        p["img_size"] = 300
    elif r.maybe(0.3):
        p["img_h"], p["img_w"] = 200, 320
    inputs = {"x": r.shape(4, most=6), "image": (1, 3, r.integer(20, 300), r.integer(20, 300))}
    case = Case(layer("PriorBox", ["x", "image"], ["y"], prior_box_param=p), inputs, backward=False)
    # OpenCV requires a variance, clips by default, and ignores the size of the image
    if "variance" not in p or "clip" not in p or "img_size" in p or "img_h" in p:
        case.numpy = lambda given: {"y": priors(given["in:x"].shape, given["in:image"].shape, p)}
    return case


def priors(shape, image, p):
    """The boxes as SSD describes them."""
    height, width = (p.get(k, p.get("img_size", image[2 + i])) for i, k in enumerate(("img_h", "img_w")))
    step = [p.get(k, p.get("step", size / n)) for k, size, n in zip(("step_h", "step_w"), (height, width), shape[2:])]
    ratios, sizes = [], []
    for a in p.get("aspect_ratio", []):
        if all(abs(a - b) > 1e-6 for b in ratios + [1]):
            ratios += [a, 1 / a] if p.get("flip", True) else [a]
    for i, least in enumerate(p["min_size"]):
        sizes.append((least, least))
        if "max_size" in p:
            sizes.append((np.sqrt(least * p["max_size"][i]),) * 2)
        sizes += [(least * np.sqrt(a), least / np.sqrt(a)) for a in ratios]
    rows = []
    for y in range(shape[2]):
        for x in range(shape[3]):
            cx, cy = (x + p.get("offset", 0.5)) * step[1], (y + p.get("offset", 0.5)) * step[0]
            for w, h in sizes:
                rows += [(cx - w / 2) / width, (cy - h / 2) / height, (cx + w / 2) / width, (cy + h / 2) / height]
    rows = np.clip(rows, 0, 1) if p.get("clip") else np.array(rows)
    variance = p.get("variance", [0.1])
    return np.stack([rows, np.tile(variance, len(rows) // len(variance))])[None]


def boxes(r, count):
    """Prior boxes within the image, and their variances: (1, 2, 4 * count)."""
    rows = []
    for _ in range(count):
        x, y, w, h = (r.uniform(0, 0.6), r.uniform(0, 0.6), r.uniform(0.05, 0.4), r.uniform(0.05, 0.4))
        rows += [x, y, x + w, y + h]
    return np.round(np.array([[rows, [0.1, 0.1, 0.2, 0.2] * count]]), 4).astype(np.float32)


def confidences(r, images, priors, classes):
    a = np.exp(r.array((images, priors, classes), -3, 3).astype(np.float64))
    return np.round(a / a.sum(2, keepdims=True), 6).astype(np.float32)


def detection(r, opencv):
    images, priors, classes = r.integer(1, 3), r.integer(1, 40), r.integer(2, 6)
    p = {"num_classes": classes, "keep_top_k": r.choice([5, 20, 200])}
    if opencv or r.maybe():  # OpenCV requires some fields
        p["share_location"] = r.maybe(0.7)
    background = r.choice([0, 0, 1, -1 if not opencv else 0])
    if background or opencv or r.maybe():
        p["background_label_id"] = background
    p["nms_param"] = {"nms_threshold": r.choice([0.3, 0.45, 0.6])}
    if r.maybe(0.7) or opencv:
        p["nms_param"]["top_k"] = r.choice([3, 10, 400])
    if opencv or r.maybe(0.8):
        p["code_type"] = r.choice([E("CORNER"), E("CENTER_SIZE"), E("CENTER_SIZE"), E("CORNER_SIZE")])
    if opencv and p.get("code_type") == "CORNER_SIZE":
        p["code_type"] = E("CENTER_SIZE")
    if r.maybe(0.3):
        p["variance_encoded_in_target"] = r.maybe() and not opencv
    if r.maybe(0.8) or opencv:
        p["confidence_threshold"] = r.choice([0.01, 0.3, 0.5])
    if not opencv:
        if r.maybe():
            p["nms_param"]["eta"] = r.choice([0.9, 0.5])
            p["nms_param"]["nms_threshold"] = r.choice([0.7, 0.9])
        if r.maybe(0.4):
            p["keep_top_k"] = r.choice([-1, 0, 2])
        if r.maybe(0.2):
            p["confidence_threshold"] = 0.999
    locations = 1 if p.get("share_location", True) else classes
    inputs = {"loc": r.array((images, priors * locations * 4), -0.5, 0.5),
              "conf": confidences(r, images, priors, classes).reshape(images, -1), "prior": boxes(r, priors)}
    case = Case(layer("DetectionOutput", list(inputs), ["y"], detection_output_param=p), inputs, backward=False)
    if not opencv:
        case.numpy = lambda given: {"y": detections(given, p)}
    return case


@generator("DetectionOutput", 60)
def detection_output(r):
    return detection(r, True)


@generator("DetectionOutput", 60)
def detection_output_numpy(r):
    return detection(r, False)


def decoded(code, prior, variance, p):
    v = code if p.get("variance_encoded_in_target") else code * variance
    kind = p.get("code_type", "CORNER")
    if kind == "CORNER":
        return prior + v
    size = np.array([prior[2] - prior[0], prior[3] - prior[1]])
    if kind == "CORNER_SIZE":
        return prior + v * np.tile(size, 2)
    center = (prior[:2] + prior[2:]) / 2 + v[:2] * size
    half = np.exp(v[2:]) * size / 2
    return np.concatenate([center - half, center + half])


def overlap(a, b):
    both = np.prod(np.maximum(np.minimum(a[2:], b[2:]) - np.maximum(a[:2], b[:2]), 0))
    area = [np.prod(c[2:] - c[:2]) if (c[2:] >= c[:2]).all() else 0 for c in (a, b)]
    return both / (sum(area) - both) if both > 0 else 0


def detections(given, p):
    """DetectionOutput as SSD describes it, with the rows of an image in OpenCV's order."""
    classes, nms = p["num_classes"], p["nms_param"]
    conf = given["in:conf"].astype(np.float64)
    images = conf.shape[0]
    conf = conf.reshape(images, -1, classes)
    priors = conf.shape[1]
    prior, variance = given["in:prior"].astype(np.float64).reshape(2, priors, 4)
    loc = given["in:loc"].astype(np.float64).reshape(images, priors, -1, 4)
    rows = []
    for n in range(images):
        kept = []
        for label in range(classes):
            if label == p.get("background_label_id", 0):
                continue
            order = [i for i in np.argsort(-conf[n, :, label], kind="stable")
                     if conf[n, i, label] > np.float32(p.get("confidence_threshold", -1))]
            if nms.get("top_k", -1) > -1:
                order = order[:nms["top_k"]]
            limit, chosen = nms["nms_threshold"], []
            for i in order:
                box = decoded(loc[n, i, 0 if loc.shape[2] == 1 else label], prior[i], variance[i], p)
                if all(overlap(box, other) <= limit for other in chosen):
                    chosen.append(box)
                    kept.append((conf[n, i, label], label, box))
                    if limit > 0.5:
                        limit *= nms.get("eta", 1)
        kept = sorted(kept, key=lambda k: -k[0])
        for score, label, box in kept[:p["keep_top_k"]] if p["keep_top_k"] > -1 else kept:
            rows.append([n, label, score] + list(box))
    if not rows:
        rows = [[n] + [-1] * 6 for n in range(images)]
    return np.array(rows).reshape(1, 1, -1, 7)
