"""The command `python -m molgcn.export`: it writes a trained network as ONNX or torch.export, and first compares it with the checkpoint."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from molgcn.cli import run_command
from molgcn.config.run import BackendConfig
from molgcn.data.batch import GraphBatch
from molgcn.data.components import join_components
from molgcn.data.featurizers import get_featurizer
from molgcn.data.packed import PackedMolecules
from molgcn.errors import UserError
from molgcn.files.whole_file import whole
from molgcn.process.quiet import quiet
from molgcn.screening.config import one_checkpoint
from molgcn.screening.inputs import ModelInputs
from molgcn.screening.output import as_mistake

if TYPE_CHECKING:
    from molgcn.nn import MoleculeNet
    from molgcn.nn.exported import ExportedNetwork
    from molgcn.training.predictor import MoleculePredictor

log = logging.getLogger(__name__)

INPUTS = ("x", "edge_index", "batch")  # the inputs of every network
OUTPUT = "prediction"
METADATA = "molgcn.json"
BOUND = 1e-4  # the largest relative difference allowed; see Task.differences
Run = Callable[..., Tensor]  # takes x, edge_index and batch, and optional inputs by name


@dataclass(frozen=True)
class ExportConfig:
    """The keys of conf/export.yaml."""

    ckpt: str | None = None
    output: str = "model.onnx"
    network_only: bool = False


def main() -> None:
    run_command("export", export, ExportConfig, imports=["molgcn.training.restore"])


def export(config: ExportConfig) -> float:
    """Write the network to `config.output`.

    Returns:
        The largest relative difference between the exported network's predictions and the checkpoint's; see :func:`largest_difference`.

    Raises:
        UserError: for every mistake in the configuration or the checkpoint, when ONNX's packages are missing, or when the difference
            exceeds :data:`BOUND`.
    """
    from molgcn.nn.exported import ExportedNetwork
    from molgcn.training.restore import find_checkpoint, load_module

    output = Path(config.output).expanduser()
    if output.suffix not in _WRITERS:
        raise UserError(f"output={output}: expected a name that ends in {' or '.join(_WRITERS)}.")
    if output.is_dir():
        raise UserError(f"output={output} is a folder. Give a file, for example output={output / 'model.onnx'}.")
    module = load_module(find_checkpoint(one_checkpoint(config.ckpt)), BackendConfig())
    module.levels.check_none("python -m molgcn.export", "Predict with python -m molgcn.predict, or with molgcn.load in Python.")
    if module.blend is not None and not config.network_only:
        raise UserError(
            f"ckpt={config.ckpt} predicts together with boosted trees (training.blend=trees), which {output.suffix} files do not hold. "
            "Predict with python -m molgcn.predict, export what the network predicts alone with network_only=true, or train without trees "
            "(training.blend=none)."
        )
    network = ExportedNetwork(module.averaged, module.task.output_layer(*module.statistics))
    with as_mistake(output):
        output.parent.mkdir(parents=True, exist_ok=True)
        with whole(output) as temporary:
            with quiet("torch.onnx", "torch.export", "onnxscript", "onnx_ir", "onnxscript.optimizer"):
                run = _WRITERS[output.suffix](network, metadata(module), temporary)
            difference = largest_difference(run, module)
            if not difference <= BOUND:
                raise UserError(
                    f"What was exported differs from the checkpoint by {difference:.1e} (relative), so {output} is not written."
                )
    log.info("%s predicts %s; largest relative difference from the checkpoint %.1e", output, module.task.described, difference)
    return difference


def metadata(module: MoleculePredictor) -> dict[str, str]:
    """Return what a program needs to know to use the exported file, as texts by name; lists are JSON.

    `outputs` and `feature_names` have one entry per column. :mod:`molgcn.onnx_inputs` reads `inputs`.
    """
    featurizer = None if module.features is None else get_featurizer(module.features)
    return {
        "task": module.task.name,
        "outputs": json.dumps([name for names in module.task.columns for name in names]),
        "target_names": json.dumps(module.target_names),
        "target_units": json.dumps(module.target_units),
        "features": "" if featurizer is None else featurizer.name,
        "features_version": "" if featurizer is None else str(featurizer.version),
        "feature_names": "[]" if featurizer is None else json.dumps([*featurizer.names, *module.own_features["atom"]]),
        "bond_feature_names": "[]" if featurizer is None else json.dumps([*featurizer.bond_names, *module.own_features["bond"]]),
        "descriptor_names": json.dumps(module.descriptor_names),
        "components": json.dumps(module.config.dataset.smiles_columns),
        "standardize": module.config.dataset.standardize,
        "stereo": "" if featurizer is None else featurizer.stereo,
        "hydrogens": "" if featurizer is None else featurizer.hydrogens,
        "inputs": "" if featurizer is None else ModelInputs.of(module).to_json(),
        "versions": json.dumps(module.versions),
    }


def random_molecules(num_features: int, count: int, seed: int = 0, edge_channels: int | None = None) -> PackedMolecules:
    """Return random trees of 1 to 40 atoms, with float32 features in [0, 1) of every atom [F] and, unless D is None, of every bond [D]."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, 41, count)
    sizes[0] = 1
    bonds = [np.array([(atom, rng.integers(atom)) for atom in range(1, size)], np.int64).reshape(-1, 2).T for size in sizes]
    both = np.concatenate([np.concatenate([one, one[::-1]], axis=1) for one in bonds], axis=1)
    x = rng.random((sizes.sum(), num_features), np.float32)
    edge_attr = None if edge_channels is None else rng.random((both.shape[1], edge_channels), np.float32)
    return PackedMolecules.from_arrays(sizes, 2 * (sizes - 1), both, x=x, edge_attr=edge_attr)


def random_batch(model: MoleculeNet, count: int, chosen: Any = slice(None)) -> GraphBatch:
    """Return a batch of the chosen ones of random molecules, with every input that a network reads."""
    sets = [random_molecules(model.in_channels, count, seed, model.edge_channels) for seed in range(model.num_components)]
    batch = (sets[0] if len(sets) == 1 else join_components(sets, [""] * len(sets))).batch(chosen)
    generator = torch.Generator().manual_seed(0)
    for name, rows in (("rwse", batch.num_nodes), ("bond_rw", batch.num_edges)):
        if width := getattr(model, name):
            setattr(batch, name, torch.rand(rows, width, generator=generator))
    if model.descriptors is not None:
        spread = torch.randn(batch.num_graphs, model.descriptor_channels, generator=generator)
        batch.descriptors = model.descriptors.mean.cpu() + model.descriptors.std.cpu() * spread
    return batch


@torch.no_grad()
def largest_difference(run: Run, module: MoleculePredictor) -> float:
    """Return the largest relative difference between the outputs of `run` and of the module.

    It is measured by :meth:`molgcn.tasks.base.Task.differences` on batches of one atom, one molecule, three and many.
    """
    model, worst = module.model, 0.0
    for chosen in ([0], [1], [2, 0, 3], slice(None)):
        batch = random_batch(model, 64, chosen)
        expected = module(batch)
        actual = run(batch.x, batch.edge_index, batch.batch, **{name: getattr(batch, name) for name in model.optional_inputs})
        if actual.shape != expected.shape:
            return float("inf")
        differences = module.task.differences(actual, expected, *module.statistics)
        worst = max(worst, float(differences.nan_to_num(torch.inf).max()))
    return worst


def _example(network: ExportedNetwork) -> dict[str, Any]:
    """Return the arguments with which torch traces the network, and the dynamic dimensions of each input."""
    batch = random_batch(network.network, 5)
    more = {name: getattr(batch, name) for name in network.network.optional_inputs}
    atoms, bonds, molecules = (torch.export.Dim(name) for name in ("atoms", "bonds", "molecules"))
    rows = {"edge_attr": bonds, "rwse": atoms, "bond_rw": bonds, "descriptors": molecules, "component": atoms}
    shapes = {"x": {0: atoms}, "edge_index": {1: bonds}, "batch": {0: atoms}} | {name: {0: rows[name]} for name in more}
    return {"args": (batch.x, batch.edge_index, batch.batch), "kwargs": more, "dynamic_shapes": shapes}


def _write_pt2(network: ExportedNetwork, about: dict[str, str], path: Path) -> Run:
    program = torch.export.export(network, **_example(network))
    with open(path, "wb") as file:
        torch.export.save(program, file, extra_files={METADATA: json.dumps(about)})
    with open(path, "rb") as file:
        return torch.export.load(file).module()


def _write_onnx(network: ExportedNetwork, about: dict[str, str], path: Path) -> Run:
    try:
        import onnxruntime
        import onnxscript  # noqa: F401
    except ImportError as error:
        raise UserError(f"ONNX needs the package {error.name}. Run `pip install molgcn[export]`, or write output=model.pt2.") from error
    from molgcn.nn.exported import TRANSLATIONS

    program = torch.onnx.export(
        network,
        **_example(network),
        dynamo=True,
        input_names=[*INPUTS, *network.network.optional_inputs],
        output_names=[OUTPUT],
        custom_translation_table=TRANSLATIONS,
        verbose=False,
    )
    assert program is not None
    program.model.metadata_props.update(about)
    (output,) = program.model.graph.outputs
    assert output.shape is not None
    output.shape = type(output.shape)(["molecules", *output.shape[1:]])
    program.save(path)
    session = onnxruntime.InferenceSession(path.read_bytes(), providers=["CPUExecutionProvider"])

    def run(*tensors: Tensor, **more: Tensor) -> Tensor:
        inputs = dict(zip(INPUTS, tensors, strict=True)) | more
        return torch.from_numpy(session.run(None, {name: tensor.numpy() for name, tensor in inputs.items()})[0])

    return run


_WRITERS: dict[str, Callable[[ExportedNetwork, dict[str, str], Path], Run]] = {".onnx": _write_onnx, ".pt2": _write_pt2}


if __name__ == "__main__":
    main()
