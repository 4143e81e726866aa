"""The notebooks run from the first cell to the last, with small numbers here and unchanged in the slow tier."""

import re
from pathlib import Path

import nbformat
import pytest
import torch
from nbclient import NotebookClient

NOTEBOOKS = Path(__file__).parents[1] / "notebooks"
SMALL = {
    "quickstart": {"SUBSET": 200, "EPOCHS": 2},
    "api": {"MOLECULES": 300, "EPOCHS": 2},
    "screening": {"MEASURED": 200, "LIBRARY": 100, "EPOCHS": 2},
    "transfer": {"CHEAP": 300, "EXPENSIVE": 60, "UNSEEN": 50, "EPOCHS": 2, "FINE_EPOCHS": 2},
    "fused_vs_pyg": {"MOLECULES": 200, "BATCH_SIZE": 64, "REPEATS": 2},
    "own_model": {"NODES": 500, "EDGES": 3000, "STEPS": 3},
    "own_loop": {"MOLECULES": 200, "EPOCHS": 2},
}


def run(name, folder, parameters=None):
    """Run a notebook in `folder`, with other values in its cell tagged "parameters", and return its printed text."""
    notebook = nbformat.read(NOTEBOOKS / f"{name}.ipynb", as_version=4)
    (cell,) = [cell for cell in notebook.cells if "parameters" in cell.metadata.get("tags", [])]
    for key, value in (parameters or {}).items():
        cell.source, found = re.subn(rf"^{key} = \d+", f"{key} = {value}", cell.source, flags=re.MULTILINE)
        assert found == 1, f"{name} has no parameter {key}"
    NotebookClient(notebook, timeout=900, kernel_name="python3", resources={"metadata": {"path": str(folder)}}).execute()
    outputs = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    return "\n".join(output.get("text") or output.get("data", {}).get("text/plain", "") for output in outputs)


def check(name, text, folder):
    if name == "quickstart":
        assert "test MAE" in text
        assert "all MAE" in text
        (run_folder,) = (folder / "runs").iterdir()
        assert (run_folder / "evaluation_measured" / "metrics.json").is_file()
    elif name == "screening":
        predicted, rows = re.search(r"([\d,]+) of ([\d,]+) rows predicted", text).groups()
        assert int(rows.replace(",", "")) - int(predicted.replace(",", "")) == 1
        assert "0,c1ccccc,it is not a SMILES" in text
        assert re.search(r"mean absolute error [\d.]+ A\^2; of the first tenth \d+%", text)
        assert all((folder / "runs" / f"seed_{seed}" / "report.html").is_file() for seed in (0, 1))
    elif name == "transfer":
        assert "the head starts anew: the checkpoint's targets are logp, tpsa, and this run's are logS" in text
        assert len(re.findall(r"learns?: mean absolute error [\d.]+", text)) == 2
        assert (folder / "why" / "index.html").is_file()
    elif name == "fused_vs_pyg":
        errors = [float(value) for value in re.findall(r"relative (?:error of outputs|difference) (\S+)", text.replace(",", ""))]
        assert len(errors) == 3
        assert all(error < 1e-5 for error in errors)
        assert len(re.findall(r"\d times", text)) == 7
    elif name == "own_model":
        differences = [float(value) for value in re.findall(r"relative difference (\S+)", text)]
        assert len(differences) == 3
        assert all(value < 1e-4 for value in differences)
        assert "GATConv(32, 8, heads=4) None" in text
    elif name == "own_loop":
        assert float(re.search(r"relative difference (\S+)", text)[1]) < 1e-2
        assert float(re.search(r"largest difference (\S+)", text)[1]) < 1e-3
        assert len(re.findall(r"\d steps/s", text)) == 3
        assert "run plainly with the same results: it needs a GPU." in text or torch.cuda.is_available()
    else:
        difference = float(re.search(r"largest difference (\S+)", text)[1])
        assert difference < 1e-4
        relative = [float(value) for value in re.findall(r"'fused': '([^']+)'", text)]
        assert len(relative) == 2  # outputs and gradients
        assert all(value < 1e-10 for value in relative)


def test_none_is_left_out():
    assert {path.stem for path in NOTEBOOKS.glob("*.ipynb")} == set(SMALL)


@pytest.mark.slow
@pytest.mark.parametrize("name", SMALL)
def test_small(name, tmp_path):
    check(name, run(name, tmp_path, SMALL[name]), tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("name", SMALL)
def test_whole(name, tmp_path):
    text = run(name, tmp_path)
    check(name, text, tmp_path)
    if name == "screening":
        assert int(re.search(r"first tenth (\d+)%", text)[1]) > 50
    if name == "transfer":
        nothing, every, head = map(float, re.findall(r"mean absolute error ([\d.]+)", text))
        assert every < 0.7 * nothing
        assert head < nothing
    if name == "api":
        error, of_the_mean = map(float, re.search(r"test MAE of logP (\S+); predicting the mean gives (\S+)", text).groups())
        assert error < 0.5 * of_the_mean


@pytest.mark.parametrize("name", SMALL)
def test_committed_without_outputs(name):
    for cell in nbformat.read(NOTEBOOKS / f"{name}.ipynb", as_version=4).cells:
        assert not cell.get("outputs")
        assert cell.get("execution_count") is None
