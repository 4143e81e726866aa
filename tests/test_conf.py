"""Every file under conf/ composes, is commented and says what the code says."""

import re
from dataclasses import asdict, fields, is_dataclass, replace
from importlib import import_module
from typing import get_type_hints

import pytest
import yaml
from conf_cases import CONF, FOLDERS, MODELS, PRIMARIES, model_values, option_values, options, values
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

from molgcn.calibrate import CalibrateConfig
from molgcn.compare import CompareConfig
from molgcn.config.layer_settings import LayerSettings
from molgcn.config.overrides import compose_config
from molgcn.config.run import CallbacksConfig, Config, LoggerConfig, ModelConfig, parse
from molgcn.config.training import TrainingConfig
from molgcn.convert import ConvertConfig
from molgcn.data.config import DatasetConfig
from molgcn.data.sources import SOURCES
from molgcn.evaluate import EvaluateConfig, spell_out_dataset
from molgcn.explain.config import ExplainConfig
from molgcn.export import ExportConfig
from molgcn.fingerprint import FingerprintConfig
from molgcn.nn.registry import get_kind
from molgcn.predict import PredictConfig
from molgcn.search.search import SearchConfig
from molgcn.search.search_space import as_overrides, first_values, read_space
from molgcn_benchmark.config import BenchmarkConfig

FILES = sorted(path for folder in FOLDERS for path in folder.rglob("*.yaml"))
DATACLASSES = {
    "train": Config,
    "predict": PredictConfig,
    "fingerprint": FingerprintConfig,
    "explain": ExplainConfig,
    "evaluate": EvaluateConfig,
    "calibrate": CalibrateConfig,
    "export": ExportConfig,
    "convert": ConvertConfig,
    "compare": CompareConfig,
    "benchmark": BenchmarkConfig,
}
GROUPS = [name for name, kind in get_type_hints(Config).items() if is_dataclass(kind)]
OF_GROUPS = [choice for choice in options("train") if choice.split("=")[0] in GROUPS]
OTHERS = [(name, choice) for name in DATACLASSES for choice in [None, *options(name)] if name != "train" or choice not in OF_GROUPS]


# --- composition ---
@pytest.mark.parametrize(("primary", "choice"), OTHERS)
def test_every_option_of_every_group_composes(primary, choice):
    """Those of groups that are dataclasses are composed and parsed below."""
    parse(DATACLASSES[primary], values(primary, [] if choice is None else [choice]))


@pytest.mark.parametrize("primary", DATACLASSES)
def test_jobs_stay_in_the_folder_where_they_were_started(primary):
    assert values(primary, [], hydra=True)["hydra"]["job"]["chdir"] is False


def test_every_group_belongs_to_a_command():
    assert PRIMARIES.keys() == DATACLASSES.keys()
    used = {choice.split("=")[0] for primary in DATACLASSES for choice in options(primary)} - {"benchmark"}
    assert {path.name for path in CONF.iterdir() if path.is_dir()} - {"hydra"} == used


@pytest.mark.parametrize("name", [name for name in DATACLASSES if name != "train"])
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


# Keys that an option may set beside its name; all other keys have the code's defaults.
PLUS = ("bonds", "embed", "embed_bonds", "init", "feed_forward", "pool", "encodings", "head_layers")  # GNN+
MADE_OF = {
    "dataset=builtin": {"targets", "features"},
    "dataset=csv": {"features"},
    "dataset=qm9": {"targets", "features"},
    "dataset=zinc": {"features", "subset", "split"},
    "dataset=tdc": {"features", "smiles", "split"},
    "dataset=ogb": {"features", "split", "on_error"},
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


@pytest.mark.parametrize("choice", OF_GROUPS)
def test_an_option_s_other_keys_have_the_code_s_defaults(choice):
    group = choice.split("=")[0]
    cls = get_type_hints(Config)[group]
    composed, own = asdict(parse(cls, option_values(choice))), asdict(cls())
    assert {key for key in own if composed[key] != own[key]} - {"name"} == MADE_OF.get(choice, set())


def test_files_of_one_s_own_have_a_recipe_that_can_be_left_out_or_changed():
    recipe = yaml.safe_load((CONF / "recipe/csv.yaml").read_text())
    plain, composed = values("train", ["dataset=csv", "recipe=plain"]), values("train", ["dataset=csv"])
    assert composed == {key: {**value, **recipe[key]} if key in recipe else value for key, value in plain.items()}
    for name in ("tdc", "ogb"):
        benchmark = values("train", [f"dataset={name}"])
        expected = composed | {"training": composed["training"] | {"monitor": "auto"}}
        assert [benchmark[key] for key in recipe if key != "dataset"] == [expected[key] for key in recipe if key != "dataset"]
        assert benchmark["dataset"]["descriptor_generators"] == ["physchem"] and benchmark["training"]["monitor"] == "auto"
    assert composed["dataset"]["descriptor_generators"] == ["physchem"] and plain["dataset"]["descriptor_generators"] is None
    assert values("train", ["dataset=csv", "model=gine", "model.num_layers=2"])["model"]["num_layers"] == 2
    assert values("train", ["experiment=chemprop_dmpnn"])["dataset"]["descriptor_generators"] is None


RECIPES = ("dataset=csv", "dataset=tdc", "dataset=ogb")


@pytest.mark.parametrize("choice", [choice for choice in options("train") if choice.startswith("dataset=") and choice not in RECIPES])
def test_other_data_sets_have_no_recipe(choice):
    assert values("train", [choice]) == values("train", [choice, "recipe=plain"])


@pytest.mark.parametrize(
    ("group", "cls"),
    [("dataset", DatasetConfig), ("model", ModelConfig), ("training", TrainingConfig), ("callbacks", CallbacksConfig)],
)
def test_every_key_of_the_code_is_in_the_file(group, cls):
    """Otherwise the command line would refuse a key that works as unknown."""
    for choice in (choice for choice in options("train") if choice.startswith(f"{group}=")):
        keys = option_values(choice)
        assert set(keys) == {field.name for field in fields(cls)} - (others_settings(keys["name"]) if group == "model" else set()), choice


def others_settings(name):
    """Return the settings that only other layers have; `settings` holds those of other packages' layers."""
    return {field.name for field in fields(LayerSettings)} - get_kind(name).own_settings.keys() | {"settings"}


def test_the_layers_settings_are_those_of_the_code():
    """Names and defaults are equal, and an option that two layers share has one default."""
    ours = {field.name: field.default for field in fields(LayerSettings)}
    theirs = {setting for name in MODELS for setting in get_kind(model_values(name)["name"]).own_settings.items()}
    assert sorted(theirs) == sorted(ours.items())


def test_logger_wandb_has_every_key():
    assert set(yaml.safe_load((CONF / "logger/wandb.yaml").read_text())) == {field.name for field in fields(LoggerConfig)}


# --- comments ---
def leaves(node, path=()):
    """Yield line number and dotted name of every key whose value is not a mapping."""
    for key, value in node.value:
        name = (*path, key.value)
        if isinstance(value, yaml.MappingNode) and value.value:
            yield from leaves(value, name)
        elif name != ("defaults",):
            yield key.start_mark.line, ".".join(name)


def commented(path):
    """Return the keys that have a comment in a file or in one that it inherits."""
    return keys_of(path)[0].union(*map(commented, inherited(path)))


def inherited(path):
    """Yield the files whose keys a file takes over: those that its defaults name without a group."""
    (folder,) = [one for one in FOLDERS if path.is_relative_to(one)]
    for entry in yaml.safe_load(path.read_text()).get("defaults", []):
        if isinstance(entry, str) and entry != "_self_":
            name = entry.partition("@")[0]
            place = name[1:] if name.startswith("/") else path.parent.relative_to(folder) / name
            yield next(file for one in FOLDERS if (file := one / f"{place}.yaml").is_file())


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(CONF.parent).as_posix())
def test_every_key_has_a_comment_in_one_place(path):
    """An option may say more of a key that it changes."""
    assert keys_of(path)[1] - commented(path) == set()


def keys_of(path):
    """Return the dotted names of the keys with a comment, and of those without."""
    lines = path.read_text().splitlines()
    found, bare = set(), set()
    for line, name in leaves(yaml.compose(path.read_text())):
        above, beside = lines[line - 1].strip() if line else "", lines[line].partition(" # ")[2]
        comment = above[1:].strip() if above.startswith("#") else beside
        if path.name == "optuna.yaml" and name.rsplit(".", 1)[-1] in ("low", "high", "log"):  # an interval is on one line
            continue
        if name.endswith("_target_"):  # names a class; the comment is above its section
            comment = lines[line - 2].strip().lstrip("# ")
        (bare if len(comment) < 4 or comment.startswith("@package") else found).add(name)
    return found, bare


# --- help ---
HELP = {
    "molgcn.cli": ["python train.py dataset=qm9", "--multirun", "resume=last", "predictions_test.csv", "Quote a value"],
    "molgcn.predict": ["python -m molgcn.predict ckpt=", "on_error=skip", "molecule='CC(=O)O'", "output: null"],
    "molgcn.fingerprint": ["python -m molgcn.fingerprint ckpt=", "output=library.npz", "layer: 0"],
    "molgcn.explain.__main__": ["python -m molgcn.explain ckpt=", "method=masking", "tolerance: 0.01"],
    "molgcn.evaluate": ["python -m molgcn.evaluate ckpt=", "report.html", "split_file: null"],
    "molgcn.calibrate": ["python -m molgcn.calibrate ckpt=", "known: raise", "calibration_alpha: 0.1"],
    "molgcn.benchmark": ["python -m molgcn.benchmark benchmark=small_graph_study", "report.md", "batch_sizes:"],
    "molgcn.convert": ["python -m molgcn.convert chemprop=", "message passing alone", "targets: null"],
    "molgcn.compare": ["python -m molgcn.compare runs/a runs/b", "interval over molecules", "metric: null"],
    "molgcn.export": ["python -m molgcn.export ckpt=", "molgcn.json", "output: model.onnx"],
}


@pytest.mark.parametrize(
    "module", [name if name in ("molgcn.cli", "molgcn.predict") else pytest.param(name, marks=pytest.mark.slow) for name in HELP]
)
def test_help_is_worth_reading(cli, tmp_path, module):
    code, out, _ = cli("--help", main=import_module(module).main)
    assert code == 0
    for text in HELP[module]:
        assert text in out
    assert "Hydra" not in out.replace("for both the shell and Hydra", "")  # its own boilerplate says nothing about molecules
    assert list(tmp_path.iterdir()) == []
    if module == "molgcn.cli":
        for choice in options("train"):
            group, option = choice.split("=")
            assert re.search(rf"^{group}: .*\b{option}\b", out, re.MULTILINE), choice


def test_the_examples_of_the_help_page_compose():
    for name in ("default", *(name for name in DATACLASSES if name != "train")):
        page = yaml.safe_load((PRIMARIES.get(name, CONF) / "hydra" / f"{name}.yaml").read_text())["help"]
        text = page.get("header") or page["template"]
        commands = re.findall(r"python (train\.py|-m molgcn\.\w+)((?: +[\w.]+=\S+| --multirun)+)", text)
        assert commands
        for program, arguments in commands:
            overrides = [spell_out_dataset(word) if "evaluate" in program else word for word in arguments.split()]
            overrides = [word for word in overrides if "resume=" not in word and not word.startswith("--")]
            grid = [word.split(",")[0] if word.count(",") and "[" not in word else word for word in overrides]
            values(program.rpartition(".")[2].replace("py", "train"), [re.sub(r"[<>]", "", word) for word in grid])


def test_the_search_holds_the_code_s_keys_and_defaults():
    with initialize_config_dir(str(CONF), version_base="1.3"):
        search = OmegaConf.to_container(compose("train", overrides=["sweep=optuna"]).sweep, resolve=True)
    space = search.pop("params")
    defaults = {key: value for key, value in vars(SearchConfig()).items() if key not in ("params", "study")}
    assert {key: value for key, value in search.items() if key != "study"} == defaults
    parse(Config, values("train", as_overrides(first_values(read_space(space)))))


@pytest.mark.parametrize("group", ["sweep", "launcher", "debug"])
def test_a_preset_makes_no_folder_when_it_is_composed(group, tmp_path, monkeypatch):
    """Where a preset replaced hydra.run.dir, each composition left an empty folder."""
    monkeypatch.chdir(tmp_path)
    for path in (CONF / group).glob("*.yaml"):
        compose_config([f"{group}={path.stem}"], CONF, "train")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", sorted(path.stem for path in (CONF / "sweep").glob("*.yaml") if path.stem != "optuna"))
def test_sweeps_name_keys_that_exist(name):
    config = values("train", [f"sweep={name}"], hydra=True)
    grid = config["hydra"]["sweeper"]["params"]
    assert grid
    for key, listed in grid.items():
        for value in str(listed).split(","):
            parse(Config, values("train", [f"{key}={value}"]))
