"""data_against_caffe.py - compares the data layers, databases and means with Caffe.

It needs the packages kendryte-caffe, lmdb, h5py, numpy and pillow, and the programs run_data and gradus, which the variables
GRADUS_RUN_DATA and GRADUS_PROGRAM name. Caffe runs in a child process, because it aborts on bad input.
"""
import os
import subprocess
import sys
import tempfile

os.environ.setdefault("GLOG_minloglevel", "2")
import numpy as np
import h5py
import lmdb
from PIL import Image

PROGRAM, GRADUS = os.environ["GRADUS_RUN_DATA"], os.environ["GRADUS_PROGRAM"]
rng = np.random.RandomState(7)
counts = {}


def fail(text):
    print("FAILED: " + text)
    sys.exit(1)


def run(*words, status=0):
    done = subprocess.run([str(w) for w in words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, universal_newlines=True)
    if done.returncode != status:
        fail("%s: exit status %d\n%s" % (" ".join(map(str, words)), done.returncode, done.stdout))
    return done.stdout


# --- Caffe, in a child process ---------------------------------------------------------------------------

CAFFE = """
import os, sys
os.environ.setdefault("GLOG_minloglevel", "2")
import numpy as np
import caffe
for line in sys.stdin:
    name, phase, batches, to = line.split("|")
    net = caffe.Net(name, caffe.TRAIN if phase == "train" else caffe.TEST)
    out = {}
    for n in range(int(batches)):
        net.forward()
        for top, blob in net.blobs.items():
            out["%d:%s" % (n, top)] = blob.data.copy()
    np.savez(to.strip(), **out)
    print("done", flush=True)
"""
caffe_process = None


def caffe_batches(net, phase, batches):
    global caffe_process
    if caffe_process is None:
        caffe_process = subprocess.Popen([sys.executable, "-c", CAFFE], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                         universal_newlines=True)
    caffe_process.stdin.write("%s|%s|%d|caffe.npz\n" % (net, phase, batches))
    caffe_process.stdin.flush()
    if "done" not in caffe_process.stdout.readline():
        fail("Caffe ended: " + open(net).read())
    return dict(np.load("caffe.npz"))


def own_batches(net, phase, batches, workers=0, epoch=None):
    run(PROGRAM, net, phase, batches, workers, "own.npz", *([] if epoch is None else [epoch]))
    return dict(np.load("own.npz"))


def write_net(layers):
    with open("net.prototxt", "w") as f:
        f.write("name: 'data'\n" + layers)
    return "net.prototxt"


def compare(kind, layers, batches=5, phase="test", tolerance=0.0):
    """The same batches, with any number of workers and any length of an epoch."""
    net = write_net(layers)
    want = caffe_batches(net, phase, batches)
    for workers, epoch in ((0, None), (2, 3)):
        got = own_batches(net, phase, batches, workers, epoch)
        if sorted(got) != sorted(want):
            fail("%s: blobs %s and %s\n%s" % (kind, sorted(got), sorted(want), layers))
        for name in want:
            if got[name].shape != want[name].shape:
                fail("%s: %s has the shape %s and not %s\n%s" % (kind, name, got[name].shape, want[name].shape, layers))
            worst = np.abs(got[name] - want[name]).max() if want[name].size else 0
            if not worst <= tolerance:
                fail("%s: %s differs by %g\n%s" % (kind, name, worst, layers))
    counts[kind] = counts.get(kind, 0) + 1


# --- databases -------------------------------------------------------------------------------------------


def datum(array=None, label=0, floats=False, file=None):
    from caffe.proto import caffe_pb2

    d = caffe_pb2.Datum()
    d.label = label
    if file is not None:
        d.data, d.encoded = open(file, "rb").read(), True
        return d.SerializeToString()
    d.channels, d.height, d.width = array.shape
    if floats:
        d.float_data.extend(array.ravel().tolist())
    else:
        d.data = array.astype(np.uint8).tobytes()
    return d.SerializeToString()


def write_lmdb(folder, values, keys=None):
    env = lmdb.open(folder, map_size=1 << 28)
    with env.begin(write=True) as t:
        for i, value in enumerate(values):
            t.put(keys[i] if keys else b"%08d" % i, value)
    env.close()


def smooth(height, width, channels):
    """An image that JPEG keeps well."""
    y, x = np.mgrid[0:height, 0:width]
    planes = [127 + 100 * np.sin(x / (3.0 + 2 * c) + rng.rand() * 6) * np.cos(y / (4.0 + c)) for c in range(channels)]
    return np.clip(np.stack(planes, -1), 0, 255).astype(np.uint8)


def save_image(name, height=24, width=31, channels=3):
    pixels = smooth(height, width, channels)
    Image.fromarray(pixels[:, :, 0] if channels == 1 else pixels).save(name, quality=90, **({"subsampling": 0} if name.endswith("jpg") else {}))
    return name


def data_layer(source, batch, transform="", more="", tops=("data", "label")):
    return "layer { name: 'd' type: 'Data' %s transform_param { %s } data_param { source: '%s' batch_size: %d backend: LMDB %s } }\n" % (
        " ".join("top: '%s'" % t for t in tops), transform, source, batch, more)


def write_mean(name, array, old):
    from caffe.proto import caffe_pb2

    blob = caffe_pb2.BlobProto()
    if old:
        blob.num, (blob.channels, blob.height, blob.width) = 1, array.shape
    else:
        blob.shape.dim.extend((1,) + array.shape)
    blob.data.extend(array.ravel().tolist())
    open(name, "wb").write(blob.SerializeToString())


def check_data():
    for channels in (1, 3):
        images = [rng.randint(0, 256, (channels, 9, 11)) for _ in range(23)]
        write_lmdb("raw%d" % channels, [datum(a, i * 3 - 9) for i, a in enumerate(images)])
        write_lmdb("float%d" % channels, [datum(a / 7.0 - 3, i, floats=True) for i, a in enumerate(images)])
        mean = rng.rand(channels, 9, 11) * 200
        write_mean("mean%d" % channels, mean, channels == 1)
        values = " ".join("mean_value: %g" % v for v in rng.rand(channels) * 99)
        for kind in ("raw", "float"):
            source = "%s%d" % (kind, channels)
            for batch in (1, 7, 23, 50):
                compare("Data", data_layer(source, batch), 8)
            for transform in ("scale: 0.00390625", "mean_value: 12.5", values, "mean_file: 'mean%d'" % channels, "crop_size: 5",
                              "crop_size: 4 scale: 0.1 mean_file: 'mean%d'" % channels, "crop_size: 9 " + values,
                              "mirror: false crop_size: 1"):
                compare("Data, transform_param", data_layer(source, 6, transform), 6)
            compare("Data", data_layer(source, 4, tops=("data",)), 3)
    compare("Data, several layers", data_layer("raw1", 5) + data_layer("float3", 3, tops=("other", "more")).replace("'d'", "'e'"), 9)
    # keys in another order than they were written, and of other bytes
    keys = [bytes(rng.randint(1, 256, rng.randint(1, 40)).astype(np.uint8).tolist()) + b"%d" % i for i in range(100)]
    write_lmdb("keys", [datum(rng.randint(0, 256, (1, 2, 2)), i) for i in range(100)], keys)
    compare("Data, keys", data_layer("keys", 33), 5)
    os.mkdir("empty") if not os.path.isdir("empty") else None
    net = write_net(data_layer("empty", 3))
    if "no file data.mdb" not in run(PROGRAM, net, "test", 1, 0, "own.npz", status=1):
        fail("a folder without data.mdb")


# Caffe's package has a JPEG library of its own, which rounds another way.
JPEG = 1


def check_encoded():
    files = [save_image("color%d.jpg" % i) for i in range(5)] + [save_image("color%d.png" % i) for i in range(4)]
    greys = [save_image("grey%d.jpg" % i, channels=1) for i in range(3)] + [save_image("grey%d.png" % i, channels=1) for i in range(3)]
    write_lmdb("encoded", [datum(file=f, label=i) for i, f in enumerate(files)])
    write_lmdb("encoded_grey", [datum(file=f, label=i) for i, f in enumerate(greys)])
    write_lmdb("encoded_both", [datum(file=f, label=i) for i, f in enumerate(files + greys)])
    for transform in ("", "scale: 0.5 crop_size: 17", "mean_value: 10 mean_value: 20 mean_value: 30", "force_color: true"):
        compare("Data, encoded", data_layer("encoded", 4, transform), 5, tolerance=JPEG)
    for transform in ("", "force_gray: true", "force_color: true", "crop_size: 20 mean_value: 99"):
        compare("Data, encoded", data_layer("encoded_grey", 4, transform), 4, tolerance=JPEG)
    compare("Data, encoded", data_layer("encoded_both", 4, "force_color: true"), 6, tolerance=JPEG)
    compare("Data, encoded", data_layer("encoded_both", 4, "force_gray: true"), 6, tolerance=JPEG)


def check_images():
    sizes = [(24, 31), (40, 20), (15, 15), (33, 64), (48, 62)]
    form = "layer { name: 'i' type: 'ImageData' top: 'data' top: 'label' transform_param { %s } image_data_param { source: '%s' %s } }\n"
    for ending, tolerance in (("png", 0), ("jpg", JPEG)):
        names = [save_image("im age%d.%s" % (i, ending), *size, 3 if i % 3 else 1) for i, size in enumerate(sizes)]
        with open(ending + ".txt", "w") as f:
            for i, name in enumerate(names):
                f.write("%s %d\n" % (name, i - 3))
        for parameters in ("batch_size: 3 new_height: 20 new_width: 30", "batch_size: 4 new_height: 12 new_width: 8 is_color: false",
                           "batch_size: 7 new_height: 24 new_width: 31", "batch_size: 2 new_height: 60 new_width: 90",
                           "batch_size: 5 new_height: 7 new_width: 100"):
            compare("ImageData, resized, " + ending, form % ("", ending + ".txt", parameters), 7, tolerance=tolerance)
            compare("ImageData, resized, " + ending, form % ("scale: 0.5 mean_value: 100 crop_size: 7", ending + ".txt", parameters), 7,
                    tolerance=tolerance)
        compare("ImageData, its own sizes", form % ("", ending + ".txt", "batch_size: 1"), 12, tolerance=tolerance)
        compare("ImageData, its own sizes", form % ("crop_size: 15", ending + ".txt", "batch_size: 4"), 6, tolerance=tolerance)
        os.makedirs("folder", exist_ok=True)
        for name in names:
            os.rename(name, "folder/pre " + name)
        compare("ImageData, root_folder", form % ("crop_size: 15", ending + ".txt", "batch_size: 4 root_folder: 'folder/pre '"), 6,
                tolerance=tolerance)


def check_hdf5():
    form = "layer { name: 'h' type: 'HDF5Data' %s hdf5_data_param { source: 'h5.txt' batch_size: %d } }\n"
    names = []
    for i, rows in enumerate((13, 1, 8)):
        names.append("rows%d.h5" % i)
        with h5py.File(names[-1], "w") as f:
            f["data"] = rng.randn(rows, 2, 3).astype(np.float32)
            f["label"] = rng.randint(0, 10, rows).astype(np.float32)
            f.create_dataset("packed", data=rng.randn(rows, 5), chunks=(min(rows, 4), 3), compression="gzip", shuffle=True)
            f["number"] = rng.randint(-9, 9, (rows, 1, 1, 2))
    for count in (1, 3):
        with open("h5.txt", "w") as f:
            f.write("\n".join(names[:count]) + "\n")
        for tops in (("data", "label"), ("label",), ("packed", "number", "data")):
            for batch in (1, 5, 13, 40):
                compare("HDF5Data", form % (" ".join("top: '%s'" % t for t in tops), batch), 6)


def check_windows():
    """One window of each kind, so that Caffe's random choice is known."""
    save_image("window0.png", 40, 50)
    save_image("window1.png", 30, 28)
    write_mean("window_mean", rng.rand(3, 20, 20) * 200, False)
    form = "layer { name: 'w' type: 'WindowData' top: 'data' top: 'label' transform_param { %s } window_data_param { source: 'w.txt' %s } }\n"
    for a, b in (((5, 6, 30, 35), (2, 3, 20, 25)), ((0, 0, 49, 39), (0, 10, 27, 29)), ((30, 1, 49, 20), (10, 10, 12, 29)), ((3, 3, 3, 3), (0, 0, 27, 0))):
        with open("w.txt", "w") as f:
            f.write("# 0\nwindow0.png\n3\n40\n50\n2\n4 0.9 %d %d %d %d\n2 0.55 1 1 5 5\n" % a)
            f.write("# 1\nwindow1.png\n3 30 28\n1\n9 0.3 %d %d %d %d\n" % b)
        for parameters in ("", "context_pad: 3", "crop_mode: 'square'", "crop_mode: 'square' context_pad: 5", "scale: 0.5 fg_fraction: 0.7"):
            for transform in ("crop_size: 16", "crop_size: 13 mean_value: 100", "crop_size: 16 mean_value: 1 mean_value: 2 mean_value: 3",
                              "crop_size: 12 mean_file: 'window_mean'"):
                compare("WindowData", form % (transform, "batch_size: 4 fg_threshold: 0.6 bg_threshold: 0.5 " + parameters), 2)


def check_made_up():
    shape = "shape { dim: 4 dim: 3 }"
    form = "layer { name: 'm' type: 'DummyData' top: 'a' top: 'b' dummy_data_param { %s } }\n"
    for parameters in (shape, shape + " data_filler { value: 2.5 }", shape + shape + " data_filler { value: 1 } data_filler { value: 3 }",
                       "num: 2 channels: 3 height: 1 width: 5", "num: 2 num: 1 channels: 3 height: 1 width: 5 data_filler { type: 'constant' value: -1 }"):
        compare("DummyData", form % parameters, 3)


# --- what the commands write -----------------------------------------------------------------------------


def records(folder):
    env = lmdb.open(folder, readonly=True, lock=False)
    with env.begin() as t:
        return list(t.cursor())


def check_commands():
    from caffe.proto import caffe_pb2

    mnist = os.environ.get("GRADUS_MNIST")
    if mnist:
        run(GRADUS, "convert-mnist", mnist, "mnist_test", "--part", "test")
        got = records("mnist_test")
        import gzip

        pixels = gzip.open(os.path.join(mnist, "t10k-images-idx3-ubyte.gz")).read()[16:]
        labels = gzip.open(os.path.join(mnist, "t10k-labels-idx1-ubyte.gz")).read()[8:]
        for i, (key, value) in enumerate(got):
            want = caffe_pb2.Datum(channels=1, height=28, width=28, data=pixels[784 * i : 784 * i + 784], label=labels[i])
            if key != b"%08d" % i or value != want.SerializeToString():
                fail("convert-mnist: record %d" % i)
        if len(got) != 10000:
            fail("convert-mnist: %d records" % len(got))
        counts["convert-mnist, records"] = len(got)
        compare("convert-mnist, batches", data_layer("mnist_test", 64, "scale: 0.00390625"), 160)
    for i in range(6):
        save_image("c%d.%s" % (i, "jpg" if i == 3 else "png"), 20 + i, 30)
    with open("convert.txt", "w") as f:
        f.write("".join("c%d.%s %d\n" % (i, "jpg" if i == 3 else "png", i * 7) for i in range(6)))
    run(GRADUS, "convert-images", "convert.txt", "converted", "--resize-height", 16, "--resize-width", 18)
    run(GRADUS, "convert-images", os.getcwd(), "convert.txt", "converted_grey", "-gray", "-resize_height=9", "-resize_width=18")
    run(GRADUS, "convert-images", "convert.txt", "converted_encoded", "--encoded", "--shuffle", "--seed", 4)
    run(GRADUS, "convert-images", "convert.txt", "converted_again", "--encode-type", "png", "--resize-height", 16, "--resize-width", 18)
    run(GRADUS, "convert-images", "convert.txt", "converted_sizes", "--check-size", status=1)
    for source, batch in (("converted", 4), ("converted_grey", 4), ("converted_encoded", 1), ("converted_again", 5)):
        compare("convert-images, batches", data_layer(source, batch, ""), 4, tolerance=JPEG)
    want = caffe_batches(write_net("layer { name: 'i' type: 'ImageData' top: 'data' top: 'label' image_data_param { source: 'convert.txt' "
                                   "batch_size: 6 new_height: 16 new_width: 18 } }"), "test", 1)
    got = records("converted")
    for i, (key, value) in enumerate(got):
        if i == 3:
            continue
        pixels = want["0:data"][i].astype(np.uint8)
        d = caffe_pb2.Datum(channels=3, height=16, width=18, data=pixels.tobytes(), label=i * 7, encoded=False)
        if key != b"%08d_c%d.png" % (i, i) or value != d.SerializeToString():
            fail("convert-images: record %d" % i)
    for key, value in records("converted_encoded"):
        name = key.split(b"_")[1].decode()
        d = caffe_pb2.Datum.FromString(value)
        if not d.encoded or d.data != open(name, "rb").read() or d.label != int(name[1]) * 7:
            fail("convert-images --encoded: " + name)
    counts["convert-images, records"] = len(got) * 2
    for source in ("converted", "raw3", "float1", "encoded"):
        text = run(GRADUS, "compute-mean", source, "mean.out")
        blob = caffe_pb2.BlobProto.FromString(open("mean.out", "rb").read())
        n = len(records(source))
        mean = caffe_batches(write_net(data_layer(source, n)), "test", 1)["0:data"].astype(np.float64).mean(0)
        got = np.array(blob.data).reshape(mean.shape)
        if np.abs(got - mean).max() > (JPEG if source == "encoded" else 1e-4) or abs(float(text.split()[-1]) - mean[-1].mean()) > 1e-2:
            fail("compute-mean of %s" % source)
        compare("compute-mean, mean_file", data_layer(source, 3, "mean_file: 'mean.out'"), 3, tolerance=JPEG if source == "encoded" else 0)


def main():
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        for check in (check_data, check_encoded, check_images, check_hdf5, check_windows, check_made_up, check_commands):
            check()
        os.chdir("/")
    for kind in sorted(counts):
        print("%-28s %d" % (kind, counts[kind]))


main()
