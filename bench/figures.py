"""The measured figures of bench/figures.json, from which draw_speed.py draws the chart and writes the tables of docs/speed.md.

Figures are ratios: PyTorch's time of a training step divided by that of Gradus. versus_pytorch.py --record writes "cpu",
versus_pytorch_cuda.py --record writes "gpu". "gpu_others" was measured in other ways; docs/speed.md says how.

    threads_1, threads_2   the lowest and the highest ratio of all runs, best mode against best mode, on so many threads
    eager, plan            on the GPU: eager mode against eager mode, and our plan against PyTorch's best mode
    mib, pytorch_mib       the peak of memory of both
"""
import json
import os

PATH = os.path.join(os.path.dirname(os.path.abspath(__file__)), "figures.json")


def load(path=PATH):
    with open(path, encoding="utf-8") as file:
        return json.load(file)


def save(figures, path=PATH):
    """Writes one row to a line, so that a diff shows what has changed."""
    parts = []
    for name, part in figures.items():
        facts = [f"    {json.dumps(key)}: {json.dumps(value)},\n" for key, value in part.items() if key != "rows"]
        rows = ",\n".join("      " + json.dumps(row) for row in part["rows"])
        parts.append(f'  {json.dumps(name)}: {{\n{"".join(facts)}    "rows": [\n{rows}\n    ]\n  }}')
    with open(path, "w", encoding="utf-8") as file:
        file.write("{\n" + ",\n".join(parts) + "\n}\n")


def rounded(ratio):
    return round(ratio, 1 if ratio >= 2 else 2)


def version(torch):
    """The version of PyTorch as in "2.13"."""
    return ".".join(torch.__version__.split(".")[:2])


def record(part, net, figures, path=PATH, **facts):
    """Writes the figures of a net. A range (low, high) widens that of earlier runs; any other figure replaces the earlier one.
    Facts are about the run (machine, pytorch); if they are not those of the file, its figures go, because they do not compare."""
    everything = load(path)
    section = everything[part]
    if any(section.get(key) != value for key, value in facts.items()):
        section.update(facts)
        section["rows"] = [{"net": row["net"], "label": row["label"]} for row in section["rows"]]
    row = next((row for row in section["rows"] if row["net"] == net), None)
    if row is None:
        row = {"net": net, "label": net}
        section["rows"].append(row)
    for key, value in figures.items():
        if isinstance(value, (list, tuple)) and key in row:
            value = [min(value[0], row[key][0]), max(value[1], row[key][1])]
        row[key] = value
    save(everything, path)
