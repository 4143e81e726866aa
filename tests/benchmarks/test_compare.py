import io
import json
import re
from inspect import signature

import pytest
from matplotlib.image import imread
from rich.console import Console

from molgcn.config.run import parse
from molgcn.data import PackedMolecules
from molgcn.data.config import DatasetConfig
from molgcn.errors import UserError
from molgcn_benchmark.command import main
from molgcn_benchmark.compare import PARTS, compare, data_label, measurements, training_values
from molgcn_benchmark.config import BenchmarkConfig
from molgcn_benchmark.results import Table
from molgcn_benchmark.steps import Grid

TINY = {
    "dataset": {"name": "builtin", "targets": ["logp"], "subset": 200, "features": "zinc"},
    "device": "cpu",
    "num_layers": [2, 3],
    "batch_sizes": [16, 32],
    "hidden_channels": 8,
    "steps": {"repeats": 2},
    "published": {"warm_up": 0, "iterations": 1, "repeats": 1},
    "loaders": {"batch_sizes": [16], "epochs": 1},
    "epochs": {"num_layers": [2], "batch_sizes": [32], "epochs": 1, "warm_up": 0},
    "learning": {"num_layers": 2, "batch_size": 32, "epochs": 2, "seeds": [0]},
}
MEASURED = re.compile(rf"^({'|'.join(PARTS)}): ", re.MULTILINE)  # matches a line about a row that was just measured
PLOTS = {"speedup_depth", "speedup_batch", "time_split", "loss_curves"}


def run(folder, **changes):
    console = Console(width=80, file=io.StringIO())
    results = compare(parse(BenchmarkConfig, {**TINY, "output": str(folder), **changes}), console)
    return results, console.file.getvalue()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("benchmark") / "out"
    _, text = run(folder, parts=list(PARTS))
    assert set(MEASURED.findall(text)) == set(PARTS)
    return folder


def test_tables_report_and_plots_are_written(folder):
    saved = json.loads((folder / "results.json").read_text())
    assert {name: len(saved[name]) for name in PARTS} == {"steps": 20, "published": 4, "loaders": 2, "epochs": 2, "learning": 4}
    assert saved["machine"]["torch"] and saved["machine"]["cpu"]
    report = (folder / "report.md").read_text()
    for title in ("Kernels", "The published protocol", "Loaders", "Epochs through the Trainer", "Beside the epochs", "Learning"):
        assert f"\n## {title}" in report
    for name in PLOTS:
        assert f"({name}.png)" in report
        pixels = imread(folder / f"{name}.png")
        assert min(pixels.shape[:2]) > 200 and pixels[..., :3].std() > 0.02  # something is drawn


@pytest.mark.usefixtures("blank_figures")
def test_a_second_call_measures_nothing_and_shows_everything(folder):
    before = (folder / "steps.csv").read_text()
    results, text = run(folder, parts=["steps", "loaders"])
    assert not MEASURED.search(text) and (folder / "steps.csv").read_text() == before
    assert set(results.tables) >= {"steps", "loaders"} and "Kernels" in text


@pytest.mark.usefixtures("blank_figures")
def test_rows_of_earlier_calls_stay_in_report_and_plots(folder):
    results, _ = run(folder, parts=["loaders"])
    assert len(results.tables["steps"].rows) == 20
    assert "## Kernels" in (folder / "report.md").read_text()


@pytest.mark.usefixtures("blank_figures")
def test_tables_fit_a_terminal_of_80_columns(folder):
    _, text = run(folder, parts=list(PARTS))
    assert max(map(len, text.splitlines())) <= 80 or "Tables and plots are in" in max(text.splitlines(), key=len)
    assert "…" not in text


def test_another_machine_s_folder_is_refused(folder, tmp_path):
    saved = json.loads((folder / "results.json").read_text())
    saved["machine"]["cpu"] = "another"
    (tmp_path / "results.json").write_text(json.dumps(saved))
    with pytest.raises(UserError, match="holds measurements with cpu another"):
        run(tmp_path)


def test_output_that_is_a_file_is_refused(tmp_path):
    (tmp_path / "x").write_text("")
    with pytest.raises(UserError, match=r"x is a file\. Give a folder"):
        run(tmp_path / "x")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"parts": ["kernels"]}, "parts"),
        ({"num_layers": [0]}, r"num_layers=\[0\] is not valid: expected a list of whole numbers of at least 1"),
        ({"batch_sizes": []}, r"batch_sizes=\[\] is not valid"),
        ({"steps": {"candidates": ["fused_captured"]}}, "fused_captured is a CUDA graph and needs a GPU"),
        ({"steps": {"candidates": []}}, r"steps\.candidates is empty"),
        ({"steps": {"candidates": ["tf"]}}, r"steps\.candidates"),
        ({"epochs": {"workers": -1}}, r"epochs\.workers=-1 is not valid: expected a whole number of at least 0"),
        ({"learning": {"seeds": []}}, r"learning\.seeds=\[\]"),
        ({"norm": "group"}, "norm='group' is not valid"),
        ({"repeats": 3}, "repeats is not a known key"),
    ],
)
def test_mistakes_are_named(tmp_path, changes, message):
    with pytest.raises(UserError, match=message):
        run(tmp_path / "out", **changes)


def test_every_option_reaches_what_it_is_for():
    """Keys of benchmarks/conf/benchmark.yaml are arguments of the functions that measure."""
    options = {
        "norm": "layer",
        "steps": {"candidates": ["fused", "pyg"], "works": ["step"], "repeats": 4, "warm_up": 5},
        "published": {"warm_up": 1, "iterations": 2, "repeats": 3},
        "loaders": {"batch_sizes": [8], "workers": [0, 2], "epochs": 7},
        "epochs": {"num_layers": [4, 5], "batch_sizes": [6, 7], "epochs": 8, "warm_up": 9, "rounds": 10, "workers": 11},
        "learning": {"num_layers": 12, "batch_size": 13, "epochs": 14, "seeds": [15, 16], "lr": 0.25},
    }
    molecules, tables = PackedMolecules.from_smiles(["C"], num_workers=0), {name: Table(None, part.KEY) for name, part in PARTS.items()}
    calls = measurements(parse(BenchmarkConfig, {**TINY, **options}), molecules, tables, peak=100.0)
    seen = {name: signature(call.func).bind(*call.args, **call.keywords).arguments for name, call in calls.items()}
    assert {name: arguments["table"] for name, arguments in seen.items()} == tables
    assert {arguments["dataset"] for arguments in seen.values()} == {"builtin[200]"}
    assert (
        seen["steps"]["grid"]
        == seen["published"]["grid"]
        == Grid("cpu", (2, 3), (16, 32), 8, "layer", ("fused", "pyg"), ("step",), repeats=4, warm_up=5)
    )
    assert seen["steps"]["peak"] == 100.0
    assert seen["published"].items() >= {"warm_up": 1, "iterations": 2, "repeats": 3}.items()
    assert seen["loaders"].items() >= {"batch_sizes": (8,), "workers": (0, 2), "epochs": 7}.items()
    variants = [(one["model"]["num_layers"], one["dataset"]["batch_size"]) for one in seen["epochs"]["variants"]]
    assert variants == [(4, 6), (4, 7), (5, 6), (5, 7)]
    assert seen["epochs"].items() >= {"epochs": 8, "warm_up": 9, "rounds": 10, "workers": 11}.items()
    values = seen["learning"]["values"]
    assert (values["model"]["num_layers"], values["dataset"]["batch_size"], values["optimizer"]["lr"]) == (12, 13, 0.25)
    assert seen["learning"].items() >= {"epochs": 14, "seeds": (15, 16), "workers": 11}.items()
    assert values["model"]["norm"] == "layer" and values["trainer"]["accelerator"] == "cpu"


def test_data_sets_have_names_of_their_own():
    def label(**dataset):
        return data_label(parse(DatasetConfig, dataset))

    assert label(name="builtin") == "builtin" and label(name="builtin", subset=20) == "builtin[20]"
    assert label(name="csv", path="a/qm9_logp.csv.gz") == "qm9_logp"
    assert label(name="qm9", path="a/gdb9.sdf") == "qm9:gdb9" and label(name="zinc", path="zinc", subset="12k") == "zinc[12k]"


def test_training_is_of_the_network_that_is_timed():
    config = parse(BenchmarkConfig, {**TINY, "norm": "batch"})
    model = training_values(config, 5, 64)["model"]
    assert model == {
        "hidden_channels": 8, "num_layers": 5, "norm": "batch", "residual": False, "last_activation": False, "head_layers": 0,
    }  # fmt: skip


def test_the_command_runs_and_says_what_it_measures(cli, tmp_path):
    small = ["dataset.subset=100", "dataset.features=zinc", "parts=[loaders]", "loaders.batch_sizes=[16]", "loaders.epochs=1", "output=out"]
    code, out, err = cli(*small, main=main)
    assert code == 0, err
    assert "100 built-in molecules" in out and "packed, CPU, 1 thread" in out
    assert (tmp_path / "out" / "loaders.csv").exists()
    code, _, err = cli("num_layer=[2]", main=main)
    assert code == 2 and "Did you mean num_layers?" in err and "Traceback" not in err
