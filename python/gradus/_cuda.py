"""Where this Python environment has NVIDIA's libraries: ``pip install gradus[cuda]``, or those that came with PyTorch."""
import os
import sys

_wanted = ("libcublasLt.so.", "libcudnn.so.", "libnvrtc.so.")


def library_folders() -> list[str]:
    """Folders with cuBLASLt, cuDNN or NVRTC: nvidia/*/lib on the path of modules."""
    found: list[str] = []
    for place in sys.path:
        packages = os.path.join(place or ".", "nvidia")
        try:
            names = sorted(os.listdir(packages))
        except OSError:
            continue
        for name in names:
            folder = os.path.join(packages, name, "lib")
            try:
                files = os.listdir(folder)
            except OSError:
                continue
            if any(file.startswith(_wanted) for file in files):
                found.append(os.path.abspath(folder))
    return list(dict.fromkeys(found))
