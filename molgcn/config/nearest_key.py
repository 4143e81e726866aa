"""The key or option that was meant where one is misspelt or called as other programs call it."""

from __future__ import annotations

import difflib
from collections.abc import Sequence

_KNOWN_AS = {  # what other programs call keys, and the keys, of which each command has some
    **dict.fromkeys(("epochs", "n_epochs", "num_epochs"), ("trainer.max_epochs",)),
    **dict.fromkeys(("device", "accelerator"), ("trainer.accelerator", "device")),
    **dict.fromkeys(("gpus", "gpu", "n_gpus", "num_gpus", "num_devices"), ("trainer.devices", "device")),
    **dict.fromkeys(("hidden", "hidden_dim", "hidden_size", "message_hidden_dim", "width"), ("model.hidden_channels",)),
    **dict.fromkeys(("layers", "depth"), ("model.num_layers",)),
    **dict.fromkeys(("heads", "num_heads"), ("model.heads",)),
    **dict.fromkeys(("ffn_num_layers", "ffn_layers"), ("model.head_layers",)),
    **dict.fromkeys(("path", "csv", "file", "data", "data_path", "input", "train_path"), ("input", "dataset.path")),
    **dict.fromkeys(("target", "target_columns", "label", "y"), ("target", "dataset.targets")),
    **dict.fromkeys(("smiles_column", "smiles_columns", "smi"), ("smiles", "dataset.smiles")),
    **dict.fromkeys(("learning_rate",), ("optimizer.lr",)),
    **dict.fromkeys(("batch", "bs"), ("batch_size", "dataset.batch_size")),
    **dict.fromkeys(("patience", "early_stopping"), ("callbacks.early_stopping_patience",)),
    **dict.fromkeys(("ensemble_size", "num_models"), ("training.ensemble",)),
    **dict.fromkeys(("split_sizes", "fractions"), ("dataset.split_fractions",)),
    **dict.fromkeys(("num_folds", "n_folds"), ("dataset.folds",)),
    **dict.fromkeys(("metric", "metrics"), ("training.metrics", "training.monitor")),
    **dict.fromkeys(("out", "out_dir", "output_dir", "save_dir", "output"), ("output", "hydra.run.dir")),
    **dict.fromkeys(("checkpoint", "ckpt", "ckpt_path", "model_path", "weights"), ("ckpt", "ckpt_path")),
    **dict.fromkeys(("workers", "n_jobs", "num_cpus"), ("num_workers", "dataset.num_workers")),
}


def nearest_option(word: str, choices: Sequence[str]) -> str:
    """Return a sentence that names the nearest choice, "" if none is near."""
    close = difflib.get_close_matches(word, choices, n=1)
    return f" Did you mean {close[0]}?" if close else ""


def nearest_key(key: str, known: Sequence[str]) -> str:
    """Return a sentence that names the key that was meant: by its last word, by what other programs call it, or by a slip in spelling."""
    section, _, leaf = key.rpartition(".")
    by_leaf: dict[str, list[str]] = {}
    for one in known:
        by_leaf.setdefault(one.rpartition(".")[2], []).append(one)
    meant = by_leaf.get(leaf) or [one for one in _KNOWN_AS.get(leaf, ()) if one in known or one.startswith("hydra.")]
    in_section = [one.rpartition(".")[2] for one in known if section and one.rpartition(".")[0] == section]
    for leaves in (in_section, list(by_leaf)):
        close = [] if meant else difflib.get_close_matches(leaf, leaves, n=1, cutoff=0.7)
        meant = meant or sorted(by_leaf[close[0]] if close else [], key=lambda one: one.rpartition(".")[0] != section)
    return f" Did you mean {meant[0]}?" if meant else ""
