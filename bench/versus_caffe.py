#!/usr/bin/env python3
"""The time of training passes of Caffe's own nets, beside Caffe, in turn.

    python3 bench/versus_caffe.py --caffe PYTHON [--gradus build/bin/gradus] [--nets lenet,cifar10_quick,alexnet] [--rounds 5]

PYTHON is an interpreter that can import caffe (`pip install kendryte-caffe` for Python 3.6 to 3.9). Both sides read the same
prototxt with random data in the place of data layers. A pass is forward and backward of one batch; Gradus runs it as a plan.
A round runs both, one after the other; the table has the medians of the rounds' medians, and Caffe's time divided by ours.
Both use all cores."""
import argparse
import json
import os
import statistics
import subprocess
import tempfile

CHILD = """
import sys, time
import caffe
caffe.set_mode_cpu()
net = caffe.Net(sys.argv[1], caffe.TRAIN)
times = []
for i in range(int(sys.argv[2]) + 1):
    start = time.perf_counter()
    net.forward()
    net.backward()
    times.append(time.perf_counter() - start)
times = sorted(times[1:])
print(1e3 * times[len(times) // 2])
"""


def layer(name, kind, bottoms, top, body=""):
    read = " ".join(f"bottom: '{b}'" for b in bottoms.split())
    return f"layer {{ name: '{name}' type: '{kind}' {read} top: '{top}' {body} }}\n"


def data(batch, shape, classes):
    dims = " ".join(f"dim: {n}" for n in (batch, *shape))
    return ("layer { name: 'data' type: 'DummyData' top: 'data' top: 'label' dummy_data_param {\n"
            f"  shape {{ {dims} }} shape {{ dim: {batch} }}\n"
            f"  data_filler {{ type: 'gaussian' std: 1 }} data_filler {{ type: 'constant' value: {classes // 2} }} }} }}\n")


def conv(name, bottom, top, outputs, kernel, **options):
    body = f"num_output: {outputs} kernel_size: {kernel} weight_filler {{ type: 'xavier' }}"
    body += "".join(f" {key}: {value}" for key, value in options.items())
    return layer(name, "Convolution", bottom, top, f"convolution_param {{ {body} }}")


def pool(name, bottom, top, kind="MAX", kernel=3, stride=2):
    return layer(name, "Pooling", bottom, top, f"pooling_param {{ pool: {kind} kernel_size: {kernel} stride: {stride} }}")


def dense(name, bottom, top, outputs):
    return layer(name, "InnerProduct", bottom, top,
                 f"inner_product_param {{ num_output: {outputs} weight_filler {{ type: 'xavier' }} }}")


def relu(name, blob):
    return layer(name, "ReLU", blob, blob)


def norm(name, bottom, top):
    return layer(name, "LRN", bottom, top, "lrn_param { local_size: 5 alpha: 0.0001 beta: 0.75 }")


def loss(bottom):
    return layer("loss", "SoftmaxWithLoss", f"{bottom} label", "loss")


def lenet():
    return ("name: 'LeNet'\n" + data(64, (1, 28, 28), 10) + conv("conv1", "data", "conv1", 20, 5)
            + pool("pool1", "conv1", "pool1", kernel=2) + conv("conv2", "pool1", "conv2", 50, 5)
            + pool("pool2", "conv2", "pool2", kernel=2) + dense("ip1", "pool2", "ip1", 500) + relu("relu1", "ip1")
            + dense("ip2", "ip1", "ip2", 10) + loss("ip2"))


def cifar10_quick():
    return ("name: 'CIFAR10_quick'\n" + data(100, (3, 32, 32), 10) + conv("conv1", "data", "conv1", 32, 5, pad=2)
            + pool("pool1", "conv1", "pool1") + relu("relu1", "pool1") + conv("conv2", "pool1", "conv2", 32, 5, pad=2)
            + relu("relu2", "conv2") + pool("pool2", "conv2", "pool2", "AVE")
            + conv("conv3", "pool2", "conv3", 64, 5, pad=2) + relu("relu3", "conv3")
            + pool("pool3", "conv3", "pool3", "AVE") + dense("ip1", "pool3", "ip1", 64) + dense("ip2", "ip1", "ip2", 10)
            + loss("ip2"))


def alexnet():
    text = "name: 'AlexNet'\n" + data(32, (3, 227, 227), 1000)
    text += conv("conv1", "data", "conv1", 96, 11, stride=4) + relu("relu1", "conv1") + norm("norm1", "conv1", "norm1")
    text += pool("pool1", "norm1", "pool1") + conv("conv2", "pool1", "conv2", 256, 5, pad=2, group=2)
    text += relu("relu2", "conv2") + norm("norm2", "conv2", "norm2") + pool("pool2", "norm2", "pool2")
    text += conv("conv3", "pool2", "conv3", 384, 3, pad=1) + relu("relu3", "conv3")
    text += conv("conv4", "conv3", "conv4", 384, 3, pad=1, group=2) + relu("relu4", "conv4")
    text += conv("conv5", "conv4", "conv5", 256, 3, pad=1, group=2) + relu("relu5", "conv5") + pool("pool5", "conv5", "pool5")
    text += dense("fc6", "pool5", "fc6", 4096) + relu("relu6", "fc6") + layer("drop6", "Dropout", "fc6", "fc6")
    text += dense("fc7", "fc6", "fc7", 4096) + relu("relu7", "fc7") + layer("drop7", "Dropout", "fc7", "fc7")
    return text + dense("fc8", "fc7", "fc8", 1000) + loss("fc8")


NETS = {"lenet": (lenet, 40), "cifar10_quick": (cifar10_quick, 20), "alexnet": (alexnet, 3)}


def ours(program, path, passes):
    done = subprocess.run([program, "time", "--model", path, "--iterations", str(passes), "--json", "--quiet"], check=True,
                          capture_output=True, text=True)
    return json.loads(done.stdout)["plan_ms"]


def theirs(python, path, passes):
    done = subprocess.run([python, "-c", CHILD, path, str(passes)], check=True, capture_output=True, text=True,
                          env={**os.environ, "GLOG_minloglevel": "2"})
    return float(done.stdout)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--caffe", required=True, metavar="PYTHON")
    parser.add_argument("--gradus", default="build/bin/gradus")
    parser.add_argument("--nets", default=",".join(NETS))
    parser.add_argument("--rounds", type=int, default=5)
    o = parser.parse_args()
    print(f"{'ms for forward and backward':28} {'gradus':>9} {'caffe':>9} {'caffe/gradus':>13}")
    for name in o.nets.split(","):
        text, passes = NETS[name]
        with tempfile.NamedTemporaryFile("w", suffix=".prototxt") as file:
            file.write(text())
            file.flush()
            times = [[], []]
            for _ in range(o.rounds):
                times[0].append(ours(o.gradus, file.name, passes))
                times[1].append(theirs(o.caffe, file.name, passes))
        a, b = (statistics.median(t) for t in times)
        print(f"{name:28} {a:9.2f} {b:9.2f} {b / a:13.2f}", flush=True)


if __name__ == "__main__":
    main()
