"""Turn a model of Chemprop 2 into a module: the same network, whose weights are Chemprop's."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from molgcn.config.run import Config, ModelConfig
from molgcn.config.training import TrainingConfig
from molgcn.conversion.chemprop_file import ChempropFile, Record
from molgcn.data.config import DatasetConfig
from molgcn.data.featurizers import get_featurizer
from molgcn.data.own_features import PREFIXES
from molgcn.nn.pooling import NORM_CONSTANT
from molgcn.tasks.base import Task
from molgcn.tasks.registry import build_task
from molgcn.training.module import MoleculeModule

log = logging.getLogger(__name__)

FEATURES = "chemprop"
_FEATURIZERS = {133: "V1", 44: "ORGANIC", 52: "RIGR"}  # Chemprop's other featurizers, by their features per atom
_POOLS = {"MeanAggregation": "mean", "SumAggregation": "sum", "NormAggregation": "norm", "AttentiveAggregation": "attention"}
_HEADS = {  # task, loss and outputs per target; 0 stands for the number of classes
    "RegressionFFN": ("regression", "mse", 1),
    "MveFFN": ("regression", "mve", 2),
    "EvidentialFFN": ("regression", "evidential", 4),
    "BinaryClassificationFFN": ("classification", "bce", 1),
    "MulticlassClassificationFFN": ("multiclass", "ce", 0),
}
_ACTIVATIONS = ("relu", "gelu", "silu", "elu", "tanh")
_PAIR = ("weight", "bias")
_UNREAD = ("metrics.", "predictor.criterion.")  # weights of losses and metrics


def convert_model(file: ChempropFile, targets: Sequence[str] | None = None) -> MoleculeModule:
    """Return the module that predicts what a model of Chemprop predicts.

    Batch norm after the pooling and the divisor of `NormAggregation` become part of the head's first layer, so that predictions are the
    same up to rounding.

    Args:
        file: the whole model.
        targets: the names of the targets. None takes those in the file, else target_0, target_1, ...

    Raises:
        UserError: If the model has a part that molgcn does not have.
    """
    weights = file.weights
    if any(key.startswith(("message_passing.blocks.", "message_passings.", "predictors.")) for key in weights):
        raise file.refused("it is a model of several molecules per row, or of atoms and bonds. Only those of one molecule per row can.")
    part = {name: _mapping(file, name) for name in ("message_passing", "agg", "predictor")}
    model, encoder, own = _encoder(file, part["message_passing"], "message_passing.")
    pool = _named(file, part["agg"], _POOLS, "aggregation")
    if pool == "attention":
        encoder |= {"gate.weight": weights["agg.W.weight"], "gate.bias": weights["agg.W.bias"]}
    task, loss, per_target = _named(file, part["predictor"], _HEADS, "head")
    layers = _head_layers(file)
    classes = int(part["predictor"].get("n_classes") or 0) if task == "multiclass" else {"classification": 2}.get(task, 0)
    num_targets = layers[-1][1].shape[0] // (per_target or classes or 1)
    names = _target_names(file, targets, num_targets)
    if len(layers) > 1 and (activation := _activation(file, part["predictor"])) != model["activation"]:
        raise file.refused(f"messages have the activation {model['activation']} and the head {activation}. Both must have the same.")

    width, scale, shift = model["hidden_channels"], *_scale_of_pooled(file, part["agg"], model["hidden_channels"])
    first, bias = layers[0]
    layers[0] = torch.cat([first[:, :width] * scale, first[:, width:]], dim=1), bias + first[:, :width] @ shift
    if per_target > 1:  # Chemprop has the first output of every target, then the second ones
        order = torch.arange(num_targets * per_target).view(per_target, num_targets).T.flatten()
        layers[-1] = layers[-1][0][order], layers[-1][1][order]
    prefixes = ["head."] if len(layers) == 1 else [f"head.{2 * place}." for place in range(len(layers))]
    head = {prefix + name: value for prefix, pair in zip(prefixes, layers, strict=True) for name, value in zip(_PAIR, pair, strict=True)}
    descriptors = first.shape[1] - width
    if descriptors:
        mean, std = _scaler(file, "X_d_transform.", descriptors)
        encoder |= {"descriptors.mean": mean, "descriptors.std": std}

    statistics = {"class_frequencies": torch.full((num_targets, classes), 1 / classes)} if classes else {}
    if not classes:
        statistics["target_mean"], statistics["target_std"] = _scaler(file, "predictor.output_transform.", num_targets)
    _check_all_read(file, len(layers))
    known = not classes and "predictor.output_transform.mean" in weights  # else the training part's mean is not
    model |= {"pool": pool, "head_channels": tuple(len(bias) for _, bias in layers[:-1])}
    training = TrainingConfig(loss=loss, baseline="simple" if known else "none")
    config = _config(model, task, names, training, own, descriptors)
    module = _module(config, build_task(task, names, [""] * len(names), classes), statistics, own, descriptors)
    module.model.load_state_dict({key: value.float() for key, value in {**encoder, **head}.items()})
    if part["predictor"].get("dropout"):
        log.info("The head's dropout (%s), which changes no prediction, is left out", part["predictor"]["dropout"])
    return module


def convert_messages(file: ChempropFile) -> MoleculeModule:
    """Return a module whose encoder is Chemprop's message passing, and whose head and pooling are not Chemprop's.

    Raises:
        UserError: If it has a part that molgcn does not have.
    """
    model, encoder, own = _encoder(file, file.parameters, "")
    statistics = {name: torch.ones(1) for name in ("target_mean", "target_std")}
    config = _config({**model, "pool": "mean"}, "regression", None, TrainingConfig(), own)
    module = _module(config, build_task("regression", ["none"], [""], 0), statistics, own)
    module.model.load_state_dict({key: value.float() for key, value in encoder.items()}, strict=False)
    return module


def _module(config: Config, task: Task, statistics: dict[str, Tensor], own: Mapping[str, int], descriptors: int = 0) -> MoleculeModule:
    featurizer = get_featurizer(FEATURES)
    names: dict[str, Any] = {f"{of}_feature_names": [f"{PREFIXES[of]}_{n}" for n in range(count)] for of, count in own.items()}
    return MoleculeModule(
        config,
        in_channels=featurizer.num_features + own["atom"],
        task=task,
        statistics=statistics,
        features=FEATURES,
        edge_channels=featurizer.num_bond_features + own["bond"],
        descriptor_names=[f"x_d_{place}" for place in range(descriptors)],
        **names,
    )


def _config(
    model: Mapping[str, Any], task: Any, targets: list[str] | None, training: TrainingConfig, own: Mapping[str, int], descriptors: int = 0
) -> Config:
    """Return the configuration of a run with a network, which takes so many columns of files.

    Chemprop does not say which files they were; keys that name them say that the network was trained with such a file.
    """
    given = {"descriptors": descriptors} | {f"{of}_features": count for of, count in own.items()}
    files: dict[str, Any] = {f"{name}_path": f"{name}.npz" for name, count in given.items() if count}
    dataset = DatasetConfig(name="csv", targets=targets, features=FEATURES, group_duplicates=False, **files)
    plain: dict[str, Any] = {"name": "dmpnn", "residual": False, "norm": None, "bonds": True, "init": None}
    return Config(dataset=dataset, task=task, model=ModelConfig(**plain, **model), training=training)


def _encoder(file: ChempropFile, given: Mapping[str, Any], prefix: str) -> tuple[dict[str, Any], dict[str, Tensor], dict[str, int]]:
    """Return the options of the network, the weights of its layers, which are message passing's, and its numbers of own features.

    Own features, Chemprop's extra ones of atoms and bonds, are the last columns. Their scale is among the weights.
    """
    weights = {key.removeprefix(prefix): value for key, value in file.weights.items() if key.startswith(prefix)}
    kind = given.get("cls")
    name = kind.__name__ if isinstance(kind, type) else "BondMessagePassing"
    wanted = {"W_i.weight", "W_h.weight", "W_o.weight", "W_o.bias"}
    if wanted - weights.keys():
        raise file.refused(f"it lacks {prefix}{min(wanted - weights.keys())}. Expected message passing of Chemprop 2 on bonds.")
    width, into_first = weights["W_i.weight"].shape
    atoms = weights["W_o.weight"].shape[1] - width
    bonds, featurizer = into_first - atoms, get_featurizer(FEATURES)
    if name != "BondMessagePassing" or bonds == 0:
        raise file.refused(f"its message passing is {name}, and only that on bonds (BondMessagePassing) has a counterpart.")
    own = {"atom": atoms - featurizer.num_features, "bond": bonds - featurizer.num_bond_features}
    if atoms in _FEATURIZERS or min(own.values()) < 0:
        kind = f"Chemprop's {_FEATURIZERS[atoms]} features" if atoms in _FEATURIZERS else "other features"
        raise file.refused(
            f"it was trained on {kind}, {atoms} of an atom and {bonds} of a bond. Only Chemprop's default features (V2, "
            f"{featurizer.num_features} and {featurizer.num_bond_features}) have a counterpart, dataset.features={FEATURES}, "
            "and extra ones behind them."
        )
    scales: dict[str, Tensor] = {}
    for of, name, columns in (("atom", "V_transform", atoms), ("bond", "E_transform", bonds)):
        if own[of]:
            mean, std = _scaler(file, f"{prefix}graph_transform.{name}.", columns)
            scales |= {f"{of}_scale.mean": mean, f"{of}_scale.std": std}
    weights = {key: value for key, value in weights.items() if not key.startswith("graph_transform.")}
    if more := sorted(weights.keys() - wanted - {"W_i.bias", "W_h.bias"}):
        raise file.refused(f"its message passing has {prefix}{more[0]}, as with descriptors of atoms, which molgcn does not have.")
    options = {
        "hidden_channels": width,
        "num_layers": int(given.get("depth", 3)),
        "activation": _activation(file, given),
        "dropout": float(given.get("dropout", 0.0)),
        "undirected": bool(given.get("undirected", False)),
        "message_bias": "W_h.bias" in weights,
    }
    return options, {f"convs.0.{key}": value for key, value in weights.items()} | scales, own


def _activation(file: ChempropFile, given: Mapping[str, Any]) -> str:
    """Return molgcn's name of a part's activation, which is a name, a member of an Enum or a module of torch in the file."""
    value = given.get("activation", "relu")
    state: Any = {}
    if isinstance(value, Record):
        of_torch = not value.name.startswith("chemprop.")
        state = value.state if isinstance(value.state, dict) else {}
        value = type(value).__name__ if of_torch or not value.arguments else value.arguments[0]
    name = str(value).lower()
    if name not in _ACTIVATIONS or state.get("alpha", 1.0) != 1.0 or state.get("approximate", "none") != "none":
        slope = ", whose slope is 0.1" if name == "leakyrelu" else ""
        raise file.refused(f"its activation is {name}{slope}, and those with a counterpart are {', '.join(_ACTIVATIONS)}.")
    return name


def _scale_of_pooled(file: ChempropFile, agg: Mapping[str, Any], width: int) -> tuple[Tensor, Tensor]:
    """Return factor and summand [H], float64, that turn our pooled states into those that Chemprop's head takes."""
    divisor = float(agg.get("norm", NORM_CONSTANT))
    scale, shift = torch.full((width,), NORM_CONSTANT / divisor, dtype=torch.float64), torch.zeros(width, dtype=torch.float64)
    if "bn.running_mean" in file.weights:
        weight, bias, mean, variance = (file.weights[f"bn.{name}"].double() for name in ("weight", "bias", "running_mean", "running_var"))
        factor = weight / (variance + torch.nn.BatchNorm1d(1).eps).sqrt()
        scale, shift = scale * factor, bias - mean * factor
        log.info("Batch norm after the pooling becomes part of the head's first layer")
    return scale, shift


def _head_layers(file: ChempropFile) -> list[tuple[Tensor, Tensor]]:
    names = [f"predictor.ffn.{place}.{2 if place else 0}" for place in range(sum(key.startswith("predictor.ffn.") for key in file.weights))]
    found = [name for name in names if f"{name}.weight" in file.weights and f"{name}.bias" in file.weights]
    if not found:
        raise file.refused("it has no head predictor.ffn. Expected a model of Chemprop 2 with a feed-forward head.")
    return [(file.weights[f"{name}.weight"].double(), file.weights[f"{name}.bias"].double()) for name in found]


def _scaler(file: ChempropFile, prefix: str, count: int) -> tuple[Tensor, Tensor]:
    """Return mean and deviation [count] of one of Chemprop's scalers, 0 and 1 without it."""
    mean, scale = (file.weights.get(prefix + name) for name in ("mean", "scale"))
    if mean is None or scale is None:
        return torch.zeros(count), torch.ones(count)
    if mean.numel() != count or scale.numel() != count:
        raise file.refused(f"{prefix}mean has {mean.numel()} numbers, for {count} columns.")
    return mean.flatten().float(), scale.flatten().float()


def _mapping(file: ChempropFile, name: str) -> Mapping[str, Any]:
    found = file.parameters.get(name)
    if not isinstance(found, dict):
        raise file.refused(f"its hyper_parameters do not describe `{name}`. Expected a model of Chemprop 2.1 or newer.")
    return found


def _named(file: ChempropFile, given: Mapping[str, Any], table: Mapping[str, Any], what: str) -> Any:
    name = getattr(given.get("cls"), "__name__", "unknown")
    if name not in table:
        raise file.refused(f"its {what} is {name}, and those with a counterpart are {', '.join(table)}.")
    return table[name]


def _target_names(file: ChempropFile, given: Sequence[str] | None, count: int) -> list[str]:
    names = list(given or file.columns or [f"target_{place}" for place in range(count)])
    if len(names) != count or len(set(names)) < count:
        raise file.refused(f"it predicts {count} targets, and their names are {', '.join(names)}. Name each once with targets=.")
    return names


def _check_all_read(file: ChempropFile, layers: int) -> None:
    """Raise UserError for a weight that no part above has read, which would make predictions differ."""
    read = ("message_passing.", "agg.W.", "bn.", "X_d_transform.", "predictor.output_transform.", *_UNREAD)
    head = {f"predictor.ffn.{place}.{2 if place else 0}.{name}" for place in range(layers) for name in _PAIR}
    if unread := [key for key in file.weights if not key.startswith(read) and key not in head]:
        raise file.refused(f"it has the weight {unread[0]}, which no part of molgcn's network corresponds to.")
