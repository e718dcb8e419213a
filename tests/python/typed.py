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
'''
MISTAKES = ['gd.relu()', 'gd.conv2d(x, x, strides=2)', 'gd.mse_loss(x, x, reduction="median")', 'x.no_such_method()',
            'gd.no_such_function(x)', 'gd.zeros("2,3")']

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
    done = subprocess.run([sys.executable, "-m", "mypy.stubtest", "gradus._core"], env=environment, cwd=folder,
                          capture_output=True, text=True)
    check("stubtest", done.returncode == 0, done.stdout + done.stderr)
    code, output = mypy(folder, PROGRAM)
    check("a program", code == 0, output)
    for mistake in MISTAKES:
        code, output = mypy(folder, f"import gradus as gd\nx = gd.ones(2)\n{mistake}\n")
        check(mistake, code == 1 and "program.py:3" in output, output)
print(f"{passed} passed, {failed} failed")
raise SystemExit(failed > 0)
