"""Compose configurations from conf/ and run them, for the tests of its files and of its recipes."""

from copy import deepcopy
from functools import cache
from pathlib import Path

import yaml
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

from molgcn.config.overrides import search_path
from molgcn.config.run import Config, parse
from molgcn.resources import resource
from molgcn.training.train import train

CONF = resource("conf")
FOLDERS = (CONF, Path(__file__).parents[1] / "benchmarks/conf")
PRIMARIES = {path.stem: folder for folder in FOLDERS for path in folder.glob("*.yaml") if "\n  - hydra: " in path.read_text()}
MODELS = sorted(path.stem for path in (CONF / "model").glob("*.yaml"))
TINY = ["model.hidden_channels=8", "model.num_layers=3", "trainer.max_epochs=1", "trainer.accelerator=cpu", "logger=csv"]
BUILTIN = ["dataset=builtin", "dataset.subset=200", "dataset.features=qm9", "dataset.targets=[logp]"]


def values(primary, overrides, hydra=False):
    """Return the composed configuration of a primary file or an option as plain values. Each is composed once: conf/ does not change."""
    return deepcopy(_composed(primary, tuple(overrides), hydra))


@cache
def _composed(primary, overrides, hydra):
    path = search_path([CONF]) if PRIMARIES.get(primary, CONF) != CONF else []
    with initialize_config_dir(str(PRIMARIES.get(primary, CONF)), version_base="1.3"):
        config = compose(primary, overrides=[*overrides, *path], return_hydra_config=hydra)
    if hydra:
        return OmegaConf.to_container(config, resolve=False)
    return {key: value for key, value in OmegaConf.to_container(config, resolve=True).items() if key not in ("paths", "sweep")}


def option_values(choice):
    """Return the keys of an option such as "model=gin", composed by itself, which takes half the time of a whole run's."""
    return values(choice.replace("=", "/"), [])[choice.partition("=")[0]]


def model_values(name):
    return option_values(f"model={name}")


def run(folder, overrides):
    return train(parse(Config, values("train", overrides)), folder)


def options(primary):
    """Yield every `group=option` that a primary config takes."""
    for entry in yaml.safe_load((PRIMARIES[primary] / f"{primary}.yaml").read_text())["defaults"]:
        for group in [] if isinstance(entry, str) else (name.removeprefix("optional ") for name in entry if name != "hydra"):
            for folder in dict.fromkeys((CONF, PRIMARIES[primary])):
                yield from (f"{group}={path.stem}" for path in sorted((folder / group).glob("*.yaml")))
