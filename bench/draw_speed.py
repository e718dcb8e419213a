#!/usr/bin/env python3
"""Draws the measured figures of bench/figures.json as a chart, and writes them into the tables of docs/speed.md.

    bench/draw_speed.py            writes docs/images/speed.svg and the tables
    bench/draw_speed.py --check    fails if they do not agree with the figures

The chart has one row for each net. Its axis is logarithmic, so that twice as fast and half as fast are equally far from the line
at 1. The tables of docs/speed.md are between <!--speed:NAME--> and <!---->.

Needs nothing but Python.
"""
import argparse
import math
import os
import re
import sys
from xml.sax.saxutils import escape

import figures

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
PAGE, CHART = os.path.join(ROOT, "docs", "speed.md"), os.path.join(ROOT, "docs", "images", "speed.svg")

# --- tables ------------------------------------------------------------------------------------------


def range_text(low, high):
    return f"{low}" if low == high else f"{low} to {high}"


def cpu_table(part):
    lines = ["| | 1 thread | 2 threads |", "|---|---|---|"]
    for row in part["rows"]:
        if "threads_1" in row and "threads_2" in row:
            lines.append(f"| {row['label']} | {range_text(*row['threads_1'])} | {range_text(*row['threads_2'])} |")
    return lines


def gpu_table(part):
    lines = ["| | eager | plan | memory | PyTorch's |", "|---|---|---|---|---|"]
    for row in part["rows"]:
        if "plan" in row:
            lines.append(f"| {row['label']} | {row['eager']} | {row['plan']} | {row['mib']} | {row['pytorch_mib']} |")
    return lines


def fill_tables(page, all_figures):
    for name, table in (("cpu", cpu_table), ("gpu", gpu_table)):
        pattern = re.compile(rf"(<!--speed:{name}-->\n).*?(<!---->)", re.DOTALL)
        if not pattern.search(page):
            sys.exit(f"draw_speed.py: {PAGE} has no table <!--speed:{name}-->")
        page = pattern.sub(lambda found: found[1] + "\n" + "\n".join(table(all_figures[name])) + "\n\n" + found[2], page)
    return page


# --- the chart ---------------------------------------------------------------------------------------

WIDTH, ROW, BAR = 840, 20, 11
LEFT, RIGHT = 396, 770  # of the axis
LOWEST, HIGHEST = 0.5, 5.0
TICKS = (0.5, 1, 2, 4)
STYLE = """
text{font:13px -apple-system,BlinkMacSystemFont,'Segoe UI','Noto Sans',Helvetica,Arial,sans-serif;fill:#1f2328}
.page{fill:#fff;stroke:#d0d7de}
.title{font-size:15px;font-weight:600}
.part{font-weight:600}
.note,.tick{fill:#59636e}
.note{font-size:12px}
.label,.low{text-anchor:end}
.value{paint-order:stroke;stroke:#fff;stroke-width:4px;stroke-linejoin:round}
.tick{font-size:12px;text-anchor:middle}
.grid{stroke:#d8dee4}
.one{stroke:#59636e;stroke-width:1.5}
.faster{fill:#1a7f64}
.slower{fill:#bc4c00}
.range{opacity:.45}
@media (prefers-color-scheme:dark){
text{fill:#e6edf3}
.page{fill:#161b22;stroke:#444c56}
.note,.tick{fill:#a2abb4}
.grid{stroke:#30363d}
.value{stroke:#161b22}
.one{stroke:#a2abb4}
.faster{fill:#3fb68b}
.slower{fill:#f0883e}
}""".strip()


def place(ratio):
    if not LOWEST <= ratio <= HIGHEST:
        sys.exit(f"draw_speed.py: {ratio} is outside of the axis, {LOWEST} to {HIGHEST}")
    return LEFT + (RIGHT - LEFT) * math.log(ratio / LOWEST) / math.log(HIGHEST / LOWEST)


def number(value):
    return f"{value:.1f}".rstrip("0").rstrip(".")


def bar(low, high, y, name):
    a, b = sorted((place(low), place(high)))
    return f'<rect class="{name}" x="{number(a)}" y="{y}" width="{number(b - a)}" height="{BAR}"/>'


def draw_row(label, low, high, y):
    """A bar from the line at 1, a lighter one from the lowest to the highest ratio, and both as text."""
    middle, out = y + 10, [f'<text class="label" x="{LEFT - 12}" y="{y + 10}">{escape(label)}</text>']
    side = "faster" if low >= 1 else "slower"
    near, far = (low, high) if side == "faster" else (high, low)
    out.append(bar(1, near, y, side))
    if near != far:
        out.append(bar(near, far, y, side + " range"))
    text = f"{low}" if low == high else f"{low}–{high}"
    if side == "faster":
        out.append(f'<text class="value" x="{number(place(far) + 6)}" y="{middle}">{text}</text>')
    else:
        out.append(f'<text class="value low" x="{number(place(far) - 6)}" y="{middle}">{text}</text>')
    return out


def draw_line(ratio, top, bottom, name):
    x = number(place(ratio))
    return f'<line class="{name}" x1="{x}" y1="{top}" x2="{x}" y2="{bottom}"/>'


def draw_part(title, note, rows, y):
    """Returns a heading with its rows, and where they end. No line runs through the heading."""
    out = [f'<text class="part" x="24" y="{y + 12}">{escape(title)}</text>',
           f'<text class="note" x="24" y="{y + 29}">{escape(note)}</text>']
    y += 42
    ends = (y - 4, y + ROW * len(rows) - 4)
    out += [draw_line(tick, *ends, "grid") for tick in TICKS if tick != 1]
    for label, low, high in rows:
        out += draw_row(label, low, high, y)
        y += ROW
    return out + [draw_line(1, *ends, "one")], y


def draw_chart(all_figures):
    cpu, gpu = all_figures["cpu"], all_figures["gpu"]
    parts = (
        (f"CPU, 2 threads ({cpu['machine']}, PyTorch {cpu['pytorch']})",
         "best mode of each; from the lowest to the highest of several runs",
         [(row["label"], *row["threads_2"]) for row in cpu["rows"] if "threads_2" in row]),
        (f"GPU ({gpu['machine']}, PyTorch {gpu['pytorch']})",
         "our plan, PyTorch's best mode: eager, CUDA graph, torch.compile, or compiled and captured",
         [(row["label"], row["plan"], row["plan"]) for row in gpu["rows"] if "plan" in row]),
        ("GPU, beside the benchmark", "against PyTorch's best mode",
         [(row["label"], row["plan"], row["plan"]) for row in all_figures["gpu_others"]["rows"]]))
    top, y, out = 104, 108, []
    for title, note, rows in parts:
        drawn, y = draw_part(title, note, rows, y)
        out += drawn
        y += 14
    height = y + 4
    ours = [row for part in parts[:2] for row in part[2]]
    unseen = next(row["plan"] for row in all_figures["gpu_others"]["rows"] if row["net"] == "unseen")
    title = f"{min(row[1] for row in ours)} to {max(row[2] for row in ours)} times PyTorch's speed on the nets of our benchmark, " \
            f"{unseen} on ten others (GPU)"
    about = (f"PyTorch's time of a training step divided by that of Gradus: bars for {len(parts[0][2])} nets on a CPU, for "
             f"{len(parts[1][2])} nets on a GPU, and for ten others on a GPU. docs/speed.md has the figures as tables.")
    head = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" role="img" '
            'aria-labelledby="title about">',
            f'<title id="title">Training steps: {escape(title)}</title>', f'<desc id="about">{escape(about)}</desc>',
            f"<style>\n{STYLE}\n</style>",
            f'<rect class="page" x="0.5" y="0.5" width="{WIDTH - 1}" height="{height - 1}" rx="8"/>',
            f'<text class="title" x="24" y="34">{escape(title)}</text>',
            '<text class="note" x="24" y="54">PyTorch\'s time of a training step divided by ours; 2 is twice as fast</text>',
            f'<text class="note low" x="{number(place(1) - 10)}" y="{top - 24}">◀ PyTorch is faster</text>',
            f'<text class="note" x="{number(place(1) + 10)}" y="{top - 24}">Gradus is faster ▶</text>']
    ticks = [f'<text class="tick" x="{number(place(tick))}" y="{top - 6}">{tick}</text>' for tick in TICKS]
    return "\n".join(head + ticks + out + ["</svg>"]) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing, and fail if a file would change")
    args = parser.parse_args()
    all_figures = figures.load()
    with open(PAGE, encoding="utf-8") as file:
        page = file.read()
    stale = []
    for path, text in ((PAGE, fill_tables(page, all_figures)), (CHART, draw_chart(all_figures))):
        present = open(path, encoding="utf-8").read() if os.path.exists(path) else ""
        if text != present:
            stale.append(os.path.relpath(path, ROOT))
            if not args.check:
                with open(path, "w", encoding="utf-8") as file:
                    file.write(text)
    if args.check and stale:
        sys.exit(f"{' and '.join(stale)}: not what bench/figures.json has; run bench/draw_speed.py")


if __name__ == "__main__":
    main()
