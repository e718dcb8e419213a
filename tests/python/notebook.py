"""Runs examples/python/digits.ipynb from beginning to end, as Jupyter does, and looks at what its cells show."""
import os
import sys
import tempfile

import nbclient
import nbformat

notebook = nbformat.read(os.path.join(os.environ["GRADUS_SOURCE"], "examples", "python", "digits.ipynb"), as_version=4)
with tempfile.TemporaryDirectory() as folder:
    nbclient.NotebookClient(notebook, timeout=600, kernel_name="python3", resources={"metadata": {"path": folder}}).execute()
    assert os.path.getsize(os.path.join(folder, "digits.onnx")) > 10000

shown = [(o.get("data", {}), o.get("text", "")) for cell in notebook.cells for o in cell.get("outputs", ())]
text = "".join(part for data, stream in shown for part in (stream, data.get("text/plain", ""), data.get("text/html", "")))
failed = []
for what, there in {
        "the table of a tensor": any("<table" in data.get("text/html", "") for data, _ in shown),
        "the bar of fit as HTML": any("epoch" in data.get("text/html", "") for data, _ in shown),
        "three figures": sum("image/png" in data for data, _ in shown) == 3,
        "the summary": "multiply-adds" in text,
        "the share of right digits": "% are right" in text,
        "no bar on stderr": not any(o.get("name") == "stderr" and "epoch" in o.get("text", "")
                                    for cell in notebook.cells for o in cell.get("outputs", ()))}.items():
    if not there:
        failed.append(what)
print(f"{6 - len(failed)} passed, {len(failed)} failed" + "".join("\nmissing: " + what for what in failed))
sys.exit(bool(failed))
