"""The command: ``gradus train ...`` and ``python -m gradus train ...`` run the program inside the package."""
import os
import sys

from gradus import _core


def main() -> None:
    """Becomes the program gradus, with the arguments of this one."""
    from gradus import _cuda

    program = os.path.join(os.path.dirname(_core.__file__), "bin", "gradus")
    folders = _cuda.library_folders()
    before = os.environ.get("GRADUS_LIBRARY_PATH")
    if folders:
        os.environ["GRADUS_LIBRARY_PATH"] = os.pathsep.join(([before] if before else []) + folders)
    try:
        os.execv(program, ["gradus", *sys.argv[1:]])
    except OSError as failure:
        sys.exit(f"gradus: {program}: {failure.strerror}")


if __name__ == "__main__":
    main()
