"""Writes metrics.txt: values of metrics computed by scikit-learn and PyTorch, for test_metrics.c.

Each line is: DATA METRIC OPTIONS... VALUE. test_metrics.c draws the same data.

    python3 tests/golden/metrics_make.py       (needs numpy, torch and scikit-learn)
"""
import os
import warnings

import numpy as np
import sklearn.metrics as sk
import torch

warnings.simplefilter("ignore")
N, C, T = 300, 7, 9


class Generator:
    """The numbers of tests/harness/draw.h."""

    def __init__(self, seed):
        self.state = seed

    def next(self, below):
        self.state = (self.state + 0x9E3779B97F4A7C15) % 2**64
        z = self.state
        z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
        z = (z ^ (z >> 27)) * 0x94D049BB133111EB % 2**64
        return (z ^ (z >> 31)) % below

    def numbers(self, *shape):  # with ties, and exact in f32
        return np.array([self.next(64) / 16 - 2 for _ in range(int(np.prod(shape)))]).reshape(shape)

    def integers(self, below, *shape):
        return np.array([self.next(below) for _ in range(int(np.prod(shape)))]).reshape(shape)

    def weights(self, n):
        return np.array([self.next(9) / 4 for _ in range(n)])


def top_classes(scores, k):  # ties are won by the lower class
    return np.argsort(-scores, axis=-1, kind="stable")[..., :k]


def class_metrics(scores, target, weight, averages=("macro", "micro", "weighted")):
    """Classification metrics of scores (n, C), target (n) and weight (n), one line each."""
    keep = target >= 0
    scores, target, weight = scores[keep], target[keep], weight[keep]
    predicted = top_classes(scores, 1)[:, 0]
    yield "accuracy", "", sk.accuracy_score(target, predicted, sample_weight=weight)
    for k in (1, 2, 5):
        hit = (top_classes(scores, k) == target[:, None]).any(1)
        yield "top_k", f"k={k}", (hit * weight).sum() / weight.sum()
    for name, score in ("precision", sk.precision_score), ("recall", sk.recall_score), ("f1", sk.f1_score):
        for average in averages:
            yield name, f"average={average}", score(target, predicted, average=average, sample_weight=weight,
                                                    zero_division=0)
    loss = torch.nn.functional.cross_entropy(torch.tensor(scores), torch.tensor(target), reduction="none").numpy()
    yield "perplexity", "", np.exp((loss * weight).sum() / weight.sum())
    matrix = sk.confusion_matrix(target, predicted, sample_weight=weight, labels=range(scores.shape[1]))
    for i in range(0, scores.shape[1], 3):
        yield "confusion", f"at={i},{(i + 1) % scores.shape[1]}", matrix[i, (i + 1) % scores.shape[1]]


def binary_metrics(score, target, weight):
    predicted = score > 0
    yield "accuracy", "", sk.accuracy_score(target, predicted, sample_weight=weight)
    yield "accuracy", "threshold=0.8", sk.accuracy_score(target, score > np.log(4), sample_weight=weight)
    for name, f in ("precision", sk.precision_score), ("recall", sk.recall_score), ("f1", sk.f1_score):
        yield name, "", f(target, predicted, sample_weight=weight)
        yield name, "average=macro", f(target, predicted, average="macro", sample_weight=weight)
    yield "auc", "", sk.roc_auc_score(target, score, sample_weight=weight)


def regression_metrics(output, target, weight):
    yield "mae", "", sk.mean_absolute_error(target, output, sample_weight=weight)
    yield "mse", "", sk.mean_squared_error(target, output, sample_weight=weight)
    flat = np.repeat(weight, output.shape[1])
    yield "rmse", "", np.sqrt(sk.mean_squared_error(target.ravel(), output.ravel(), sample_weight=flat))
    yield "r2", "", sk.r2_score(target, output, sample_weight=weight)


def all_lines():
    ones = np.ones(N)
    for data, seed, weighted in ("many", 1, False), ("weighted", 2, True):
        g = Generator(seed)
        scores, target, weight = g.numbers(N, C), g.integers(C, N), g.weights(N)
        target[g.integers(N, 20)] = -100
        for line in class_metrics(scores, target, weight if weighted else ones):
            yield (data, *line)
    g = Generator(3)  # class 5 does not occur and is not predicted, class 3 is not predicted
    scores, target = g.numbers(N, C), g.integers(C, N)
    scores[:, 5] = scores[:, 3] = -9
    target[target == 5] = 4
    for line in class_metrics(scores, target, ones):
        yield ("missing", *line)
    g = Generator(4)
    scores, target = g.numbers(N, T, C), g.integers(C, N, T)
    for name, options, value in class_metrics(scores.reshape(-1, C), target.ravel(), np.ones(N * T)):
        yield "sequence", name, options + " axis=-1", value
    g = Generator(5)
    score, target, weight = g.numbers(N), g.integers(2, N), g.weights(N)
    for line in binary_metrics(score, target, ones):
        yield ("binary", *line)
    for line in binary_metrics(score, target, weight):
        yield ("binary_weighted", *line)
    g = Generator(6)
    output, target, weight = g.numbers(N, 3), g.numbers(N, 3), g.weights(N)
    for line in regression_metrics(output, target, ones):
        yield ("numbers", *line)
    for line in regression_metrics(output, target, weight):
        yield ("numbers_weighted", *line)


with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "metrics.txt"), "w") as out:
    for data, name, options, value in all_lines():
        print(data, name, *options.split(), f"{value:.17g}", file=out)
