"""messages_against_caffe.py - compares how Caffe's messages are read, written and upgraded with Caffe.

    messages_against_caffe.py [--program build/tests/convert_message] [--cases 2000] [--seed 1]

It needs the packages kendryte-caffe and numpy. Random messages go from text and from the wire format to both;
Caffe's own messages must read the same, and the bytes must be equal. Nets of version 1 are upgraded and
compared with what caffe.Net makes of them.
"""
import argparse
import glob
import os
import random
import re
import subprocess
import sys
import tempfile

os.environ.setdefault("GLOG_minloglevel", "3")
import caffe
import numpy as np
from caffe.proto import caffe_pb2
from google.protobuf import text_format
from google.protobuf.descriptor import FieldDescriptor as Field

MESSAGES = {
    "net": caffe_pb2.NetParameter,
    "solver": caffe_pb2.SolverParameter,
    "solver_state": caffe_pb2.SolverState,
    "blob_vector": caffe_pb2.BlobProtoVector,
    "datum": caffe_pb2.Datum,
}

# Fields that only this package of Caffe has.
FOREIGN = {
    "ctc_loss_param", "continuation_indicator_param", "labelsequence_accuracy_param", "reverse_param",
}


class Program:
    def __init__(self, path, folder):
        self.process = subprocess.Popen([path], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        universal_newlines=True)
        self.into, self.out = os.path.join(folder, "in"), os.path.join(folder, "out")

    def convert(self, schema, source, to, data):
        """The converted bytes, or the text of a failure."""
        with open(self.into, "wb") as f:
            f.write(data)
        print(schema, source, to, self.into, self.out, file=self.process.stdin, flush=True)
        answer = self.process.stdout.readline().strip()
        if answer != "done":
            return answer
        with open(self.out, "rb") as f:
            return f.read()


# --- random messages ---------------------------------------------------------------------------------------


def draw_string(rng):
    letters = "abcXYZ019_/. \"'\\\n\t\u00e4\u20ac\U0001f600"
    return "".join(rng.choice(letters) for _ in range(rng.choice([0, 1, 3, 10])))


def draw_float(rng, double):
    value = rng.choice([0.0, 1.0, -1.5, 0.1, 1e-8, 3e38, 1e-45, rng.uniform(-10, 10), rng.gauss(0, 1e6),
                        float("inf"), float("-inf"), -0.0, float("nan")])
    return value if double else float(np.float32(value))


def draw_integer(rng, bits, signed):
    most = 2 ** (bits - signed) - 1
    least = -most - 1 if signed else 0
    return rng.choice([0, 1, 7, 300, most, least, rng.randint(least, most)])


def draw_value(rng, field):
    kind = field.type
    if kind == Field.TYPE_STRING:
        return draw_string(rng)
    if kind == Field.TYPE_BYTES:
        return bytes(rng.randrange(256) for _ in range(rng.choice([0, 1, 20])))
    if kind == Field.TYPE_BOOL:
        return rng.random() < 0.5
    if kind == Field.TYPE_ENUM:
        return rng.choice(field.enum_type.values).number
    if kind in (Field.TYPE_FLOAT, Field.TYPE_DOUBLE):
        return draw_float(rng, kind == Field.TYPE_DOUBLE)
    return draw_integer(rng, 64 if kind in (Field.TYPE_INT64, Field.TYPE_UINT64) else 32,
                        kind in (Field.TYPE_INT32, Field.TYPE_INT64))


def is_repeated(field):
    return field.label == Field.LABEL_REPEATED


def fill(rng, message, depth, share):
    for field in message.DESCRIPTOR.fields:
        if field.name in FOREIGN or rng.random() > share or message.DESCRIPTOR.name == "V0LayerParameter":
            continue
        if field.type == Field.TYPE_ENUM and field.name == "type" and message.DESCRIPTOR.name == "V1LayerParameter":
            setattr(message, field.name, rng.choice([v.number for v in field.enum_type.values if v.number < 40]))
        elif field.type == Field.TYPE_MESSAGE:
            if depth == 0:
                continue
            if is_repeated(field):
                for _ in range(rng.choice([1, 1, 3])):
                    fill(rng, getattr(message, field.name).add(), depth - 1, share)
            else:
                child = getattr(message, field.name)
                child.SetInParent()
                fill(rng, child, depth - 1, share)
        elif is_repeated(field):
            for _ in range(rng.choice([1, 2, 5])):
                getattr(message, field.name).append(draw_value(rng, field))
        elif field.name != "axis" or message.DESCRIPTOR.name != "V0LayerParameter":
            setattr(message, field.name, draw_value(rng, field))


def check_message(program, name, message):
    """The mistakes of four ways from Caffe's text and bytes to ours and back."""
    wire = message.SerializeToString(deterministic=True)
    text = text_format.MessageToString(message, as_utf8=True).encode()
    mistakes = []
    for source, data in (("text", text), ("wire", wire)):
        for to in ("text", "wire"):
            got = program.convert(name, source, to, data)
            if isinstance(got, str):
                mistakes.append("%s to %s: %s" % (source, to, got))
                continue
            again = type(message)()
            if to == "text":
                text_format.Parse(got.decode(), again)
            else:
                again.ParseFromString(got)
            bytes_again = again.SerializeToString(deterministic=True)
            if bytes_again != wire or (to == "wire" and got != wire):
                mistakes.append("%s to %s: another message: %r and %r" % (source, to, wire[:300], got[:300]))
    return mistakes


def check_random(program, rng, cases):
    count = 0
    for i in range(cases):
        name = rng.choice(sorted(MESSAGES))
        message = MESSAGES[name]()
        fill(rng, message, rng.choice([2, 3, 4]), rng.choice([0.05, 0.3, 0.9] if name != "net" else [0.05, 0.2, 0.5]))
        for mistake in check_message(program, name, message):
            print("%s %d: %s" % (name, i, mistake))
            count += 1
    print("%d random messages, each in four ways: %d mistakes" % (cases, count))
    return count


# --- blobs -------------------------------------------------------------------------------------------------


def draw_blob(rng, blob):
    """A blob whose values fit its shape, and the same blob as Caffe writes it today."""
    sizes = [rng.choice([1, 1, 2, 3, 7]) for _ in range(rng.randint(0, 5))]
    again = caffe_pb2.BlobProto()
    if rng.random() < 0.3:
        sizes = [rng.choice([1, 2, 3]) for _ in range(4)]
        blob.num, blob.channels, blob.height, blob.width = sizes
    else:
        blob.shape.dim.extend(sizes)
        blob.shape.SetInParent()
    if sizes:  # a scalar has no shape
        again.shape.dim.extend(sizes)
    values = [draw_float(rng, True) for _ in range(int(np.prod(sizes, dtype=int)))]
    for b in (blob, again):
        (b.double_data if len(values) % 2 else b.data).extend(values)
    return again


def check_blobs(program, rng, cases):
    """Blobs that become tensors and blobs again are those that Caffe would write."""
    count = 0
    for _ in range(cases):
        vector, expected = caffe_pb2.BlobProtoVector(), caffe_pb2.BlobProtoVector()
        for _ in range(rng.randint(1, 4)):
            expected.blobs.add().CopyFrom(draw_blob(rng, vector.blobs.add()))
        got = program.convert("blob_vector", "tensors", "wire", vector.SerializeToString())
        if got != expected.SerializeToString(deterministic=True):
            print("blobs: %s\n%r" % (vector, got))
            count += 1
    print("%d times some blobs as tensors: %d mistakes" % (cases, count))
    return count


# --- files -------------------------------------------------------------------------------------------------


def check_files(program):
    """The nets and solvers of $GRADUS_DATA/caffe or ../shared/data/caffe."""
    here = os.path.dirname(os.path.abspath(__file__))
    folder = os.path.join(os.environ.get("GRADUS_DATA", os.path.join(here, "../../../shared/data")), "caffe")
    paths = glob.glob(os.path.join(folder, "**/*.prototxt"), recursive=True)
    paths += glob.glob(os.path.join(folder, "**/*.caffemodel"), recursive=True)
    count = 0
    for path in sorted(paths):
        name = "solver" if "solver" in path else "net"
        with open(path, "rb") as f:
            data = f.read()
        message = MESSAGES[name]()
        if path.endswith(".caffemodel"):
            message.ParseFromString(data)
        else:
            text_format.Parse(data.decode(), message)
        wire = message.SerializeToString(deterministic=True)
        mistakes = check_message(program, name, message)
        if program.convert(name, "any", "wire", data) != wire:
            mistakes.append("the file itself: another message")
        for mistake in mistakes:
            print("%s: %s" % (path, mistake))
            count += 1
    print("%d files: %d mistakes" % (len(paths), count))
    return count


# --- nets of version 1 -------------------------------------------------------------------------------------

V1_LAYERS = [
    "type: CONVOLUTION convolution_param { num_output: 4 kernel_size: 3 pad: 1 weight_filler { type: 'xavier' } }",
    "type: INNER_PRODUCT inner_product_param { num_output: 6 bias_term: false }",
    "type: DECONVOLUTION convolution_param { num_output: 2 kernel_size: 1 }",
    "type: RELU relu_param { negative_slope: 0.5 }",
    "type: TANH", "type: SIGMOID", "type: BNLL", "type: ABSVAL", "type: FLATTEN", "type: SOFTMAX", "type: MVN",
    "type: POOLING pooling_param { pool: AVE kernel_size: 2 stride: 1 }",
    "type: LRN lrn_param { local_size: 3 alpha: 0.1 }",
    "type: DROPOUT dropout_param { dropout_ratio: 0.3 }",
    "type: POWER power_param { power: 2 scale: 0.5 shift: 1 }",
    "type: EXP exp_param { base: 2 }",
    "type: THRESHOLD threshold_param { threshold: 0.25 }",
    "type: ARGMAX argmax_param { top_k: 2 }",
    "type: IM2COL convolution_param { kernel_size: 1 }",
    "type: ELTWISE eltwise_param { operation: SUM coeff: 2 }",
    "type: CONCAT concat_param { concat_dim: 1 }",
    "type: SLICE slice_param { slice_dim: 1 }",
]
WITH_BLOBS = ("CONVOLUTION", "INNER_PRODUCT", "DECONVOLUTION")


def draw_v1_net(rng):
    """A chain of layers of version 1 on a blob (2, 4, 6, 6)."""
    lines = ["name: 'old'", "input: 'b0'", "input_dim: 2", "input_dim: 4", "input_dim: 6", "input_dim: 6"]
    used = 0
    for _ in range(rng.choice([1, 3, 6])):
        kind = rng.choice(V1_LAYERS)
        extra = []
        n_blobs = 0
        if kind.split()[1] in WITH_BLOBS:
            n_blobs = 1 if "bias_term: false" in kind else 2
            extra += ["blobs_lr: %g" % rng.choice([0, 1, 2, 0.1]) for _ in range(rng.randint(0, n_blobs))]
            extra += ["weight_decay: %g" % rng.choice([0, 1, 0.5]) for _ in range(rng.randint(0, n_blobs))]
            if rng.random() < 0.3:
                extra += ["param: 'shared%d'" % used]
                if rng.random() < 0.5:
                    extra += ["blob_share_mode: %s" % rng.choice(["STRICT", "PERMISSIVE"])]
        extra += rng.sample(["include { phase: TRAIN }", "include { phase: TEST min_level: 0 }",
                             "exclude { stage: 'x' }"], rng.choice([0, 0, 1]))
        used += 1
        lines.append("layers { name: 'l%d' bottom: 'b%d' top: 'b%d' %s %s }" % (
            used, used - 1, used, kind, " ".join(extra)))
        if "phase: TRAIN" in lines[-1]:  # it is not in this net
            used -= 1
    if rng.random() < 0.5:  # of the last layer: Caffe moves others to layers that it adds
        lines[-1] = lines[-1][:-1] + "loss_weight: 0.5 }"
    return "\n".join(lines)


def plain_layers(net):
    """Layers without what caffe.Net adds."""
    kept = caffe_pb2.NetParameter()
    for layer in net.layer:
        if layer.type in ("Input", "Split") or any(rule.phase == caffe_pb2.TRAIN and rule.HasField("phase")
                                                   for rule in layer.include):
            continue
        copy = kept.layer.add()
        copy.CopyFrom(layer)
        copy.ClearField("phase")
        copy.ClearField("blobs")
        copy.bottom[:] = [re.sub("_l[0-9]+_0_split_[0-9]+$", "", name) for name in copy.bottom]
    return kept


def in_child(function, *arguments):
    """Whether the function returned true. Caffe aborts on bad input."""
    child = os.fork()
    if child == 0:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        os._exit(0 if function(*arguments) else 1)
    return os.waitpid(child, 0)[1] == 0


def save_as_caffe(path, out):
    caffe.Net(path, caffe.TEST).save(out)
    return True


def check_v1_net(program, folder, text):
    path, saved = os.path.join(folder, "v1.prototxt"), os.path.join(folder, "v1.caffemodel")
    with open(path, "w") as f:
        f.write(text)
    if not in_child(save_as_caffe, path, saved):
        return None
    theirs, ours = caffe_pb2.NetParameter(), caffe_pb2.NetParameter()
    with open(saved, "rb") as f:
        theirs.ParseFromString(f.read())
    got = program.convert("net", "upgrade", "text", text.encode())
    if isinstance(got, str):
        return got
    text_format.Parse(got.decode(), ours)
    if ours.layers:
        return "layers of version 1 are left"
    a, b = plain_layers(theirs), plain_layers(ours)
    return "" if a == b else "Caffe: %s\nhere: %s" % (a, b)


def old_weights(theirs, rng):
    """The weights of a net as a file of version 1: blobs with four sizes."""
    old = caffe_pb2.NetParameter(name="old")
    for layer in theirs.layer:
        if not layer.blobs:
            continue
        v1 = old.layers.add(name=layer.name)
        v1.type = caffe_pb2.V1LayerParameter.CONVOLUTION
        for blob in layer.blobs:
            sizes = [1] * (4 - len(blob.shape.dim)) + list(blob.shape.dim)
            copy = v1.blobs.add(num=sizes[0], channels=sizes[1], height=sizes[2], width=sizes[3])
            copy.data.extend(rng.uniform(-1, 1) for _ in blob.data)
    return old


def check_v1_weights(program, folder, rng):
    """Caffe loads the weights of version 1 into the net; the upgraded file has the same blobs."""
    saved, weights = os.path.join(folder, "v1.caffemodel"), os.path.join(folder, "weights.caffemodel")
    theirs = caffe_pb2.NetParameter()
    with open(saved, "rb") as f:
        theirs.ParseFromString(f.read())
    old = old_weights(theirs, rng)
    with open(weights, "wb") as f:
        f.write(old.SerializeToString())

    def load():
        net = caffe.Net(os.path.join(folder, "v1.prototxt"), weights, caffe.TEST)
        net.save(saved)
        return True

    if not in_child(load):
        return "Caffe does not load the weights"
    with open(saved, "rb") as f:
        theirs.ParseFromString(f.read())
    got = program.convert("net", "upgrade", "wire", old.SerializeToString())
    if isinstance(got, str):
        return got
    ours = caffe_pb2.NetParameter.FromString(got)
    blobs = {layer.name: [list(b.data) for b in layer.blobs] for layer in ours.layer}
    for layer in theirs.layer:
        if layer.blobs and blobs.get(layer.name) != [list(b.data) for b in layer.blobs]:
            return "other blobs of %s" % layer.name
    return ""


def check_v1(program, folder, rng, cases):
    count = nets = refused = 0
    while nets < cases and refused < 10 * cases:
        text = draw_v1_net(rng)
        mistake = check_v1_net(program, folder, text)
        if mistake is None:
            refused += 1
            continue
        nets += 1
        for words in (mistake, check_v1_weights(program, folder, rng)):
            if words:
                print("%s\n%s" % (text, words))
                count += 1
    print("%d nets of version 1 and their weights (and %d that Caffe refuses): %d mistakes" % (nets, refused, count))
    return count + (nets < cases)


SOLVER_TYPES = ["SGD", "NESTEROV", "ADAGRAD", "RMSPROP", "ADADELTA", "ADAM"]


def check_solver_types(program):
    """The names of caffe.get_solver's classes."""
    count = 0
    names = {"SGD", "Nesterov", "AdaGrad", "RMSProp", "AdaDelta", "Adam"}
    for word in SOLVER_TYPES:
        got = program.convert("solver", "upgrade", "text", ("solver_type: %s" % word).encode())
        solver = caffe_pb2.SolverParameter()
        text_format.Parse(got.decode(), solver)
        count += solver.type.upper() != word or solver.type not in names or solver.HasField("solver_type")
        count += not hasattr(caffe, solver.type + "Solver")
    print("%d types of solvers: %d mistakes" % (len(SOLVER_TYPES), count))
    return count


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--program", default=os.environ.get("GRADUS_CONVERT_MESSAGE"))
    parser.add_argument("--cases", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    rng = random.Random(options.seed)
    with tempfile.TemporaryDirectory() as folder:
        program = Program(options.program, folder)
        mistakes = check_files(program) + check_random(program, rng, options.cases)
        mistakes += check_blobs(program, rng, options.cases) + check_solver_types(program)
        mistakes += check_v1(program, folder, rng, max(1, options.cases // 20))
    sys.exit(1 if mistakes else 0)


main()
