"""Programs in PyTorch's idiom: the files of programs/ run with gradus.torch in PyTorch's place, and only their import lines
differ. Their losses over 100 steps are those of PyTorch, which `python test_programs.py --write` stores; it needs PyTorch."""
import json
import math
import os
import re
import sys
import unittest

FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "programs")
RESULTS = os.path.join(FOLDER, "results.json")
PROGRAMS = sorted(f[:-3] for f in os.listdir(FOLDER) if f.endswith(".py"))


def load(name, package):
    """The program's namespace, with `package` in place of torch in its import lines."""
    path = os.path.join(FOLDER, name + ".py")
    with open(path) as file:
        text = file.read()
    text = re.sub(r"^import torch$", f"import {package} as torch", text, flags=re.M)
    text = re.sub(r"^(import|from) torch\.", rf"\1 {package}.", text, flags=re.M)
    text = re.sub(r"^from torch import", f"from {package} import", text, flags=re.M)
    namespace = {"__name__": name}
    exec(compile(text, path, "exec"), namespace)
    return namespace


def relative(a, b):
    return abs(a - b) / max(1e-6, abs(a), abs(b))


class Programs(unittest.TestCase):
    pass


def add_test(name):
    def test(self):
        with open(RESULTS) as file:
            expected = json.load(file)[name]
        found = load(name, "gradus.torch")["run"]()
        self.assertEqual(sorted(found), sorted(expected))
        for key, values in expected.items():
            self.assertEqual(len(found[key]), len(values), key)
            worst = max(relative(a, b) for a, b in zip(found[key], values))
            self.assertLess(worst, 1e-5, f"{name}: {key}")
            self.assertTrue(all(math.isfinite(v) for v in found[key]))

    setattr(Programs, f"test_{name}", test)


for name in PROGRAMS:
    add_test(name)

if __name__ == "__main__":
    if "--write" not in sys.argv:
        unittest.main()
    results = {name: {key: [float(f"{v:.10g}") for v in values] for key, values in load(name, "torch")["run"]().items()}
               for name in PROGRAMS}
    with open(RESULTS, "w") as file:
        file.write(json.dumps(results, indent=None, separators=(",", ":")).replace("},", "},\n") + "\n")
    print("programs:", ", ".join(PROGRAMS))
