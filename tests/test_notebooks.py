"""The notebooks run from the first cell to the last."""

import re
from pathlib import Path

import nbformat
import pytest
import torch
from nbclient import NotebookClient

NOTEBOOKS = Path(__file__).parents[1] / "notebooks"
NAMES = sorted(path.stem for path in NOTEBOOKS.glob("*.ipynb"))


def run(name, folder):
    """Run a notebook in `folder` and return its printed text."""
    notebook = nbformat.read(NOTEBOOKS / f"{name}.ipynb", as_version=4)
    NotebookClient(notebook, timeout=900, kernel_name="python3", resources={"metadata": {"path": str(folder)}}).execute()
    outputs = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    return "\n".join(output.get("text") or output.get("data", {}).get("text/plain", "") for output in outputs)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_every_cell_runs(name, tmp_path):
    text = run(name, tmp_path)
    if name == "quickstart":
        assert "test MAE" in text
        assert "all MAE" in text
        (run_folder,) = (tmp_path / "runs").iterdir()
        assert (run_folder / "evaluation_measured" / "metrics.json").is_file()
    elif name == "screening":
        predicted, rows = re.search(r"([\d,]+) of ([\d,]+) rows predicted", text).groups()
        assert int(rows.replace(",", "")) - int(predicted.replace(",", "")) == 1
        assert "0,c1ccccc,it is not a SMILES" in text
        assert re.search(r"mean absolute error [\d.]+ A\^2; of the first tenth \d+%", text)
        assert all((tmp_path / "runs" / f"seed_{seed}" / "report.html").is_file() for seed in (0, 1))
        assert int(re.search(r"first tenth (\d+)%", text)[1]) > 50
    elif name == "transfer":
        assert "the head starts anew: the checkpoint's targets are logp, tpsa, and this run's are logS" in text
        nothing, every, head = map(float, re.findall(r"mean absolute error ([\d.]+)", text))
        assert len(re.findall(r"learns?: mean absolute error [\d.]+", text)) == 2 and every < 0.7 * nothing and head < nothing
        assert (tmp_path / "why" / "index.html").is_file()
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
        assert float(re.search(r"largest difference (\S+)", text)[1]) < 1e-4
        error, of_the_mean = map(float, re.search(r"test MAE of logP (\S+); predicting the mean gives (\S+)", text).groups())
        assert error < 0.5 * of_the_mean
        relative = [float(value) for value in re.findall(r"'fused': '([^']+)'", text)]
        assert len(relative) == 2  # outputs and gradients
        assert all(value < 1e-10 for value in relative)


@pytest.mark.parametrize("name", NAMES)
def test_committed_without_outputs(name):
    for cell in nbformat.read(NOTEBOOKS / f"{name}.ipynb", as_version=4).cells:
        assert not cell.get("outputs")
        assert cell.get("execution_count") is None
