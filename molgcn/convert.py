"""The command `python -m molgcn.convert`: it makes a run's folder from another program's model."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from molgcn.cli import run_command
from molgcn.config.overrides import as_typed
from molgcn.data.column_names import ColumnNames, as_names
from molgcn.errors import UserError, counted

if TYPE_CHECKING:
    from molgcn.training.module import MoleculeModule

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ConvertConfig:
    """The keys of conf/convert.yaml."""

    chemprop: str | None = None
    output: str | None = None
    targets: ColumnNames | None = None


def main() -> None:
    run_command("convert", convert, ConvertConfig, imports=["molgcn.training.restore"])


def convert(config: ConvertConfig) -> Path:
    """Write the run's folder: `config.yaml` and `checkpoints/best.ckpt`.

    Returns:
        The folder.

    Raises:
        UserError: If the model cannot be converted, or the folder is not empty.
    """
    from molgcn.conversion.chemprop import convert_messages, convert_model
    from molgcn.conversion.chemprop_file import read_chemprop

    if config.chemprop is None or config.output is None:
        raise UserError("Give the model and the folder to make: chemprop=<model.pt> output=runs/<name>.")
    folder = Path(config.output).expanduser()
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UserError(f"output={folder} exists and is not empty. Name a new folder, as in output={folder}_2.")
    file = read_chemprop(Path(config.chemprop).expanduser())
    if whole := "message_passing" in file.parameters:
        module = convert_model(file, as_names(config.targets))
    elif config.targets is None:
        module = convert_messages(file)
    else:
        raise UserError(f"{file.path} holds message passing alone, which has no targets. Leave out targets=.")
    _write(module, folder, whole)
    _say(module, folder, whole)
    return folder


def _write(module: MoleculeModule, folder: Path, whole: bool) -> None:
    from molgcn.screening.output import as_mistake
    from molgcn.training.checkpoint_file import BEST, write
    from molgcn.training.checkpoint_format import describe
    from molgcn.training.resume import config_text, write_config
    from molgcn.training.transfer import HEAD

    weights, architecture = module.state_dict(), module.architecture
    if not whole:
        weights = {key: value for key, value in weights.items() if key.startswith("model.") and not key[6:].startswith(HEAD)}
        architecture = {**architecture, "target_names": [], "target_units": []}
    about = describe(module.config, module.features, architecture)
    with as_mistake(folder):
        (folder / "checkpoints").mkdir(parents=True, exist_ok=True)
        write({"molgcn": about, "state_dict": weights}, folder / "checkpoints" / BEST)
        write_config(config_text(module.config), folder)


def _say(module: MoleculeModule, folder: Path, whole: bool) -> None:
    model, weights = module.config.model, counted(sum(one.numel() for one in module.model.parameters()), "weight")
    if whole:
        log.info(
            "%s predicts %s as Chemprop does (%s). %s predicts with it", folder, module.task.described, weights, as_typed("ckpt", folder)
        )
        return
    options = {"hidden_channels": model.hidden_channels, "num_layers": model.num_layers, "activation": model.activation}
    more = {name: "true" for name in ("undirected", "message_bias") if getattr(model, name)}
    files = [f"dataset.{of}_features_path=<file>" for of, names in module.own_features.items() if names]
    keys = " ".join([*(f"model.{name}={value}" for name, value in {**options, **more}.items()), *files])
    log.info(
        "%s holds Chemprop's message passing. Train from it with: python train.py dataset=csv dataset.path=<file> dataset.targets=[y] "
        "recipe=plain dataset.features=chemprop model=dmpnn %s %s",
        *(folder, keys, as_typed("ckpt_path", folder)),
    )


if __name__ == "__main__":
    main()
