"""Writes a ResNet as Caffe's users have it: BatchNorm, Scale and ReLU in place, sums by Eltwise.

    resnet.py NET.prototxt [DEPTH [SIZE]]      152 layers, images of 224 pixels
    resnet.py check GRADUS [DEPTH SIZE]        also parses it, takes a step, measures and draws it

Without a depth it checks 50 layers, with GRADUS_TEST_FULL=1 152. The names are those of the published prototxts (res2a_branch2a, bn2a_branch2a, scale2a_branch2a).
"""
import json
import os
import re
import subprocess
import sys
import tempfile

BLOCKS = {50: (3, 4, 6, 3), 101: (3, 4, 23, 3), 152: (3, 8, 36, 3)}


def layer(name, kind, bottoms, top, body=""):
    reads = "".join('\n  bottom: "%s"' % b for b in bottoms)
    return 'layer {\n  name: "%s"\n  type: "%s"%s\n  top: "%s"%s\n}\n' % (name, kind, reads, top, body)


def convolution(name, of, bottom, outputs, kernel, stride, relu):
    """A convolution, its normalization, and perhaps a ReLU, in place."""
    prefix = "res" + name
    options = "num_output: %d kernel_size: %d pad: %d stride: %d bias_term: false weight_filler { type: \"msra\" }"
    text = layer(prefix, "Convolution", [bottom], prefix, "\n  convolution_param { %s }" %
                 options % (outputs, kernel, kernel // 2, stride))
    text += layer("bn" + name, "BatchNorm", [prefix], prefix)
    text += layer("scale" + name, "Scale", [prefix], prefix, "\n  scale_param { bias_term: true }")
    return text + (layer(prefix + "_relu", "ReLU", [prefix], prefix) if relu else "")


def names_of_blocks(stage, count):
    """a, b, c; or, in the long stages of deep nets, a, b1, b2, ..."""
    if count <= 6:
        return ["%d%s" % (stage, "abcdef"[i]) for i in range(count)]
    return ["%da" % stage] + ["%db%d" % (stage, i) for i in range(1, count)]


def resnet(depth=152, size=224, batch=2, classes=1000):
    text = 'name: "ResNet-%d"\n' % depth
    text += ('layer {\n  name: "data"\n  type: "Data"\n  top: "data"\n  top: "label"\n'
             '  transform_param { crop_size: %d mirror: true }\n'
             '  data_param { source: "ilsvrc12_train_lmdb" batch_size: %d backend: LMDB }\n}\n' % (size, batch))
    text += layer("conv1", "Convolution", ["data"], "conv1", '\n  convolution_param { num_output: 64 kernel_size: 7 pad: 3 '
                  'stride: 2 bias_term: false weight_filler { type: "msra" } }')
    text += layer("bn_conv1", "BatchNorm", ["conv1"], "conv1")
    text += layer("scale_conv1", "Scale", ["conv1"], "conv1", "\n  scale_param { bias_term: true }")
    text += layer("conv1_relu", "ReLU", ["conv1"], "conv1")
    text += layer("pool1", "Pooling", ["conv1"], "pool1", "\n  pooling_param { kernel_size: 3 stride: 2 pool: MAX }")
    bottom = "pool1"
    for stage, count in enumerate(BLOCKS[depth], 2):
        width = 64 << (stage - 2)
        for i, name in enumerate(names_of_blocks(stage, count)):
            stride = 2 if i == 0 and stage > 2 else 1
            shortcut = bottom
            if i == 0:
                text += convolution(name + "_branch1", name, bottom, 4 * width, 1, stride, False)
                shortcut = "res%s_branch1" % name
            text += convolution(name + "_branch2a", name, bottom, width, 1, stride, True)
            text += convolution(name + "_branch2b", name, "res%s_branch2a" % name, width, 3, 1, True)
            text += convolution(name + "_branch2c", name, "res%s_branch2b" % name, 4 * width, 1, 1, False)
            text += layer("res" + name, "Eltwise", [shortcut, "res%s_branch2c" % name], "res" + name)
            text += layer("res%s_relu" % name, "ReLU", ["res" + name], "res" + name)
            bottom = "res" + name
    text += layer("pool5", "Pooling", [bottom], "pool5", "\n  pooling_param { pool: AVE global_pooling: true }")
    text += layer("fc%d" % classes, "InnerProduct", ["pool5"], "fc%d" % classes,
                  '\n  inner_product_param { num_output: %d weight_filler { type: "xavier" } }' % classes)
    text += layer("loss", "SoftmaxWithLoss", ["fc%d" % classes, "label"], "loss")
    return text + layer("accuracy", "Accuracy", ["fc%d" % classes, "label"], "accuracy", "\n  include { phase: TEST }")


def run(*words):
    done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, universal_newlines=True)
    assert done.returncode == 0, "%s: %d\n%s" % (" ".join(words), done.returncode, done.stderr[-2000:])
    return done


def check(gradus, folder, depth, size):
    net, solver = os.path.join(folder, "resnet.prototxt"), os.path.join(folder, "resnet_solver.prototxt")
    text = resnet(depth, size)
    dummy = "data=3,%d,%d label=1000" % (size, size)
    with open(net, "w") as f:
        f.write(text)
    with open(solver, "w") as f:
        f.write('net: "%s" base_lr: 0.01 momentum: 0.9 weight_decay: 0.0001 lr_policy: "step" stepsize: 100 gamma: 0.1\n'
                'max_iter: 1 display: 1 snapshot_prefix: "%s"\n' % (net, os.path.join(folder, "resnet")))
    log = run(gradus, "train", "--solver", solver, "--dummy", dummy, "--seed", "1").stderr
    loss = float(re.search(r"Iteration 0 .*, loss = (\S+)", log).group(1))
    assert 4 < loss < 12, loss
    weights = os.path.join(folder, "resnet_iter_1.caffemodel")
    convolutions = sum(BLOCKS[depth]) * 3 + 5
    parameters = {50: 25557032, 101: 44549160, 152: 60192808}[depth]
    statistics = {50: 53120, 101: 105344, 152: 151424}[depth]  # of the normalizations, and a factor of each
    floats = os.path.getsize(weights) / 4
    least = parameters + statistics
    assert least < floats < least * 1.02, (floats, least)
    table = json.loads(run(gradus, "time", "--model", net, "--dummy", dummy, "--iterations", "1", "--json").stdout)
    layers = [row["name"] for row in table["layers"]]
    wanted = [name for name, kind in re.findall(r'name: "(\S+)"\n  type: "(\S+)"', text) if kind not in ("Data", "Accuracy")]
    assert layers == wanted, set(wanted) ^ set(layers)
    assert sum(kind == "Convolution" for kind in re.findall(r'type: "(\S+)"', text)) == convolutions
    drawing = os.path.join(folder, "resnet.svg")
    if "  draw " in run(gradus, "--help").stdout:
        run(gradus, "draw", net, drawing)
        with open(drawing) as f:
            shown = f.read()
        assert all(name in shown for name in ("res2a_branch2a", "fc1000")), "the drawing lacks layers"
    print("ResNet-%d: %d layers, loss %g" % (depth, len(layers), loss))


if __name__ == "__main__":
    if len(sys.argv) > 2 and sys.argv[1] == "check":
        with tempfile.TemporaryDirectory() as temporary:
            check(sys.argv[2], temporary, *[int(a) for a in sys.argv[3:]] or
                  [152 if os.environ.get("GRADUS_TEST_FULL") == "1" else 50, 64])
    elif len(sys.argv) > 1:
        with open(sys.argv[1], "w") as f:
            f.write(resnet(*[int(a) for a in sys.argv[2:]]))
    else:
        sys.exit(__doc__)
