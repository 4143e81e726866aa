"""Every recipe and option of conf/ runs, such as experiments, presets and optimisers."""

import csv
import math
from pathlib import Path

import pytest
from conf_cases import BUILTIN, CONF, TINY, options, run

from molgcn.training.restore import load_module

pytestmark = pytest.mark.usefixtures("empty_figures")
GROUPS = ("optimizer", "scheduler", "loader", "backend", "callbacks")
ATOMISATION = ("u0_atom", "u298_atom", "h298_atom", "g298_atom")
QM9_TARGETS = ("mu", "alpha", "homo", "lumo", "gap", "r2", "zpve", "u0", "u298", "h298", "g298", "cv", *ATOMISATION)


def training_losses(folder):
    with open(folder / "metrics.csv", newline="") as file:
        return [float(row["train/loss"]) for row in csv.DictReader(file) if row["train/loss"]]


@pytest.fixture
def qm9(tmp_path):
    """Return a file with QM9's columns, of chains whose properties fall with their length, each at its own rate."""
    path = tmp_path / "qm9.csv"
    lines = [",".join(["mol_id", "smiles", *QM9_TARGETS])]
    for i in range(60):
        smiles = f"{'C' * (1 + i % 7)}{'NO'[i % 2]}{'C' * (i % 3)}"
        lines.append(",".join([f"gdb_{i + 1}", smiles, *(f"{0.4 - 0.02 * (j + 1) * len(smiles)}" for j in range(len(QM9_TARGETS)))]))
    path.write_text("\n".join(lines) + "\n")
    return [f"dataset.path={path}", f"dataset.cache_dir={tmp_path / 'cache'}"]


@pytest.fixture
def own_file(tmp_path):
    """Return a file of a user's own."""
    path = tmp_path / "own.csv"
    path.write_text("smiles,y\n" + "".join(f"{'C' * (1 + i % 9)}{'NOF'[i % 3]},{i % 9}\n" for i in range(60)))
    return [f"dataset.path={path}", "dataset.targets=[y]", f"dataset.cache_dir={tmp_path / 'cache'}"]


@pytest.fixture
def zinc(tmp_path):
    """Write lists and index files like the benchmark's, with a few molecules."""
    folder = tmp_path / "zinc"
    folder.mkdir()
    for part, count in (("train", 40), ("valid", 12), ("test", 12)):
        (folder / f"{part}.txt").write_text("".join(f"{'C' * (1 + i % 9)}c1ccc{'nc'[i % 2]}c1\n" for i in range(count)))
    for part, count in (("train", 30), ("val", 10), ("test", 10)):
        (folder / f"{part}.index").write_text(",".join(map(str, range(count))) + "\n")
    return [f"dataset.path={folder}", f"dataset.cache_dir={tmp_path / 'cache'}"]


EXPERIMENTS = {
    "qm9_gap": "qm9",
    "qm9_multitask": "qm9",
    "deep28": "qm9",
    "zinc12k_gcn16": "zinc",
    "zinc12k_gcn_plus": "zinc",
    "zinc12k_gin_plus": "zinc",
    "zinc12k_gated_gcn_plus": "zinc",
    "chemprop_dmpnn": "own_file",
}
PUBLISHED_PARAMETERS = {  # "Benchmarking GNNs" and GNN+, tables of ZINC-12k
    "zinc12k_gcn16": 505_079,
    "zinc12k_gcn_plus": 260_177,
    "zinc12k_gin_plus": 477_241,
    "zinc12k_gated_gcn_plus": 413_355,
}


def test_no_recipe_is_left_out():
    assert {path.stem for path in (CONF / "experiment").glob("*.yaml")} == set(EXPERIMENTS)


QUICK = ("qm9_multitask", "zinc12k_gin_plus", "chemprop_dmpnn")  # one of each data set


@pytest.mark.parametrize("name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in EXPERIMENTS])
def test_experiments_run_as_they_are(name, tmp_path, request):
    """The recipe's own network trains on its own data set for one epoch with a few molecules."""
    data = request.getfixturevalue(EXPERIMENTS[name])
    fast = ["trainer.max_epochs=1", "trainer.accelerator=cpu", "logger=csv"]
    result = run(tmp_path / "run", [f"experiment={name}", *data, *fast])
    assert all(math.isfinite(result.metrics[f"test/mae/{target}"]) for target in result.names)
    model = load_module(tmp_path / "run").model
    if name in PUBLISHED_PARAMETERS:
        assert sum(parameter.numel() for parameter in model.parameters()) == PUBLISHED_PARAMETERS[name]
    if name == "qm9_multitask":
        assert result.names == ("mu", "alpha", "homo", "lumo", "gap", "r2", "zpve", *ATOMISATION, "cv")
    if name == "deep28":
        assert (model.num_layers, model.hidden_channels, model.norm, model.residual) == (28, 32, None, False)


@pytest.mark.parametrize("name", sorted(path.stem for path in (CONF / "debug").glob("*.yaml")))
def test_debug_presets_run(name, tmp_path):
    result = run(tmp_path, [*BUILTIN, *TINY[:2], "trainer.accelerator=cpu", f"debug={name}", "trainer.max_epochs=1"])
    assert result.epochs == 1
    assert math.isfinite(result.metrics["train/mae/logp"])


def test_overfit_learns_its_batches(tmp_path):
    small = ["dataset.batch_size=16", "model.hidden_channels=32", "model.num_layers=2", "optimizer.lr=0.01", "trainer.max_epochs=25"]
    run(tmp_path, [*BUILTIN, "debug=overfit", *small, "trainer.accelerator=cpu", "training.report=false"])
    losses = training_losses(tmp_path)
    assert min(losses[-5:]) < 0.4 * losses[0]


CHOICES = [[choice for choice in options("train") if choice.startswith(f"{group}=")] for group in GROUPS]


@pytest.mark.parametrize("number", range(max(map(len, CHOICES))))
def test_every_choice_trains(number, tmp_path):
    """Each run has a choice of every group, and each choice has a run."""
    chosen = [choices[number % len(choices)] for choices in CHOICES]
    result = run(tmp_path, [*BUILTIN, *TINY, "training.report=false", *chosen])
    assert result.best_loss < 5


@pytest.mark.slow
def test_a_sweep_side_by_side(run_cli, tmp_path):
    overrides = [*BUILTIN, *TINY, "training.report=false", "launcher=joblib"]
    overrides.remove("model.num_layers=3")
    done = run_cli("--multirun", *overrides, "model.num_layers=1,0,2", XDG_CACHE_HOME=str(tmp_path / "fresh"))
    assert done.returncode == 2
    assert done.stdout.count("molecules packed") == 1  # by one, for the others
    (sweep,) = (Path(tmp_path) / "multirun").iterdir()
    with open(sweep / "results.csv", newline="") as file:
        assert {row["job"]: row["state"] for row in csv.DictReader(file)} == {"0": "complete", "1": "failed", "2": "complete"}
