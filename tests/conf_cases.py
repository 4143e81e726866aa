"""Compose configurations from conf/ and run them, for the tests of its files and of its recipes."""

import yaml
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

from molgcn.config.run import Config, parse
from molgcn.resources import resource
from molgcn.training.train import train

CONF = resource("conf")
TINY = ["model.hidden_channels=8", "model.num_layers=3", "trainer.max_epochs=1", "trainer.accelerator=cpu", "logger=csv"]
BUILTIN = ["dataset=builtin", "dataset.subset=200", "dataset.features=qm9", "dataset.targets=[logp]"]


def values(primary, overrides, hydra=False):
    """Return the composed configuration as plain values."""
    with initialize_config_dir(str(CONF), version_base="1.3"):
        config = compose(primary, overrides=overrides, return_hydra_config=hydra)
    if hydra:
        return OmegaConf.to_container(config, resolve=False)
    return {key: value for key, value in OmegaConf.to_container(config, resolve=True).items() if key not in ("paths", "sweep")}


def run(folder, overrides):
    return train(parse(Config, values("train", overrides)), folder)


def options(primary):
    """Yield every `group=option` that a primary config takes."""
    for entry in yaml.safe_load((CONF / f"{primary}.yaml").read_text())["defaults"]:
        for group in [] if isinstance(entry, str) else (name.removeprefix("optional ") for name in entry):
            if (CONF / group).is_dir() and group != "hydra":
                yield from (f"{group}={path.stem}" for path in sorted((CONF / group).glob("*.yaml")))
