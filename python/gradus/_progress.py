"""Where fit shows its progress: sys.stderr, or an output of a notebook that is updated in place."""
from __future__ import annotations

import html as _html
import shutil as _shutil
import sys as _sys
from typing import Any

AUTO, BAR, LINES, NONE = range(4)  # gd_progress
_CLEAR = "\x1b[K"


def mode_of(verbose: Any) -> int:
    """Keras's numbers and words."""
    modes = {"auto": AUTO, 0: NONE, 1: BAR, 2: LINES, "bar": BAR, "lines": LINES, "none": NONE}
    if verbose not in modes:
        raise ValueError(f"verbose is {verbose!r}; it is 'auto', 0 (nothing), 1 (a bar) or 2 (lines)")
    return modes[verbose]  # True is 1, False is 0


class Receiver:
    """Gets the texts of the library and writes them to sys.stderr."""

    redraws = colour = utf8 = False

    def __init__(self) -> None:
        self.stream = _sys.stderr
        try:
            self.redraws = self.colour = bool(self.stream.isatty())
        except (AttributeError, ValueError):
            pass
        encoding = getattr(self.stream, "encoding", None) or ""
        self.utf8 = encoding.lower().replace("-", "") == "utf8"

    def __enter__(self) -> Receiver:
        return self

    def __exit__(self, *failure: object) -> None:
        pass

    def width(self) -> int:
        """Columns of a line."""
        return _shutil.get_terminal_size((80, 24)).columns if self.redraws else 80

    def write(self, text: str, final: bool) -> int:
        """Shows a text; returns the width of the next one."""
        if self.stream is not None:
            self.stream.write(text)
            self.stream.flush()
        return self.width()

    def for_library(self) -> Any:
        """What _core._fit takes."""
        return self.write, self.redraws, self.colour, self.utf8, self.width()


class Notebook(Receiver):
    """Shows the same texts as HTML in the output of a cell, where "\\r" replaces the last line."""

    redraws, colour, utf8 = True, False, True

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.line = ""
        self.handle: Any = None

    def width(self) -> int:
        return 100

    def page(self) -> str:
        """The lines so far."""
        text = "\n".join([*self.lines, self.line] if self.line else self.lines)
        return f'<pre style="line-height: 1.2">{_html.escape(text)}</pre>'

    def write(self, text: str, final: bool) -> int:
        for char in text.replace(_CLEAR, ""):
            if char == "\r":
                self.line = ""
            elif char == "\n":
                self.lines.append(self.line)
                self.line = ""
            else:
                self.line += char
        self.show()
        return self.width()

    def show(self) -> None:
        """Updates the output."""
        from IPython.display import HTML, display  # type: ignore[import-not-found, unused-ignore]

        if self.handle is None:
            self.handle = display(HTML(self.page()), display_id=True)
        else:
            self.handle.update(HTML(self.page()))


def in_notebook() -> bool:
    """Whether an IPython kernel runs this program."""
    ipython = _sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None and hasattr(ipython, "get_ipython") else None
    return shell is not None and getattr(shell, "kernel", None) is not None


def choose(verbose: Any) -> tuple[int, Receiver]:
    """The mode for the library, and who gets its texts."""
    return mode_of(verbose), Notebook() if in_notebook() else Receiver()
