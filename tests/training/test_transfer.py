"""A run that starts from another run's weights takes the right ones, and checks what must be the same."""

import logging

import pytest
import torch

from molgcn.errors import UserError
from molgcn.training.checkpoint_file import load_checkpoint
from molgcn.training.train import train

STILL = {"optimizer": {"name": "sgd", "lr": 1e-12}, "scheduler": {"name": "constant"}, "trainer": {"max_steps": 1}}


@pytest.fixture(scope="module")
def first(small_config, tmp_path_factory):
    """Return a run on logp, and its folder."""
    folder = tmp_path_factory.mktemp("first")
    train(small_config(optimizer={"lr": 0.01}), folder)
    return folder


def weights(folder, name="last"):
    saved = load_checkpoint(folder / "checkpoints" / f"{name}.ckpt")["state_dict"]
    return {key.removeprefix("model."): value for key, value in saved.items() if key.startswith("model.")}


def taken(first, folder):
    """Return the keys of the weights that a run, which hardly changes them, took from the first one."""
    before, after = weights(first, "best"), weights(folder)
    same = {key for key in after if key in before and torch.allclose(after[key], before[key], rtol=0, atol=1e-9)}
    return {key for key in same if "num_batches" not in key and "running" not in key}


@pytest.mark.parametrize(
    ("changes", "head", "said"),
    [
        ({}, True, "weights and the head's 2 are taken"),
        ({"dataset": {"targets": ["tpsa"]}}, False, "the head starts anew: the checkpoint's targets are logp, and this run's are tpsa"),
        ({"dataset": {"targets": ["logp", "tpsa"]}}, False, "the head starts anew: the checkpoint's targets are logp, and"),
        ({"dataset": {"targets": ["tpsa"]}, "ckpt_head": "checkpoint"}, True, "the head's 2 are taken"),
        ({"ckpt_head": "fresh"}, False, "the head starts anew: ckpt_head=fresh"),
        ({"training": {"loss": "mve"}}, False, "the head starts anew: training.loss, or a target's task or transform, is another"),
        ({"training": {"loss": "huber"}}, True, "and the head's 2 are taken"),
        ({"dataset": {"transforms": {"logp": "quantile_normal"}}}, False, "a target's task or transform, is another"),
        ({"model": {"head_channels": [4]}}, False, "the head starts anew: its layers have other widths"),
    ],
)
def test_the_head_is_taken_where_it_predicts_the_same(first, small_config, tmp_path, caplog, changes, head, said):
    caplog.set_level(logging.INFO)
    train(small_config(**{**STILL, **changes}, ckpt_path=str(first)), tmp_path)
    encoder = {key for key in weights(first) if not key.startswith("head.") and "num_batches" not in key and "running" not in key}
    assert taken(first, tmp_path) == encoder | ({"head.weight", "head.bias"} if head else set())
    (line,) = [record.message for record in caplog.records if "the encoder's" in record.message]
    assert said in line


def test_from_numbers_to_classes_of_another_file(first, small_config, tmp_path):
    lines = [f"{'C' * (1 + n % 9)}{'O' if n % 2 else 'N'},{n % 2}" for n in range(80)]
    (tmp_path / "a.csv").write_text("\n".join(["smiles,alcohol", *lines]))
    data = {"name": "csv", "path": str(tmp_path / "a.csv"), "targets": ["alcohol"], "subset": None, "cache_dir": str(tmp_path / "cache")}
    result = train(small_config(dataset=data, ckpt_path=str(first), optimizer={"lr": 0.01}), tmp_path / "run")
    assert result.task == "classification"
    assert result.metrics["test/roc_auc/alcohol"] > 0.9


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"dataset": {"features": "qm9"}}, r"was trained with dataset\.features=zinc, and this run has qm9.*Give dataset\.features=zinc"),
        ({"model": {"hidden_channels": 16}}, r"another architecture: .*Give model\.hidden_channels=8\.$"),
        ({"model": {"name": "gat", "heads": 2}}, r"another architecture: .*Give model=gcn\.$"),
        ({"model": {"num_layers": 3}, "dataset": {"targets": ["tpsa"]}}, r"another architecture: .*Give model\.num_layers=2"),
        (
            {"model": {"encodings": {"rwse": 3, "rwse_dim": 2}, "embed": True}},
            r"another architecture: .*Give model\.embed=False model\.encodings\.rwse=0",
        ),
        ({"model": {"head_channels": [4]}, "ckpt_head": "checkpoint"}, r"another architecture: head\..* Give model\.head_channels=null"),
    ],
)
def test_what_must_be_the_same(first, small_config, tmp_path, changes, message):
    with pytest.raises(UserError, match=message):
        train(small_config(**changes, ckpt_path=str(first)), tmp_path)
