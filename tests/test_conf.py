"""Every file under conf/: it composes, is commented, says what the code says, and every recipe in it runs."""

import csv
import math
import re
from dataclasses import asdict, fields, is_dataclass, replace
from pathlib import Path
from typing import get_type_hints

import pytest
import yaml
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

from molgcn.benchmark.config import BenchmarkConfig
from molgcn.config import CallbacksConfig, Config, LayerSettings, LoggerConfig, ModelConfig, TrainingConfig, parse
from molgcn.data.config import DatasetConfig
from molgcn.data.sources import SOURCES
from molgcn.evaluate import EvaluateConfig, spell_out_dataset
from molgcn.export import ExportConfig
from molgcn.nn.registry import get_kind
from molgcn.predict import PredictConfig
from molgcn.resources import resource
from molgcn.search.search import SearchConfig
from molgcn.search.search_space import as_overrides, first_values, read_space
from molgcn.training.restore import load_regressor
from molgcn.training.train import train

CONF = resource("conf")
FILES = sorted(CONF.rglob("*.yaml"))
DATACLASSES = {"train": Config, "predict": PredictConfig, "evaluate": EvaluateConfig, "export": ExportConfig, "benchmark": BenchmarkConfig}
GROUPS = [name for name, kind in get_type_hints(Config).items() if is_dataclass(kind)]
TINY = ["model.hidden_channels=8", "model.num_layers=3", "trainer.max_epochs=1", "trainer.accelerator=cpu", "logger=csv"]
ATOMISATION = ("u0_atom", "u298_atom", "h298_atom", "g298_atom")
QM9_TARGETS = ("mu", "alpha", "homo", "lumo", "gap", "r2", "zpve", "u0", "u298", "h298", "g298", "cv", *ATOMISATION)
BUILTIN = ["dataset=builtin", "dataset.subset=200", "dataset.features=qm9", "dataset.targets=[logp]"]


def values(primary, overrides, hydra=False):
    """The composed configuration as plain values."""
    with initialize_config_dir(str(CONF), version_base="1.3"):
        config = compose(primary, overrides=overrides, return_hydra_config=hydra)
    if hydra:
        return OmegaConf.to_container(config, resolve=False)
    return {key: value for key, value in OmegaConf.to_container(config, resolve=True).items() if key not in ("paths", "sweep")}


def run(folder, overrides):
    return train(parse(Config, values("train", overrides)), folder)


def training_losses(folder):
    with open(folder / "metrics.csv", newline="") as file:
        return [float(row["train/loss"]) for row in csv.DictReader(file) if row["train/loss"]]


def options(primary):
    """Every `group=option` that a primary config can be given."""
    for entry in yaml.safe_load((CONF / f"{primary}.yaml").read_text())["defaults"]:
        for group in [] if isinstance(entry, str) else entry:
            if (CONF / group).is_dir() and group != "hydra":
                yield from (f"{group}={path.stem}" for path in sorted((CONF / group).glob("*.yaml")))


# --- composition ---
@pytest.mark.parametrize(("primary", "choice"), [(p.stem, choice) for p in CONF.glob("*.yaml") for choice in [None, *options(p.stem)]])
def test_every_option_of_every_group_composes(primary, choice):
    overrides = [] if choice is None else [choice]
    config = values(primary, overrides, hydra=True)
    assert config["hydra"]["job"]["chdir"] is False
    if primary in DATACLASSES:
        parse(DATACLASSES[primary], values(primary, overrides))


def test_every_group_belongs_to_a_command():
    used = {choice.split("=")[0] for primary in CONF.glob("*.yaml") for choice in options(primary.stem)}
    assert {path.name for path in CONF.iterdir() if path.is_dir()} - {"hydra"} == used


@pytest.mark.parametrize("name", ["predict", "evaluate", "export", "benchmark"])
def test_defaults_are_those_of_the_code(name):
    composed, own = (asdict(config) for config in (parse(DATACLASSES[name], values(name, [])), DATACLASSES[name]()))
    if name == "benchmark":  # its data set is a group, checked below
        assert composed.pop("dataset")["name"] == own.pop("dataset")["name"]
    assert composed == own


def test_a_training_run_s_defaults_are_those_of_the_code():
    composed, own = parse(Config, values("train", [])), Config(dataset=DatasetConfig())
    source = SOURCES[own.dataset.name](own.dataset)  # chooses where the code's default is None
    chosen = replace(own.dataset, targets=list(source.target_names), features=source.features)
    assert replace(composed, trainer={}) == replace(own, dataset=chosen)  # the trainer's keys go to Lightning, which has others


# What makes an option beside its name; all its other keys have the code's defaults.
PLUS = ("bonds", "embed", "embed_bonds", "init", "feed_forward", "pool", "encodings", "head_layers")  # GNN+
MADE_OF = {
    "dataset=builtin": {"targets", "features"},
    "dataset=csv": {"features"},
    "dataset=qm9": {"targets", "features"},
    "dataset=zinc": {"features", "subset", "split"},
    "model=gin": {"embed", "init"},
    "model=gine": {"bonds", "embed", "embed_bonds", "init"},
    "model=sage": {"embed", "init"},
    "model=gat": {"bonds", "embed", "init", "heads"},
    "model=gatv2": {"bonds", "embed", "init", "heads"},
    "model=gcn_edge": {"bonds", "embed", "embed_bonds", "init"},
    "model=gated_gcn": {"bonds", "embed", "embed_bonds", "init"},
    "model=dmpnn": {"hidden_channels", "num_layers", "residual", "norm", "pool", "bonds", "head_channels", "init"},
    "model=gcn_plus": {"num_layers", *PLUS},
    "model=gin_plus": {"num_layers", "hidden_channels", "norm", *PLUS},
    "model=gated_gcn_plus": {"num_layers", "hidden_channels", "dropout", *PLUS},
    "optimizer=adamw": {"weight_decay"},
    "optimizer=sgd": {"lr", "momentum"},
    "scheduler=exponential": {"warmup_epochs", "start_lr", "min_lr"},
    "scheduler=warmup": {"warmup_epochs"},
    "callbacks=early_stopping": {"early_stopping_patience"},
}


@pytest.mark.parametrize("choice", [choice for choice in options("train") if choice.split("=")[0] in GROUPS])
def test_an_option_s_other_keys_have_the_code_s_defaults(choice):
    group = choice.split("=")[0]
    cls = get_type_hints(Config)[group]
    composed, own = asdict(parse(cls, values("train", [choice])[group])), asdict(cls())
    assert {key for key in own if composed[key] != own[key]} - {"name"} == MADE_OF.get(choice, set())


@pytest.mark.parametrize(
    ("group", "cls"),
    [("dataset", DatasetConfig), ("model", ModelConfig), ("training", TrainingConfig), ("callbacks", CallbacksConfig)],
)
def test_every_key_of_the_code_is_in_the_file(group, cls):
    """So that no key that works is refused as unknown on the command line."""
    for path in (CONF / group).glob("*.yaml"):
        keys = yaml.safe_load(path.read_text())
        assert set(keys) == {field.name for field in fields(cls)} - (others_settings(keys["name"]) if group == "model" else set()), path


def others_settings(name):
    """The settings that only layers other than this one have; `settings` holds those of other packages' layers."""
    return {field.name for field in fields(LayerSettings)} - get_kind(name).own_settings.keys() | {"settings"}


def test_the_layers_settings_are_those_of_the_code():
    """Names and defaults: an option that two layers share has one default."""
    ours = {field.name: field.default for field in fields(LayerSettings)}
    names = {yaml.safe_load(path.read_text())["name"] for path in (CONF / "model").glob("*.yaml")}
    theirs = {setting for name in names for setting in get_kind(name).own_settings.items()}
    assert sorted(theirs) == sorted(ours.items())


def test_logger_wandb_has_every_key():
    assert set(yaml.safe_load((CONF / "logger/wandb.yaml").read_text())) == {field.name for field in fields(LoggerConfig)}


# --- comments ---
def leaves(node, path=()):
    """Line number and dotted name of every key whose value is no mapping."""
    for key, value in node.value:
        name = (*path, key.value)
        if isinstance(value, yaml.MappingNode) and value.value:
            yield from leaves(value, name)
        elif name != ("defaults",):
            yield key.start_mark.line, ".".join(name)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(CONF).as_posix())
def test_every_key_has_a_comment(path):
    lines = path.read_text().splitlines()
    bare = []
    for line, name in leaves(yaml.compose(path.read_text())):
        above, beside = lines[line - 1].strip() if line else "", lines[line].partition(" # ")[2]
        comment = above[1:].strip() if above.startswith("#") else beside
        if path.name == "optuna.yaml" and name.rsplit(".", 1)[-1] in ("low", "high", "log"):  # of an interval on one line
            continue
        if name.endswith("_target_"):  # names a class; the comment is above its section
            comment = lines[line - 2].strip().lstrip("# ")
        if len(comment) < 4 or comment.startswith("@package"):
            bare.append(f"{name} (line {line + 1})")
    assert not bare


# --- help ---
@pytest.mark.parametrize(
    ("module", "mentions"),
    [
        (None, ["python train.py dataset=qm9", "--multirun", "resume=last", "predictions_test.csv", "Quote a value"]),
        ("molgcn.predict", ["python -m molgcn.predict ckpt=", "on_error=skip", "output: predictions.csv"]),
        ("molgcn.evaluate", ["python -m molgcn.evaluate ckpt=", "report.html", "split_file: null"]),
        ("molgcn.benchmark", ["python -m molgcn.benchmark benchmark=small_graph_study", "report.md", "batch_sizes:"]),
        ("molgcn.export", ["python -m molgcn.export ckpt=", "molgcn.json", "output: model.onnx"]),
    ],
)
def test_help_is_worth_reading(run_cli, tmp_path, module, mentions):
    done = run_cli("--help", module=module)
    assert done.returncode == 0
    for text in mentions:
        assert text in done.stdout
    assert "Hydra" not in done.stdout.replace("for both the shell and Hydra", "")  # its own boilerplate says nothing about molecules
    assert list(tmp_path.iterdir()) == []
    if module is None:
        for choice in options("train"):
            group, option = choice.split("=")
            assert re.search(rf"^{group}: .*\b{option}\b", done.stdout, re.MULTILINE), choice


def test_the_examples_of_the_help_page_compose():
    for name in ("default", "predict", "evaluate", "export", "benchmark"):
        text = yaml.safe_load((CONF / "hydra" / f"{name}.yaml").read_text())["help"]["template"]
        commands = re.findall(r"python (train\.py|-m molgcn\.\w+)((?: +[\w.]+=\S+| --multirun)+)", text)
        assert commands
        for program, arguments in commands:
            overrides = [spell_out_dataset(word) if "evaluate" in program else word for word in arguments.split()]
            overrides = [word for word in overrides if "resume=" not in word and not word.startswith("--")]
            grid = [word.split(",")[0] if word.count(",") and "[" not in word else word for word in overrides]
            values(program.rpartition(".")[2].replace("py", "train"), [re.sub(r"[<>]", "", word) for word in grid])


# --- recipes that run ---
@pytest.fixture
def qm9(tmp_path):
    """A file with QM9's columns: chains whose properties fall with their length, each in its own way."""
    path = tmp_path / "qm9.csv"
    lines = [",".join(["mol_id", "smiles", *QM9_TARGETS])]
    for i in range(60):
        smiles = f"{'C' * (1 + i % 7)}{'NO'[i % 2]}{'C' * (i % 3)}"
        lines.append(",".join([f"gdb_{i + 1}", smiles, *(f"{0.4 - 0.02 * (j + 1) * len(smiles)}" for j in range(len(QM9_TARGETS)))]))
    path.write_text("\n".join(lines) + "\n")
    return [f"dataset.path={path}", f"dataset.cache_dir={tmp_path / 'cache'}"]


@pytest.fixture
def own_file(tmp_path):
    """A file of one's own."""
    path = tmp_path / "own.csv"
    path.write_text("smiles,y\n" + "".join(f"{'C' * (1 + i % 9)}{'NOF'[i % 3]},{i % 9}\n" for i in range(60)))
    return [f"dataset.path={path}", "dataset.targets=[y]", f"dataset.cache_dir={tmp_path / 'cache'}"]


@pytest.fixture
def zinc(tmp_path):
    """Lists and index files as the benchmark's, of a few molecules."""
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


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_experiments_run_as_they_are(name, tmp_path, request):
    """The recipe's own network and data set, one epoch of a few molecules."""
    data = request.getfixturevalue(EXPERIMENTS[name])
    fast = ["trainer.max_epochs=1", "trainer.accelerator=cpu", "logger=csv"]
    result = run(tmp_path / "run", [f"experiment={name}", *data, *fast])
    assert all(math.isfinite(result.metrics[f"test/mae/{target}"]) for target in result.names)
    model = load_regressor(tmp_path / "run").model
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


CHOICES = [choice for choice in options("train") if choice.split("=")[0] in ("optimizer", "scheduler", "loader", "backend", "callbacks")]


@pytest.mark.parametrize("choice", CHOICES)
def test_every_choice_trains(choice, tmp_path):
    result = run(tmp_path, [*BUILTIN, *TINY, "training.report=false", choice])
    assert result.best_loss < 5


def test_the_search_holds_the_code_s_keys_and_defaults():
    with initialize_config_dir(str(CONF), version_base="1.3"):
        search = OmegaConf.to_container(compose("train", overrides=["sweep=optuna"]).sweep, resolve=True)
    space = search.pop("params")
    defaults = {key: value for key, value in vars(SearchConfig()).items() if key not in ("params", "study")}
    assert {key: value for key, value in search.items() if key != "study"} == defaults
    parse(Config, values("train", as_overrides(first_values(read_space(space)))))


@pytest.mark.parametrize("name", sorted(path.stem for path in (CONF / "sweep").glob("*.yaml") if path.stem != "optuna"))
def test_sweeps_name_keys_that_exist(name):
    config = values("train", [f"sweep={name}"], hydra=True)
    grid = config["hydra"]["sweeper"]["params"]
    assert grid
    for key, listed in grid.items():
        for value in str(listed).split(","):
            parse(Config, values("train", [f"{key}={value}"]))


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
