"""Frozen weights stay as they are, bit for bit, and the head has a learning rate of its own."""

from dataclasses import replace
from itertools import pairwise

import pytest
import torch
from lightning import Callback
from run_cases import assert_same_run, train_and_copy

from molgcn.errors import UserError
from molgcn.training.checkpoint_file import load_checkpoint
from molgcn.training.module import MoleculeModule
from molgcn.training.train import train

GCN = {"norm": "batch", "num_layers": 3}  # whose last layer has no norm
EDGES = {"name": "gated_gcn", "norm": "batch", "bonds": True, "embed": True, "embed_bonds": True, "num_layers": 3}
WALKS = {"name": "gin", "embed": True, "encodings": {"rwse": 4, "rwse_dim": 4}, "feed_forward": True, "mlp_norm": True}
NETWORKS = {"gcn": GCN, "edges": EDGES, "walks": WALKS, "plain": {"norm": None}, "dropout": {"dropout": 0.2}}
FEATURES = {"features": "general", "targets": ["logp"]}


@pytest.fixture(scope="module")
def first(small_config, tmp_path_factory):
    """Return a function that gives the run of a network by its name, trained on first use."""
    folders = {}

    def run(name):
        if name not in folders:
            folders[name] = tmp_path_factory.mktemp(name)
            train(small_config(dataset=FEATURES, model=NETWORKS[name], backend={"name": "auto"}, trainer={"max_epochs": 1}), folders[name])
        return folders[name]

    return run


def weights(folder, name, prefix="model."):
    saved = load_checkpoint(folder / "checkpoints" / f"{name}.ckpt")["state_dict"]
    return {key.removeprefix(prefix): value for key, value in saved.items() if key.startswith(prefix)}


def is_frozen(key, freeze):
    part, _, rest = key.partition(".")
    if freeze == "encoder":
        return part != "head"
    if part in ("embed", "bond_embed", "rwse_encoder", "bond_rw_encoder"):
        return True
    return part in ("convs", "norms", "edge_norms", "feed_forwards") and int(rest.split(".")[0]) < freeze


@pytest.mark.parametrize("name", ["gcn", "edges", *(pytest.param(name, marks=pytest.mark.slow) for name in ("walks", "plain", "dropout"))])
@pytest.mark.parametrize("freeze", ["encoder", 1])
@pytest.mark.parametrize(
    "training",
    [pytest.param({}, marks=pytest.mark.slow), {"ema_decay": 0.9, "accumulate_batches": 2, "gradient_clip_norm": 0.1}],
    ids=["", "averaged"],
)
def test_frozen_weights_and_statistics_stay_bit_for_bit(first, small_config, tmp_path, name, freeze, training):
    config = small_config(
        dataset={**FEATURES, "targets": ["tpsa"]},
        model=NETWORKS[name],
        backend={"name": "auto"},
        ckpt_path=str(first(name)),
        optimizer={"name": "adamw", "lr": 0.01, "weight_decay": 0.1},
        training={**training, "freeze": freeze},
    )
    train(config, tmp_path)
    before = weights(first(name), "best")
    for prefix in ("model.", *(["ema.module."] if training else [])):
        after = weights(tmp_path, "last", prefix)
        same = {key for key, value in after.items() if torch.equal(value, before[key])}
        frozen = {key for key in after if is_frozen(key, freeze)}
        assert frozen <= same
        assert frozen
        learns = {key for key in after if not is_frozen(key, freeze) and key.endswith("weight") and not key.startswith("edge_norms")}
        assert not learns & same


@pytest.mark.parametrize("freeze", ["encoder", 1, 2])
def test_backends_train_what_is_left_alike(first, small_config, tmp_path, caplog, freeze):
    """The backend is fused if all batch norms are frozen, otherwise reference, which a line reports."""
    caplog.set_level("INFO")
    options = {"optimizer": {"name": "sgd", "lr": 0.01}, "training": {"freeze": freeze}, "ckpt_path": str(first("gcn")), "model": GCN}
    for backend in ("auto", "reference"):
        train(small_config(**options, dataset=FEATURES, backend={"name": backend}), tmp_path / backend)
    assert ("backend=auto takes reference" in caplog.text) == (freeze == 1)
    one, other = (weights(tmp_path / backend, "last") for backend in ("auto", "reference"))
    for key, value in one.items():
        torch.testing.assert_close(value, other[key], rtol=1e-4, atol=1e-5, msg=key)


STAGED = {"freeze": "encoder", "freeze_head": 1, "unfreeze": {1: "head", 2: 2, 3: "all"}}
DEEP = {**GCN, "head_layers": 1}


class Keeps(Callback):
    """Keeps the weights after each epoch, those of the network and of its moving average."""

    def on_train_start(self, trainer, pl_module):
        self.weights = [{key: value.clone() for key, value in pl_module.state_dict().items()}]

    def on_train_epoch_end(self, trainer, pl_module):
        self.weights.append({key: value.clone() for key, value in pl_module.state_dict().items()})


@pytest.fixture(scope="module")
def staged(small_config, tmp_path_factory):
    """Return a function that makes the configuration of a staged training, which starts from one of the same network."""
    start = tmp_path_factory.mktemp("start")
    train(small_config(dataset=FEATURES, model=DEEP, trainer={"max_epochs": 1}), start)

    def make(epochs=4, training=STAGED, backend="auto", **changes):
        options = {"scheduler": {"name": "constant"}, "optimizer": {"lr": 0.01, "head_lr": 0.005}, "ckpt_path": str(start), **changes}
        return small_config(
            dataset=FEATURES, model=DEEP, backend={"name": backend}, training=training, trainer={"max_epochs": epochs}, **options
        )

    return make


@pytest.mark.parametrize("training", [{}, {"ema_decay": 0.9, "gradient_clip_norm": 0.1}], ids=["", "averaged"])
@pytest.mark.parametrize("backend", ["auto", pytest.param("pyg", marks=pytest.mark.slow)])
def test_what_learns_in_each_stage(staged, tmp_path, caplog, training, backend):
    caplog.set_level("INFO", "molgcn")
    keeps = Keeps()
    train(staged(training={**STAGED, **training}, backend=backend), tmp_path, [keeps])

    def first(key):
        return key.startswith("head.0.") or is_frozen(key, "encoder")

    frozen = [first, lambda key: is_frozen(key, "encoder"), lambda key: is_frozen(key, 2), lambda key: False]
    for stage, (before, after) in enumerate(pairwise(keeps.weights)):
        for prefix in ("model.", *(["ema.module."] if training else [])):
            for key in (key.removeprefix(prefix) for key in after if key.startswith(prefix)):
                same = torch.equal(before[prefix + key], after[prefix + key])
                assert same or not frozen[stage](key), (stage, key)
                assert not same or frozen[stage](key) or not key.endswith("weight"), (stage, key)
    for line in (
        "From epoch 2 on the whole head learns",
        "From epoch 3 on all but the first 2 layers learn",
        "From epoch 4 on all weights",
    ):
        assert line in caplog.text


def test_a_staged_run_is_resumed_bit_for_bit(staged, tmp_path):
    """From a moment within an epoch of each stage."""
    config = staged(training={**STAGED, "checkpoint_seconds": 0})
    _, copies = train_and_copy(config, tmp_path / "whole")
    for copy in copies[len(copies) // 8 :: len(copies) // 4]:
        train(replace(config, resume=str(copy)), copy)
        assert_same_run(tmp_path / "whole", copy)


@pytest.mark.parametrize(
    ("training", "message"),
    [
        ({"unfreeze": {5: "all"}}, r"training\.unfreeze=.*lets more learn than training\.freeze"),
        ({"freeze": 2, "unfreeze": {5: "head"}}, "lets more learn"),
        ({"freeze": "encoder", "unfreeze": {5: 1, 9: 2}}, "lets more learn"),
        ({"freeze": "encoder", "unfreeze": {0: "all"}}, "epochs and layers of at least 1"),
        ({"freeze": "encoder", "unfreeze": {5: "tail"}}, r"training\.unfreeze=.*not valid"),
        ({"freeze": 2, "freeze_head": 1}, r"training\.freeze_head=1 is not valid.*training\.freeze=encoder"),
    ],
)
def test_stages_that_mean_nothing(small_config, training, message):
    with pytest.raises(UserError, match=message):
        small_config(training=training)


def test_a_head_that_cannot_be_frozen(staged, tmp_path):
    with pytest.raises(UserError, match=r"training\.freeze_head=2 leaves nothing to learn: the head has 2 layers"):
        train(staged(training={"freeze": "encoder", "freeze_head": 2}), tmp_path / "all")
    with pytest.raises(UserError, match=r"training\.freeze_head=1 would keep untrained weights.*ckpt_head=checkpoint"):
        train(staged(ckpt_head="fresh"), tmp_path / "fresh")


@pytest.mark.parametrize(("freeze", "head_lr"), [pytest.param("encoder", None, marks=pytest.mark.slow), (1, 0.003)])
def test_a_resumed_run_is_the_same(first, small_config, tmp_path, freeze, head_lr):
    def config(epochs, freeze=freeze, **changes):
        options = {"optimizer": {"lr": 0.01, "head_lr": head_lr}, "scheduler": {"name": "constant"}, "training": {"freeze": freeze}}
        return small_config(**options, **changes, dataset=FEATURES, model=GCN, ckpt_path=str(first("gcn")), trainer={"max_epochs": epochs})

    train(config(3), tmp_path / "whole")
    train(config(1), tmp_path / "parts")
    train(config(3, resume=str(tmp_path / "parts")), tmp_path / "parts")
    assert_same_run(tmp_path / "whole", tmp_path / "parts")
    with pytest.raises(UserError, match=r"training\.freeze=.*cannot become 2"):
        train(config(3, freeze=2, resume=str(tmp_path / "parts")), tmp_path / "parts")


@pytest.mark.parametrize("backend", ["fused", "pyg"])
@pytest.mark.parametrize("scheduler", ["warmup", "onecycle"])
def test_the_head_steps_by_its_own_rate(first, small_config, tmp_path, backend, scheduler):
    """A step of plain gradient descent is proportional to the rate, which is ten times as large for the head."""
    shape = {"name": "constant", "warmup_epochs": 2} if scheduler == "warmup" else {"name": scheduler}
    steps = {}
    for head_lr in (None, 1e-3):
        optimizer = {"name": "sgd", "lr": 1e-4, "head_lr": head_lr}
        options = {"optimizer": optimizer, "scheduler": shape, "trainer": {"max_steps": 1}, "training": {"monitor": "val/loss"}}
        train(
            small_config(**options, ckpt_path=str(first("gcn")), dataset=FEATURES, model=GCN, backend={"name": backend}),
            tmp_path / str(head_lr),
        )
        before, after = weights(first("gcn"), "best"), weights(tmp_path / str(head_lr), "last")
        steps[head_lr] = {key: after[key].double() - before[key].double() for key in after if key.endswith(("weight", "bias"))}
    for key, step in steps[1e-3].items():
        expected = steps[None][key] * (10 if key.startswith("head.") else 1)
        torch.testing.assert_close(step, expected, rtol=2e-2, atol=2e-7, msg=key)


def test_a_plateau_keeps_the_ratio_of_the_rates(small_config, tmp_path):
    schedule = {"name": "plateau", "patience": 0, "factor": 0.1, "min_lr": 1e-4}
    train(small_config(optimizer={"lr": 1e-3, "head_lr": 1e-2}, scheduler=schedule, trainer={"max_epochs": 1}), tmp_path)
    (saved,) = load_checkpoint(tmp_path / "checkpoints" / "last.ckpt")["lr_schedulers"]
    assert saved["min_lrs"] == pytest.approx([1e-4, 1e-3])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"ckpt_path": None}, r"training\.freeze=1 without ckpt_path= would keep untrained weights"),
        ({"training": {"freeze": 3}}, r"training\.freeze=3 is more than the 2 layers"),
        (
            {"model": {"name": "dmpnn", "bonds": True, "residual": False, "norm": None}},
            r"does not go with model=dmpnn.*training\.freeze=encoder",
        ),
        ({"backend": {"name": "fused"}, "model": {"num_layers": 3}}, r"evaluation mode, which backend=fused cannot.*backend=reference"),
        ({"backend": {"name": "fused"}, "model": {"dropout": 0.1}}, r"evaluation mode, which backend=fused cannot"),
        ({"backend": {"name": "fused"}, "model": {"norm": None, "feed_forward": True}}, r"evaluation mode, which backend=fused cannot"),
        ({"backend": {"name": "fused"}, "model": {"name": "gin", "norm": None, "mlp_norm": True}}, r"which backend=fused cannot"),
    ],
)
def test_what_cannot_be_frozen(small_config, tmp_path, changes, message):
    options = {"ckpt_path": str(tmp_path / "none.ckpt"), "training": {"freeze": 1}, **changes}
    with pytest.raises(UserError, match=message):
        train(small_config(**options), tmp_path)


@pytest.mark.parametrize("value", [0, -1, "decoder"])
def test_values_that_mean_nothing(small_config, value):
    with pytest.raises(UserError, match=r"training\.freeze="):
        small_config(training={"freeze": value})
    with pytest.raises(UserError, match=r"optimizer\.head_lr="):
        small_config(optimizer={"head_lr": value})


def test_modes_set_by_hand_leave_frozen_norms_as_they_are(first):
    """Users' own training loops set modes like this."""
    from molgcn.training.restore import load_module

    loaded = load_module(first("gcn"))
    config = replace(loaded.config, training=replace(loaded.config.training, freeze="encoder"))
    module = MoleculeModule(config, loaded.architecture["in_channels"], loaded.task, dict(loaded.named_buffers(recurse=False)), "general")
    for _ in range(2):
        assert module.training
        assert not any(norm.training for norm in module.model.norms)
        assert {name for name, value in module.model.named_parameters() if value.requires_grad} == {"head.weight", "head.bias"}
        module.eval().train()
