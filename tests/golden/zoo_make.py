#!/usr/bin/env python3
"""Writes golden/zoo/NET.safetensors: PyTorch's results for the networks of src/zoo.

    python tests/golden/zoo_make.py [NET ...]

Needs a Python with torch, numpy and safetensors; with torchvision, the names and shapes of ResNet-18 and
ResNet-50 are compared with torchvision's own.

Weights and inputs are computed from names and element indices by a rule that tests/unit/zoo/zoo_rule.c also
implements, so a file holds no weights. It holds
    shape.NAME       i64   dims of each tensor of the state dict (numel 0: a scalar)
    grad.NAME        f64   for each parameter: the norm of its gradient, three seeded projections of it, and the
                           first-order change of the loss for 1 % noise in the parameter
    train.output, eval.output, train.loss, eval.loss          f64
Eval mode comes first, with the running statistics of the rule. Gradients are those of train.loss.
"""
import math
import os
import sys

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

import zoo_sequence

HERE = os.path.dirname(os.path.abspath(__file__))
PROJECTIONS = 3

# --- the rule; zoo_rule.h has the same -------------------------------------------------------------


def seed_of(text):
    """FNV-1a, 64 bits."""
    h = 0xCBF29CE484222325
    for byte in text.encode():
        h = ((h ^ byte) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
    return h


def words(text, n):
    """splitmix64 of a counter."""
    with np.errstate(over="ignore"):
        z = np.uint64(seed_of(text)) + (np.arange(n, dtype=np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return z ^ (z >> np.uint64(31))


def signed(text, n):
    """Numbers in (-1, 1) with 24 bits."""
    return (words(text, n) >> np.uint64(40)).astype(np.float64) * 2.0**-23 + 2.0**-24 - 1


def rounded(values):
    """Rounds to f32, so that f32 and f64 have the same numbers."""
    return values.astype(np.float32).astype(np.float64)


def numbers(text, shape, scale, plus=0.0):
    values = rounded(rounded(signed(text, math.prod(shape)) * scale) + plus)
    return torch.from_numpy(values).reshape(shape)


def integers(text, shape, below):
    return torch.from_numpy(((words(text, math.prod(shape)) >> np.uint64(16)) % np.uint64(below)).astype(np.int64)).reshape(shape)


def value_of(net, name, t):
    """The value of the tensor `name` of a state dict."""
    text, last, shape = f"{net}:{name}", name.split(".")[-1], list(t.shape)
    if not t.is_floating_point():
        return torch.zeros_like(t)
    if last == "running_var":
        return numbers(text, shape, 0.5, 1.0)
    if len(shape) > 1:
        return numbers(text, shape, math.sqrt(3.0 / (t.numel() // shape[0])))
    if last == "weight":
        return numbers(text, shape, 0.25, 1.0)
    return numbers(text, shape, 0.25)


# --- networks --------------------------------------------------------------------------------------


class LeNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 6, 5, padding=2)
        self.conv2 = nn.Conv2d(6, 16, 5)
        self.fc1, self.fc2, self.fc3 = nn.Linear(400, 120), nn.Linear(120, 84), nn.Linear(84, 10)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        return self.fc3(F.relu(self.fc2(F.relu(self.fc1(x.flatten(1))))))


class Block(nn.Module):
    def __init__(self, n, out, stride):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(n, out, 3, stride, 1, bias=False), nn.BatchNorm2d(out)
        self.conv2, self.bn2 = nn.Conv2d(out, out, 3, 1, 1, bias=False), nn.BatchNorm2d(out)
        if stride != 1 or n != out:
            self.downsample = nn.Sequential(nn.Conv2d(n, out, 1, stride, bias=False), nn.BatchNorm2d(out))

    def forward(self, x):
        y = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))
        return F.relu(y + (self.downsample(x) if hasattr(self, "downsample") else x))


class Bottleneck(nn.Module):
    def __init__(self, n, out, stride):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(n, out // 4, 1, bias=False), nn.BatchNorm2d(out // 4)
        self.conv2, self.bn2 = nn.Conv2d(out // 4, out // 4, 3, stride, 1, bias=False), nn.BatchNorm2d(out // 4)
        self.conv3, self.bn3 = nn.Conv2d(out // 4, out, 1, bias=False), nn.BatchNorm2d(out)
        if stride != 1 or n != out:
            self.downsample = nn.Sequential(nn.Conv2d(n, out, 1, stride, bias=False), nn.BatchNorm2d(out))

    def forward(self, x):
        y = F.relu(self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x))))))
        return F.relu(self.bn3(self.conv3(y)) + (self.downsample(x) if hasattr(self, "downsample") else x))


class ResNet(nn.Module):
    """stages: (channels, blocks) of each; imagenet: a 7x7 first convolution to 64 channels, and pooling."""

    def __init__(self, stages, classes, imagenet, block=Block):
        super().__init__()
        n = 64 if imagenet else stages[0][0]
        self.imagenet, self.stages = imagenet, len(stages)
        self.conv1 = nn.Conv2d(3, n, 7, 2, 3, bias=False) if imagenet else nn.Conv2d(3, n, 3, 1, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(n)
        for i, (out, blocks) in enumerate(stages):
            setattr(self, f"layer{i + 1}", nn.Sequential(*[
                block(n if k == 0 else out, out, 2 if i > 0 and k == 0 else 1) for k in range(blocks)]))
            n = out
        self.fc = nn.Linear(n, classes)

    def forward(self, x):
        x = F.relu(self.bn1(self.conv1(x)))
        if self.imagenet:
            x = F.max_pool2d(x, 3, 2, 1)
        for i in range(self.stages):
            x = getattr(self, f"layer{i + 1}")(x)
        return self.fc(x.mean((2, 3)))


def resnet18(classes):
    return ResNet([(64, 2), (128, 2), (256, 2), (512, 2)], classes, True)


def resnet50(classes):
    return ResNet([(256, 3), (512, 4), (1024, 6), (2048, 3)], classes, True, Bottleneck)


class VGG16(nn.Module):
    """Without dropout, whose random numbers differ from ours."""

    def __init__(self, classes, hidden=4096):
        super().__init__()
        layers, n = [], 3
        for out in (64, 64, 0, 128, 128, 0, 256, 256, 256, 0, 512, 512, 512, 0, 512, 512, 512, 0):
            layers += [nn.Conv2d(n, out, 3, padding=1), nn.ReLU()] if out else [nn.MaxPool2d(2)]
            n = out or n
        self.features, self.avgpool = nn.Sequential(*layers), nn.AdaptiveAvgPool2d(7)
        self.classifier = nn.Sequential(nn.Linear(512 * 49, hidden), nn.ReLU(), nn.Identity(),
                                        nn.Linear(hidden, hidden), nn.ReLU(), nn.Identity(), nn.Linear(hidden, classes))

    def forward(self, x):
        return self.classifier(self.avgpool(self.features(x)).flatten(1))


def checked(name, net, classes):
    """Compares names and shapes with torchvision's, if it is installed."""
    try:
        # names need no compiled ops, which a torchvision for another PyTorch version cannot load
        lib = torch.library.Library("torchvision", "FRAGMENT")
        for op in ("nms", "qnms"):
            lib.define(f"{op}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    except RuntimeError:
        pass  # defined by an earlier call
    try:
        import torchvision.models
    except ImportError:
        print(f"{name}: no torchvision to compare names and shapes with")
        return net
    ours, known = net.state_dict(), getattr(torchvision.models, name)(num_classes=classes).state_dict()
    assert [(k, v.shape) for k, v in ours.items()] == [(k, v.shape) for k, v in known.items()]
    print(f"{name}: names and shapes are torchvision's")
    return net


def resnet20(classes):
    return ResNet([(16, 3), (32, 3), (64, 3)], classes, False)


def mlp(inputs, hidden, outputs):
    layers = [nn.Flatten()]
    for size in hidden:
        layers += [nn.Linear(inputs, size), nn.ReLU()]
        inputs = size
    return nn.Sequential(*layers, nn.Linear(inputs, outputs))


def convnet(channels, width, hidden, places, classes):
    """Without dropout, whose random numbers differ from ours."""
    return nn.Sequential(nn.Conv2d(channels, width, 5, padding=2, bias=False), nn.BatchNorm2d(width), nn.ReLU(), nn.MaxPool2d(2),
                         nn.Conv2d(width, 2 * width, 5, padding=2, bias=False), nn.BatchNorm2d(2 * width), nn.ReLU(), nn.MaxPool2d(2),
                         nn.Flatten(), nn.Linear(2 * width * places, hidden), nn.ReLU(), nn.Identity(),
                         nn.Linear(hidden, classes))


class Cell(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.candidate, self.gate = nn.Linear(2 * width, width), nn.Linear(2 * width, width)

    def forward(self, a, b):
        both = torch.cat([a, b], 1)
        gate = torch.sigmoid(self.gate(both))
        return gate * torch.tanh(self.candidate(both)) + (1 - gate) * (a + b) / 2


class TreeNet(nn.Module):
    def __init__(self, leaves, operators, width, outputs):
        super().__init__()
        self.leaves = leaves
        self.table = nn.Parameter(torch.zeros(leaves, width))
        self.cells = nn.ModuleList([Cell(width) for _ in range(operators)])
        self.head = nn.Linear(width, outputs)

    def forward(self, tokens):
        stack = []
        for token in tokens.tolist():
            if token < self.leaves:
                stack.append(self.table[token:token + 1])
            else:
                right, left = stack.pop(), stack.pop()
                stack.append(self.cells[token - self.leaves](left, right))
        (root,) = stack
        return self.head(root)


class PlainBlock(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.conv1, self.conv2 = (nn.Conv2d(width, width, 3, padding=1) for _ in range(2))

    def forward(self, x):
        return F.relu(x + self.conv2(F.relu(self.conv1(x))))


class JoinBlock(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.join, self.block = nn.Conv2d(2 * width, width, 1), PlainBlock(width)

    def forward(self, a, b):
        return self.block(F.relu(self.join(torch.cat([a, b], 1))))


class ModularNet(nn.Module):
    def __init__(self, channels, size, width, unary, binary, classes, projection, hidden):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(channels, width, 3, padding=1), nn.ReLU(),
                                  nn.Conv2d(width, width, 3, padding=1), nn.ReLU())
        self.unary = nn.ModuleList([PlainBlock(width) for _ in range(unary)])
        self.binary = nn.ModuleList([JoinBlock(width) for _ in range(binary)])
        self.classifier = nn.Sequential(nn.Conv2d(width, projection, 1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
                                        nn.Linear(projection * (size // 2) ** 2, hidden), nn.ReLU(),
                                        nn.Linear(hidden, classes))

    def forward(self, tokens, x):
        scene, stack = self.stem(x), []
        for token in tokens.tolist():
            if token == 0:
                stack.append(scene)
            elif token <= len(self.unary):
                stack.append(self.unary[token - 1](stack.pop()))
            else:
                right, left = stack.pop(), stack.pop()
                stack.append(self.binary[token - 1 - len(self.unary)](left, right))
        (root,) = stack
        return self.classifier(root)


# --- stored results; test_zoo_golden.c has the same cases --------------------------------------


def images(net, *shape):
    return [numbers(f"{net}:x", shape, math.sqrt(3.0))]


def text(net, *shape, below):
    return [integers(f"{net}:x", shape, below)]


def cases():
    """name: (module, inputs, classes, or None for the mean of squares)"""
    return {
        "lenet": lambda n: (LeNet(), images(n, 4, 1, 28, 28), 10),
        "resnet18": lambda n: (checked("resnet18", resnet18(10), 10), images(n, 2, 3, 64, 64), 10),
        "resnet50": lambda n: (checked("resnet50", resnet50(10), 10), images(n, 2, 3, 64, 64), 10),
        "vgg16": lambda n: (VGG16(10, hidden=16), images(n, 2, 3, 32, 32), 10),
        "resnet20": lambda n: (resnet20(10), images(n, 2, 3, 32, 32), 10),
        "tree_net": lambda n: (TreeNet(10, 3, 8, 2), [torch.tensor([1, 2, 11, 3, 9, 12, 10, 4, 1, 10, 11])], None),
        "modular_net": lambda n: (ModularNet(6, 6, 8, 3, 2, 5, 12, 16),
                                  [torch.tensor([0, 1, 2, 0, 3, 4, 1, 0, 5]), *images(n, 2, 6, 6, 6)], 5),
        "char_lstm": lambda n: (zoo_sequence.char_lstm(17, embedding=12, hidden=10), text(n, 3, 7, below=17), 17),
        "mlp": lambda n: (mlp(14, [12, 8], 3), images(n, 5, 2, 7), 3),
        "convnet": lambda n: (convnet(2, 4, 9, 3 * 4, 10), images(n, 3, 2, 12, 16), 10),
        "gpt": lambda n: (zoo_sequence.gpt(19, context=12, layers=2, heads=3, width=24), text(n, 2, 10, below=19), 19),
    }


def loss_of(net, y, classes):
    rows = y.reshape(-1, y.shape[-1])
    if classes is None:
        return F.mse_loss(y, numbers(f"{net}:y", list(y.shape), 1.0))
    return F.cross_entropy(rows, integers(f"{net}:y", [rows.shape[0]], classes))


def summary(net, name, parameter):
    g = (torch.zeros_like(parameter) if parameter.grad is None else parameter.grad).reshape(-1).numpy()
    p = parameter.detach().reshape(-1).numpy()
    projections = [float(np.dot(g, signed(f"{net}:{name}:projection{k}", g.size))) for k in range(PROJECTIONS)]
    noise = float(np.dot(g, 0.01 * p * signed(f"{net}:{name}:noise", g.size)))
    return torch.tensor([float(np.linalg.norm(g)), *projections, noise], dtype=torch.float64)


def store(net, module, inputs, classes):
    from safetensors.torch import save_file  # not needed by programs that import only the networks
    state, seen = module.double().state_dict(), set()
    for name, t in state.items():
        if t.data_ptr() not in seen:  # a tied tensor has the value of its first name
            t.copy_(value_of(net, name, t))
        seen.add(t.data_ptr())
    out = {f"shape.{name}": torch.tensor(list(t.shape), dtype=torch.int64) for name, t in state.items()}
    for mode in ("eval", "train"):
        module.train(mode == "train")
        y = module(*inputs)
        y = y[0] if isinstance(y, tuple) else y
        loss = loss_of(net, y, classes)
        out[f"{mode}.output"], out[f"{mode}.loss"] = y.detach().contiguous(), loss.detach()
    loss.backward()
    for name, parameter in module.named_parameters():
        out[f"grad.{name}"] = summary(net, name, parameter)
    path = os.path.join(HERE, "zoo", f"{net}.safetensors")
    save_file(out, path)
    print(f"{net}: {len(state)} tensors, loss {loss.item():.6f}, output {y.abs().mean():.3f}, {os.path.getsize(path)} bytes")


def main():
    torch.set_num_threads(1)
    os.makedirs(os.path.join(HERE, "zoo"), exist_ok=True)
    constructors = cases()
    for net in sys.argv[1:] or constructors:
        torch.manual_seed(0)
        module, inputs, classes = constructors[net](net)
        store(net, module, inputs, classes)


if __name__ == "__main__":
    main()
