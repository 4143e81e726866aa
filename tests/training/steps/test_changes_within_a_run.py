"""Prepared steps notice changes and hooks within a run, and then do what plain steps do, on a CPU and on a GPU."""

from __future__ import annotations

import copy
import io
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import torch
import torch.nn.utils.prune
from compiler import needs_extension
from lightning import Callback
from lightning.pytorch.callbacks import LambdaCallback
from run_cases import log_of
from test_captured import DEEP, count_steps
from torch import Tensor, nn

from molgcn.nn import GCN
from molgcn.training.module import MoleculeModule
from molgcn.training.steps.captured import CapturedForward, CapturedStep
from molgcn.training.train import train


class Way(NamedTuple):
    """A device's prepared steps, with its configurations and whether each step was prepared."""

    config: Callable[..., Any]
    taken: list[bool]


@pytest.fixture(params=[pytest.param("cpu", marks=needs_extension), pytest.param("gpu", marks=pytest.mark.gpu)])
def way(request: pytest.FixtureRequest, small_config: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> Way:
    def config(captured: Any = "auto", **changes: Any) -> Any:
        values = {"backend": {"name": "fused"}, **changes}
        values["training"] = {"captured": captured, **changes.get("training", {})}
        values["trainer"] = {"accelerator": request.param, "deterministic": True, "max_epochs": 2, **changes.get("trainer", {})}
        values["model"] = {**(DEEP if request.param == "gpu" else {}), **changes.get("model", {})}
        return small_config(**values)

    if request.param == "gpu":
        return Way(config, count_steps(monkeypatch, CapturedStep))
    from molgcn.training.steps.direct import DirectStep  # this import needs the extension

    return Way(config, count_steps(monkeypatch, DirectStep))


def load_fresh_state(trainer: Any, module: Any) -> None:
    state = copy.deepcopy(trainer.optimizers[0].state_dict())
    for moments in state["state"].values():
        moments["exp_avg"].zero_()
    trainer.optimizers[0].load_state_dict(state)


def set_momentum(module: Any, momentum: float | None) -> None:
    for norm in module.model.norms:
        norm.momentum = momentum


def set_decay(trainer: Any, module: Any) -> None:
    trainer.optimizers[0].param_groups[0]["weight_decay"] = 0.1


def put_weights_elsewhere(trainer: Any, module: Any) -> None:
    """Replace the weights' tensors, as scripts do that average or perturb weights."""
    parameters = list(module.model.parameters())
    nn.utils.vector_to_parameters(0.5 * nn.utils.parameters_to_vector(parameters), parameters)
    for buffer in module.model.buffers():
        buffer.data = buffer.data.clone()


CHANGES: dict[str, Callable[[Any, Any], Any]] = {
    "frozen": lambda trainer, module: module.model.convs[0].lin.weight.requires_grad_(False),
    "evaluation mode": lambda trainer, module: module.model.eval(),
    "pruned": lambda trainer, module: nn.utils.prune.l1_unstructured(module.model.convs[1].lin, "weight", 0.5),
    "parametrised": lambda trainer, module: nn.utils.parametrizations.weight_norm(module.model.convs[1].lin),
    "weights elsewhere": put_weights_elsewhere,
    "optimiser state": load_fresh_state,
    "optimiser hook": lambda trainer, module: trainer.optimizers[0].register_step_post_hook(lambda *_: None),
    "weight decay": set_decay,
    "pool": lambda trainer, module: setattr(module.model, "pool", "sum"),
    "momentum": lambda trainer, module: set_momentum(module, 0.9),
    "means over batches": lambda trainer, module: set_momentum(module, None),
    "loss": lambda trainer, module: setattr(module.loss, "options", ("mse", 1.0)),
    "target_mean": lambda trainer, module: setattr(module, "target_mean", module.target_mean + 5),
}


@pytest.mark.parametrize("name", CHANGES)
def test_changes_within_a_run_are_taken(name, tmp_path, way):
    ends: list[dict[str, Tensor]] = []
    other = {"limit_val_batches": 0} if name in ("pruned", "parametrised") else {}  # the best weights may be those of the layers before

    def change(trainer: Any, module: Any) -> None:
        if trainer.current_epoch == 1:
            CHANGES[name](trainer, module)

    def keep(trainer: Any, module: Any) -> None:
        ends.append({key: value.cpu().clone() for key, value in module.state_dict().items()})

    for captured in (False, "auto"):
        callback = LambdaCallback(on_train_epoch_start=change, on_train_end=keep)
        train(way.config(captured, model={"norm": "batch"}, trainer=other), tmp_path / str(captured), [callback])
    assert any(way.taken)
    assert log_of(tmp_path / "auto") == log_of(tmp_path / "False")
    one, other = ends
    assert one.keys() == other.keys()
    assert [key for key in one if not torch.equal(one[key], other[key])] == []


class Freeze(Callback):
    """A callback that freezes a layer in the second epoch only, and keeps its weights at the ends of epochs."""

    def __init__(self) -> None:
        self.weights: list[Tensor] = []

    def on_train_epoch_start(self, trainer: Any, pl_module: Any) -> None:
        pl_module.model.convs[0].lin.weight.requires_grad_(trainer.current_epoch != 1)

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        self.weights.append(pl_module.model.convs[0].lin.weight.detach().cpu().clone())


@pytest.mark.parametrize("accumulate_batches", [1, 3])
def test_what_is_frozen_stands_still(accumulate_batches, tmp_path, way):
    runs = []
    options = {"trainer": {"max_epochs": 3}, "optimizer": {"name": "adamw", "weight_decay": 0.1}}
    for captured in (False, "auto"):
        runs.append(Freeze())
        training = {"accumulate_batches": accumulate_batches}
        train(way.config(captured, training=training, **options), tmp_path / str(captured), [runs[-1]])
    for one, other in zip(runs[0].weights, runs[1].weights, strict=True):
        assert torch.equal(one, other)
    first, second, third = runs[1].weights
    assert torch.equal(first, second) and not torch.equal(second, third)


def double_features(batch: Any) -> None:
    batch.x = 2 * batch.x


def shift_targets(batch: Any) -> None:
    batch.targets.sub_(0.5)


@pytest.mark.parametrize("change", [double_features, shift_targets])
def test_batches_that_a_callback_changes(change, tmp_path, way):
    def every_third(trainer: Any, module: Any, batch: Any, batch_idx: int) -> None:
        if batch_idx % 3 == 2:
            change(batch)

    for captured in (False, "auto"):
        train(way.config(captured), tmp_path / str(captured), [LambdaCallback(on_train_batch_start=every_third)])
    train(way.config(), tmp_path / "unchanged")
    assert any(way.taken)
    assert log_of(tmp_path / "auto") == log_of(tmp_path / "False") != log_of(tmp_path / "unchanged")


@pytest.mark.gpu
@pytest.mark.parametrize("way", ["gpu"], indirect=True)
@pytest.mark.parametrize("place", [3, 4, 5])
def test_a_change_between_batches_whose_gradients_add_up(place, tmp_path, way):
    ends: list[Tensor] = []

    def change(trainer: Any, module: Any, batch: Any, batch_idx: int) -> None:
        if trainer.current_epoch == 1 and batch_idx == place:
            module.model.convs[1].lin.weight.requires_grad_(False)

    for captured in (False, "auto"):
        keep = LambdaCallback(
            on_train_batch_start=change,
            on_train_end=lambda trainer, module: ends.append(nn.utils.parameters_to_vector(module.model.parameters()).detach().cpu()),
        )
        train(way.config(captured, training={"accumulate_batches": 3}), tmp_path / str(captured), [keep])
    assert any(way.taken) and not all(way.taken[1:])
    assert torch.equal(*ends)


class Listener(Callback):
    """A callback that counts its calls within steps."""

    heard = 0

    def on_before_optimizer_step(self, *args: Any) -> None:
        self.heard += 1


def test_callbacks_within_a_step_are_called(tmp_path, way):
    listener, heard = Listener(), []
    once = way.config(trainer={"max_epochs": 1})
    train(once, tmp_path / "class", [listener])
    train(once, tmp_path / "instance", [LambdaCallback(on_after_backward=lambda *_: heard.append(0))])
    assert way.taken == [] and listener.heard == len(heard) > 5


class Subclass(MoleculeModule):
    """A module with its own hook."""

    def on_before_optimizer_step(self, optimizer: Any) -> None:
        self.heard = getattr(self, "heard", 0) + 1


def test_a_module_of_ones_own(tmp_path, way):
    heard: list[int] = []
    own = LambdaCallback(
        on_fit_start=lambda trainer, module: setattr(module, "__class__", Subclass),
        on_fit_end=lambda trainer, module: heard.append(module.heard),
    )
    train(way.config(trainer={"max_epochs": 1}), tmp_path, [own])
    assert way.taken == [] and heard[0] > 5


def test_hooks_of_weights_are_heard(tmp_path, way):
    heard: list[Tensor] = []
    hook = LambdaCallback(on_train_start=lambda trainer, module: module.model.convs[0].bias.register_hook(heard.append))
    train(way.config(trainer={"max_epochs": 1}), tmp_path, [hook])
    assert not any(way.taken) and len(heard) == len(way.taken) > 5


class Listen(Callback):
    """A callback that counts the passes through the network and its head in the second epoch."""

    def __init__(self) -> None:
        self.heard, self.handles = 0, []

    def on_train_epoch_start(self, trainer: Any, pl_module: Any) -> None:
        parts = (pl_module.model, pl_module.model.head) if trainer.current_epoch == 1 else ()
        self.handles += [part.register_forward_hook(self.count) for part in parts]

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        for handle in self.handles:
            handle.remove()

    def count(self, module: Any, *_: Any) -> None:
        self.heard += 1


def test_hooks_of_modules_are_heard_until_they_are_removed(tmp_path, way):
    counts = []
    for captured in (False, "auto"):
        listener = Listen()
        train(way.config(captured, trainer={"max_epochs": 3}), tmp_path / str(captured), [listener])
        counts.append(listener.heard)
    assert counts[0] == counts[1] > 5
    epoch = len(way.taken) // 3
    assert not any(way.taken[epoch : 2 * epoch]) and all(way.taken[2 * epoch + 1 :])


class Copy(Callback):
    """A callback that copies and saves the module at the end of an epoch."""

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        assert pl_module.steps.prepared is not None
        self.copy = copy.deepcopy(pl_module)
        torch.save(pl_module, io.BytesIO())


def test_a_module_can_be_copied_within_a_run(tmp_path, way):
    copies = Copy()
    train(way.config(trainer={"max_epochs": 1}), tmp_path, [copies])
    assert any(way.taken)
    assert copies.copy.steps.prepared is None


@pytest.mark.gpu
def test_a_captured_forward_sees_what_changes():
    from molgcn.data import PackedMolecules
    from molgcn.data.fitting_slots import FittingSlots

    molecules = PackedMolecules.from_smiles(["CCO", "c1ccccc1"], num_workers=0)
    batch = FittingSlots(torch.device("cuda", 0))(molecules.batch([0, 1])).slot.padded
    model = GCN(11, 32, 4, 1, backend="fused").cuda().eval()
    forward = CapturedForward(model)
    with torch.no_grad():
        for change in (lambda: None, lambda: put_weights_elsewhere(None, Holder(model)), lambda: setattr(model, "pool", "max")):
            change()
            for _ in range(3):
                torch.testing.assert_close(forward(batch), model(batch), rtol=1e-6, atol=1e-7)
        heard: list[Any] = []
        model.register_forward_hook(lambda *_: heard.append(0))
        forward(batch)
    assert len(heard) == 1


class Holder(NamedTuple):
    model: GCN
