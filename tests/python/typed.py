"""The types that type checkers see are those of the module, and a typical program passes mypy --strict. Needs mypy."""
import os
import subprocess
import sys
import tempfile

import gradus

PROGRAM = '''
import gradus as gd

x = gd.randn(3, 4, requires_grad=True)
y: gd.Tensor = (x @ x.T).sum(axis=1) + 1.0
z = gd.conv2d(gd.ones((1, 1, 4, 4)), gd.ones((1, 1, 2, 2)), stride=2, padding=(0, 1))
values, places = gd.topk(x, 2)
loss = gd.mse_loss(y, gd.zeros(3), reduction="sum")
loss.backward()
rank: int = x.ndim
with gd.no_grad():
    w = gd.reshape(x, (4, 3))[0, ::2]
parts: tuple[gd.Tensor, ...] = gd.split(x, [1, 2])
for row in x:
    print(float(row[0]), row.tolist(), row.dtype == gd.float32)

@gd.jit
def named(x: gd.Tensor, by: int = 2) -> dict[str, gd.Tensor]:
    return {"y": x * by}

@gd.jit(level=0)
def same(x: gd.Tensor) -> gd.Tensor:
    return x

result: dict[str, gd.Tensor] = named(x, by=3)
print(same(x).shape, named.traces, named.explain(), named.plan(x))
with gd.Graph() as graph, gd.name_scope("a"):
    symbol = gd.placeholder((None, 3), name="x")
print(gd.Session(graph).run({"y": symbol}, {symbol: x}), gd.jacobian(gd.sin, x), gd.cond(x, gd.sin, gd.cos, x))
x.register_hook(lambda g: g * 2).remove()

class Net(gd.nn.Module):
    def __init__(self, classes: int = 10) -> None:
        super().__init__()
        self.body = gd.nn.Sequential(gd.nn.Conv2d(1, 8, 3, padding="same"), gd.nn.ReLU(inplace=True), gd.nn.Flatten())
        self.head = gd.nn.LazyLinear(classes)

    def forward(self, images: gd.Tensor) -> gd.Tensor:
        y: gd.Tensor = self.head(self.body(images))
        return y


net = Net()
net(gd.ones((2, 1, 8, 8)))
criterion = gd.nn.CrossEntropyLoss(weight=gd.ones(10), label_smoothing=0.1)
lstm = gd.nn.LSTM(4, 8, num_layers=2, batch_first=True)
names: list[str] = [name for name, p in net.named_parameters() if p.requires_grad]
gd.nn.init.kaiming_normal_(net.head.weight, nonlinearity="relu")
resnet: gd.nn.Module = gd.zoo.resnet18(num_classes=10)

classifier = gd.nn.Sequential(gd.nn.Linear(4, 3))
classifier.compile(optimizer="adamw lr=0.01", loss="cross_entropy", metrics=["accuracy"])
history = classifier.fit(gd.randn(6, 4), gd.arange(6) % 3, epochs=2, verbose=0, callbacks=[gd.callbacks.EarlyStopping("loss")])
last: float = history.history["loss"][-1]
opt = gd.optim.AdamW(classifier.parameters(), lr=1e-3, betas=(0.9, 0.99))
scheduler = gd.optim.lr_scheduler.CosineAnnealingLR(opt, T_max=10, warmup=2)
one = gd.optim.lr_scheduler.OneCycleLR(opt, 0.1, total_steps=100)
for group in opt.param_groups:
    group["lr"] = 0.1
accuracy = gd.metrics.Accuracy()
accuracy.update(classifier(gd.randn(6, 4)), gd.arange(6) % 3)
value: float = accuracy.value().item()
gd.save_state("x.safetensors", net=classifier)
gd.onnx.save(classifier, "x.onnx", gd.randn(1, 4))
gd.nn.utils.clip_grad_norm_(classifier.parameters(), 1.0)
with gd.profiler.profile() as profile:
    pass
'''
MISTAKES = ['gd.jit(lambda x: x, strict=True)', 'gd.placeholder((None,), name=3)', 'gd.relu()',
            'gd.conv2d(x, x, strides=2)', 'gd.mse_loss(x, x, reduction="median")', 'x.no_such_method()',
            'gd.no_such_function(x)', 'gd.zeros("2,3")', 'gd.nn.Linear(3)', 'gd.nn.Conv2d(1, 2, 3, strides=2)',
            'gd.nn.MSELoss(reduction="median")', 'gd.nn.NoLayer()', 'gd.optim.SGD()', 'gd.optim.AdamW([x], beta=1)',
            'gd.metrics.Accuracy(axes=1)', 'gd.callbacks.EarlyStopping(patience="2")', 'gd.nn.Linear(2, 2).fit(x, epoch=3)']

TRAINING = ("optim", "callbacks", "metrics", "onnx", "tensorboard", "profiler", "_train", "_fit", "_state", "_progress")

package = os.path.dirname(os.path.dirname(gradus.__file__))
environment = {**os.environ, "MYPYPATH": package, "PYTHONPATH": package}
passed = failed = 0


def check(name, good, output=""):
    global passed, failed
    passed, failed = passed + good, failed + (not good)
    if not good:
        print("FAILED", name, output[-3000:], sep="\n")


def mypy(folder, text):
    path = os.path.join(folder, "program.py")
    with open(path, "w") as file:
        file.write(text)
    done = subprocess.run([sys.executable, "-m", "mypy", "--strict", "--follow-imports=silent", "--cache-dir",
                           os.path.join(folder, "cache"), path], env=environment, cwd=folder, capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


with tempfile.TemporaryDirectory() as folder:
    done = subprocess.run([sys.executable, "-m", "mypy.stubtest", "gradus._core", "gradus.nn", "gradus.zoo"],
                          env=environment, cwd=folder, capture_output=True, text=True)
    check("stubtest", done.returncode == 0, done.stdout + done.stderr)
    done = subprocess.run([sys.executable, "-m", "mypy", "--strict", "--follow-imports=silent", "--cache-dir",
                           os.path.join(folder, "cache"), "-p", "gradus.nn", "-p", "gradus.zoo",
                           *(part for name in TRAINING for part in ("-p", "gradus." + name))], env=environment, cwd=folder,
                          capture_output=True, text=True)
    check("the package", done.returncode == 0, done.stdout + done.stderr)
    code, output = mypy(folder, PROGRAM)
    check("a program", code == 0, output)
    for mistake in MISTAKES:
        code, output = mypy(folder, f"import gradus as gd\nx = gd.ones(2)\n{mistake}\n")
        check(mistake, code == 1 and "program.py:3" in output, output)
print(f"{passed} passed, {failed} failed")
raise SystemExit(failed > 0)
