"""The package: its version, what an import costs and loads, the command, subinterpreters, NVIDIA's libraries."""

import os
import pathlib
import re
import subprocess
import sys
import sysconfig
import tempfile
import unittest
from unittest import mock

import gradus as gd
from gradus import _core, _cuda

SOURCE = pathlib.Path(os.environ.get("GRADUS_SOURCE", pathlib.Path(__file__).resolve().parents[2]))
SANITIZED = "LD_PRELOAD" in os.environ


def run(code, *arguments, **options):
    """A new interpreter; returns its status and what it wrote."""
    command = [sys.executable, *arguments] + (["-c", code] if code else [])
    quiet = os.environ | {"PYTHONWARNINGS": "ignore::RuntimeWarning"}  # that a free-threaded Python turns its lock on
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, env=quiet, **options)
    return done.returncode, done.stdout.strip()


def cpu_seconds(code, compiled):
    """The time that the processor works for a new interpreter, which other programs do not change much."""
    keep = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    child = subprocess.Popen([sys.executable, "-c", code], env=keep | {"PYTHONPYCACHEPREFIX": compiled})
    _, status, used = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise AssertionError(f"{code}: {child.returncode}")
    return used.ru_utime + used.ru_stime


class Import(unittest.TestCase):
    def test_the_version_is_that_of_the_project(self):
        text = (SOURCE / "CMakeLists.txt").read_text()
        version = re.search(r"project\(gradus VERSION ([0-9.]+)", text)[1]
        self.assertEqual((gd.__version__, _core.__version__), (version, version))

    def test_an_import_loads_neither_numpy_nor_submodules(self):
        code = "import sys, gradus; print(sorted(m for m in sys.modules if m.split('.')[0] in " \
               "('numpy', 'torch', 'ml_dtypes', 'html', 'ctypes') or m in ('gradus.torch', 'gradus._cuda', 'gradus._missing')))"
        self.assertEqual(run(code), (0, "[]"))

    def test_submodules_load_when_they_are_used(self):
        code = "import sys, gradus; gradus.torch.ones(2); print('gradus.torch' in sys.modules, 'torch' in sys.modules)"
        self.assertEqual(run(code), (0, "True False"))

    def test_an_import_takes_less_than_15_ms_beyond_the_interpreter(self):
        if SANITIZED:
            self.skipTest("a sanitizer takes most of the time")
        best = bare = float("inf")
        with tempfile.TemporaryDirectory() as compiled:
            for i in range(40):
                bare = min(bare, cpu_seconds("pass", compiled))
                best = min(best, cpu_seconds("import gradus", compiled))
                if i > 4 and best - bare < 0.010:
                    break
        print(f"import: {1000 * (best - bare):.1f} ms beyond the interpreter")
        self.assertLess(best - bare, 0.015)

    def test_unknown_names_are_attribute_errors_that_say_what_is_missing(self):
        with self.assertRaisesRegex(AttributeError, "nonsense"):
            gd.nonsense
        with self.assertRaisesRegex(AttributeError, "complex64"):
            gd.complex64
        self.assertFalse(hasattr(gd, "nonsense"))
        with self.assertRaises(ImportError):
            from gradus import nonsense  # noqa: F401

    def test_dir_has_functions_and_submodules(self):
        self.assertLess({"ones", "Tensor", "float32", "torch", "no_grad", "get_include"}, set(dir(gd)))

    def test_a_second_copy_of_the_module_is_refused(self):
        code = "import sys, gradus\nfor n in [m for m in sys.modules if m.startswith('gradus')]: del sys.modules[n]\n" \
               "try: import gradus\nexcept ImportError as e: print(e)"
        self.assertEqual(run(code), (0, "gradus cannot be loaded twice in a process"))

    def test_the_interpreter_ends_cleanly_whatever_is_alive(self):
        code = "import gradus as gd, threading, time\nx = gd.ones(3, requires_grad=True); y = (x * 2).sum(); y.backward()\n" \
               "g = x.grad; cycle = [x]; cycle.append(cycle)\n" \
               "threading.Thread(target=lambda: [gd.ones(100) @ gd.ones(100) for _ in range(10000)], daemon=True).start()\n" \
               "time.sleep(0.05)"
        for _ in range(3):
            self.assertEqual(run(code), (0, ""))


class Interpreters(unittest.TestCase):
    def test_a_subinterpreter_is_refused_with_a_message(self):
        code = """
import sys
try:
    import _interpreters as interpreters
except ImportError:
    try:
        import _xxsubinterpreters as interpreters
    except ImportError:
        sys.exit(77)
if FIRST:
    import gradus as gd
script = '''
try:
    import gradus
    print("imported")
except ImportError as failure:
    print(failure)
'''
one = interpreters.create()
interpreters.run_string(one, script)
interpreters.destroy(one)
import gradus as gd
print((gd.ones(2) + 1).tolist())
"""
        for first in (True, False):
            status, text = run(code.replace("FIRST", str(first)))
            if status == 77:
                self.skipTest("this Python has no module for subinterpreters")
            self.assertEqual(status, 0, text)
            message, works = text.splitlines()
            self.assertIn(message, ("gradus runs in the main interpreter only, not in subinterpreters",
                                    "module gradus._core does not support loading in subinterpreters"))  # Python's own
            self.assertEqual(works, "[2.0, 2.0]")

    def test_the_module_is_built_for_this_kind_of_interpreter(self):
        file = os.path.basename(_core.__file__)
        if not sysconfig.get_config_var("Py_GIL_DISABLED"):
            self.assertEqual(file, "_core.abi3.so")
            self.skipTest("this Python is not free-threaded, so that the build for such a Python is not shown")
        self.assertEqual(file, "_core" + sysconfig.get_config_var("EXT_SUFFIX"))


class Command(unittest.TestCase):
    @unittest.skipUnless(os.path.exists(os.path.join(os.path.dirname(_core.__file__), "bin", "gradus")),
                         "the gradus command is not built")
    def test_python_m_gradus_is_the_command(self):
        status, text = run(None, "-m", "gradus", "--help")
        self.assertEqual((status, "usage: gradus" in text), (0, True), text)
        status, text = run(None, "-m", "gradus", "nonsense")
        self.assertNotEqual(status, 0)
        self.assertIn("nonsense", text)

    def test_it_gets_all_arguments_and_the_folders_of_nvidias_libraries(self):
        from gradus import __main__ as command

        with mock.patch("os.execv") as start, mock.patch.object(sys, "argv", ["x", "eval", "a b"]), \
                mock.patch.object(_cuda, "library_folders", return_value=["/p/lib", "/q/lib"]), \
                mock.patch.dict(os.environ, {"GRADUS_LIBRARY_PATH": "/mine"}):
            command.main()
            self.assertEqual(os.environ["GRADUS_LIBRARY_PATH"], "/mine:/p/lib:/q/lib")
        program, arguments = start.call_args[0]
        self.assertEqual(arguments, ["gradus", "eval", "a b"])
        self.assertEqual(program, os.path.join(os.path.dirname(_core.__file__), "bin", "gradus"))

    def test_a_package_without_the_command_says_so(self):
        from gradus import __main__ as command

        with mock.patch("os.execv", side_effect=FileNotFoundError(2, "No such file or directory")), \
                self.assertRaisesRegex(SystemExit, "bin/gradus: No such file"):
            command.main()


class Libraries(unittest.TestCase):
    def test_folders_of_nvidias_packages_are_found_on_the_path_of_modules(self):
        with tempfile.TemporaryDirectory() as home:
            for name in ("cu13/lib/libcublasLt.so.13", "cu13/lib/libnvrtc.so.13", "cudnn/lib/libcudnn.so.9", "nccl/lib/libnccl.so.2",
                         "cudnn/include/cudnn.h"):
                path = pathlib.Path(home, "nvidia", name)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.touch()
            with mock.patch.object(sys, "path", ["/does/not/exist", home, home, __file__]):
                self.assertEqual(_cuda.library_folders(), [f"{home}/nvidia/cu13/lib", f"{home}/nvidia/cudnn/lib"])
            with mock.patch.object(sys, "path", []):
                self.assertEqual(_cuda.library_folders(), [])

    def test_they_are_looked_up_when_a_cuda_device_is_asked_for(self):
        code = "import sys, gradus as gd\ngd.device('cpu')\nbefore = 'gradus._cuda' in sys.modules\n" \
               "try: gd.device('cuda')\nexcept gd.DeviceError: pass\nprint(before, 'gradus._cuda' in sys.modules)"
        self.assertEqual(run(code), (0, "False True"))

    @unittest.skipUnless(os.path.exists(os.environ.get("GRADUS_EMULATED", "")) and not SANITIZED,
                         "there is no emulated CUDA driver: the CUDA backend is not built")
    def test_the_cuda_backend_takes_them_before_those_of_the_system(self):
        emulated = os.environ["GRADUS_EMULATED"]
        code = "import gradus as gd\nx = gd.ones(2, 2, dtype=gd.float64, device='cuda')\nprint((x @ x).sum().item(), x.device)\n" \
               "print(sorted({line.split()[-1] for line in open('/proc/self/maps') if 'cublasLt' in line}))"
        with tempfile.TemporaryDirectory() as home:
            folder = pathlib.Path(home, "nvidia", "cu13", "lib")
            folder.mkdir(parents=True)
            wanted = os.path.realpath(f"{emulated}/libcublasLt.so.13")
            (folder / "libcublasLt.so.13").symlink_to(wanted)
            with mock.patch.dict(os.environ, {"LD_LIBRARY_PATH": f"{emulated}/no_cublasLt",
                                              "PYTHONPATH": f"{home}:{os.environ.get('PYTHONPATH', '')}"}):
                status, text = run(code)
        self.assertEqual(status, 0, text)
        self.assertEqual(text.splitlines()[0], "8.0 cuda:0")
        self.assertIn(text.splitlines()[1], (str([wanted]), str([f"{folder}/libcublasLt.so.13"])))

    def test_headers_and_library_are_part_of_an_installed_package_only(self):
        folder = os.path.dirname(_core.__file__)
        if os.path.exists(os.path.join(folder, "include")):
            self.assertTrue(os.path.exists(os.path.join(gd.get_include(), "gradus", "gradus.h")))
            self.assertTrue(os.path.exists(gd.get_library()))
        else:
            for get in (gd.get_include, gd.get_library):
                with self.assertRaisesRegex(FileNotFoundError, "installed package"):
                    get()


if __name__ == "__main__":
    unittest.main()
