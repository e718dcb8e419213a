#!/usr/bin/env python3
"""Runs a command in a terminal of its own, and draws what the terminal shows as an SVG.

    tools/draw_terminal.py --out demo.svg --columns 97 --lines 1-9,24-35 -- build/bin/gradus demo

The picture has a window with its own background, so it is legible on a page of any colour. Letters are text, in the reader's own
monospaced font. Blocks and shades (U+2580 to U+2593) are drawn as shapes, because most fonts leave gaps between them. Where
--lines leaves out lines, the picture has a line of dots.

The terminal understands what programs need that redraw their last line and use colours: carriage returns, erasing the line, and
the 16 colours, bold and dim. Any other escape sequence is an error, so that no picture is wrong.

Needs nothing but Python.
"""
import argparse
import fcntl
import os
import pty
import re
import struct
import sys
import termios
import unicodedata
from xml.sax.saxutils import escape

# --- the terminal ------------------------------------------------------------------------------------


class Terminal:
    """The lines that a program has written; a cell is a character and its style (bold, dim, colour 0 to 15 or None)."""

    PLAIN = (False, False, None)

    def __init__(self, columns):
        self.columns, self.lines, self.row, self.column, self.style = columns, [[]], 0, 0, self.PLAIN

    def put(self, character):
        if self.column == self.columns:
            self.feed_line()
        line = self.lines[self.row]
        line += [(" ", self.PLAIN)] * (self.column + 1 - len(line))
        line[self.column] = (character, self.style)
        self.column += 1

    def feed_line(self):
        self.row, self.column = self.row + 1, 0
        if self.row == len(self.lines):
            self.lines.append([])

    def choose_style(self, codes):
        bold, dim, colour = self.style
        for code in codes:
            if code == 0:
                bold, dim, colour = self.PLAIN
            elif code in (1, 2):
                bold, dim = bold or code == 1, dim or code == 2
            elif code == 22:
                bold = dim = False
            elif 30 <= code <= 37 or 90 <= code <= 97:
                colour = code - 30 if code < 90 else code - 90 + 8
            elif code == 39:
                colour = None
            else:
                sys.exit(f"draw_terminal.py: style {code} is unknown")
        self.style = (bold, dim, colour)

    def write(self, text):
        for escaped, character in re.findall(r"(\x1b\[[0-9;?]*[A-Za-z])|(.)", text, re.DOTALL):
            if escaped.endswith("m"):
                self.choose_style([int(code or 0) for code in escaped[2:-1].split(";")])
            elif escaped in ("\x1b[K", "\x1b[0K"):
                del self.lines[self.row][self.column:]
            elif escaped or character == "\x1b":
                sys.exit(f"draw_terminal.py: the escape sequence {escaped or character!r} is unknown")
            elif character == "\r":
                self.column = 0
            elif character == "\n":
                self.feed_line()
            elif character >= " ":
                self.put(character)


def run(command, columns, rows):
    """Runs a command in a pseudo-terminal of this size; returns what it wrote and its exit status."""
    child, fd = pty.fork()
    if child == 0:
        fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        os.environ["TERM"] = "xterm-256color"
        try:
            os.execvp(command[0], command)
        except OSError as problem:
            print(f"{command[0]}: {problem.strerror}", file=sys.stderr)
            os._exit(127)
    written = b""
    while True:
        try:
            more = os.read(fd, 65536)
        except OSError:  # Linux reports the end in this way
            break
        if not more:
            break
        written += more
    return written.decode(), os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


# --- the picture -------------------------------------------------------------------------------------

CELL_X, CELL_Y, FONT = 8.4, 18, 14  # of a character, in units of the picture
MARGIN, BAR = 20, 24  # around the text; the height of the window's title bar
BACKGROUND, FOREGROUND, EDGE = "#161b22", "#e6edf3", "#444c56"
COLOURS = ("#6e7681", "#ff7b72", "#56d364", "#e3b341", "#79c0ff", "#d2a8ff", "#56d4dd", "#e6edf3",
           "#8b949e", "#ffa198", "#7ee787", "#f2cc60", "#a5d6ff", "#e2c5ff", "#b3f0ff", "#ffffff")
# The part of a cell that a block covers, from its top to its bottom, and how much of it.
BLOCKS = {"█": (0, 1, 1), "▀": (0, 0.5, 1), "▄": (0.5, 1, 1), "▓": (0, 1, 0.75), "▒": (0, 1, 0.5), "░": (0, 1, 0.25)}


def number(value):
    return f"{value:.2f}".rstrip("0").rstrip(".")


def runs(line):
    """Splits a line into (column, text, style): runs of one style without two spaces in a row, and runs of one block."""
    column = 0
    while column < len(line):
        character, style = line[column]
        end = column + 1
        if character in BLOCKS:
            while end < len(line) and line[end] == (character, style):
                end += 1
        elif character != " ":
            while end < len(line) and line[end][1] == style and line[end][0] not in BLOCKS:
                if line[end][0] == " " and (end + 1 == len(line) or line[end + 1][0] == " "):
                    break
                end += 1
        if character != " ":
            yield column, "".join(c for c, _ in line[column:end]).rstrip(), style
        column = end


def css_class(style, *names):
    bold, dim, colour = style
    names = [*names] + ["b"] * bold + ["d"] * dim + ([f"c{colour}"] if colour is not None else [])
    return f' class="{" ".join(names)}"' if names else ""


def draw_line(line, row, shapes):
    """Returns the text of a line as SVG, and adds its blocks to shapes, by what they are filled with."""
    out = []
    for column, text, style in runs(line):
        x, y = MARGIN + column * CELL_X, BAR + MARGIN + row * CELL_Y
        if text[0] in BLOCKS:
            top, bottom, cover = BLOCKS[text[0]]
            path = f"M{number(x)} {number(y + top * CELL_Y)}h{number(len(text) * CELL_X)}v{number((bottom - top) * CELL_Y)}" \
                   f"h-{number(len(text) * CELL_X)}z"
            shapes.setdefault((css_class(style, "s"), cover), []).append(path)
            continue
        length = f' textLength="{number(len(text) * CELL_X)}"' if len(text) > 1 else ""
        out.append(f'<text x="{number(x)}" y="{number(y + 0.75 * CELL_Y)}"{length}{css_class(style)}>{escape(text)}</text>')
    return out


def styles_used(lines):
    """CSS for the styles in use."""
    used = {style for line in lines for character, style in line if character != " "}
    rules = [".b{font-weight:bold}"] * any(s[0] for s in used) + [".d{opacity:.65}"] * any(s[1] for s in used)
    return rules + [f".c{c}{{fill:{COLOURS[c]}}}" for c in sorted({s[2] for s in used if s[2] is not None})]


def draw(lines, columns, title, about):
    width, height = 2 * MARGIN + columns * CELL_X, BAR + 2 * MARGIN + len(lines) * CELL_Y
    shapes, texts = {}, []
    for row, line in enumerate(lines):
        texts += draw_line(line, row, shapes)
    style = [f"text{{font:{FONT}px ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace;fill:{FOREGROUND}}}",
             f".w{{fill:{BACKGROUND};stroke:{EDGE}}}.s{{fill:{FOREGROUND}}}", *styles_used(lines)]
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {number(width)} {number(height)}" width="{number(width)}" '
           f'height="{number(height)}" role="img" aria-labelledby="title about">',
           f'<title id="title">{escape(title)}</title>', f'<desc id="about">{escape(about)}</desc>',
           "<style>", *style, "</style>",
           f'<rect class="w" x="0.5" y="0.5" width="{number(width - 1)}" height="{number(height - 1)}" rx="8"/>']
    out += [f'<circle cx="{18 + 18 * i}" cy="18" r="5.5" fill="{COLOURS[colour]}"/>' for i, colour in enumerate((1, 3, 2))]
    for (names, cover), paths in shapes.items():
        opacity = f' opacity="{cover}"' if cover < 1 else ""
        out.append(f'<path{names}{opacity} d="{"".join(paths)}"/>')
    return "\n".join(out + texts + ["</svg>"]) + "\n"


# --- the command line --------------------------------------------------------------------------------


def chosen(lines, ranges):
    """The lines of `1-9,24-35`, with a line of dots where some are left out; without trailing empty lines."""
    if ranges:
        dots, out, last = [("⋮", (False, True, None))], [], 0
        for part in ranges.split(","):
            first, end = (int(n) for n in (part.split("-") * 2)[:2])
            if first > last + 1:
                out.append(dots)
            out += lines[first - 1:end]
            last = end
        lines = out
    while lines and not any(character != " " for character, _ in lines[-1]):
        lines = lines[:-1]
    return lines


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", required=True, help="the file to write")
    parser.add_argument("--columns", type=int, default=80, help="of the terminal: %(default)s")
    parser.add_argument("--lines", help="lines of the output to draw, such as 1-9,24-35; default: all")
    parser.add_argument("--typed", help="what the first line of the picture says was typed; default: the command")
    parser.add_argument("--title", default="A terminal", help="of the picture, for people who do not see it")
    parser.add_argument("--about", default="", help="a sentence or two, for people who do not see it")
    parser.add_argument("command", nargs="+", help="the command and its arguments, after --")
    args = parser.parse_args()
    written, status = run(args.command, args.columns, 50)
    if status != 0:
        sys.exit(f"{written}\ndraw_terminal.py: {' '.join(args.command)} ended with status {status}")
    terminal = Terminal(args.columns)
    terminal.write(written)
    prompt = Terminal(args.columns)
    prompt.write(f"\x1b[32m$\x1b[0m \x1b[1m{args.typed or ' '.join(args.command)}\x1b[0m")
    lines = prompt.lines + chosen(terminal.lines, args.lines)
    wide = [c for line in lines for c, _ in line if unicodedata.east_asian_width(c) in "FW"]
    if wide:
        sys.exit(f"draw_terminal.py: {wide[0]!r} takes two cells")
    with open(args.out, "w", encoding="utf-8") as file:
        file.write(draw(lines, args.columns, args.title, args.about))


if __name__ == "__main__":
    main()
