"""Captured steps in a loop of one's own learn what a plain loop learns, from batches of any kind."""

from __future__ import annotations

import copy
import pickle
import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
from loop_cases import (
    PlainLoop,
    assert_same_losses,
    assert_same_weights,
    batches_of,
    mean_square,
    molecules,
    network,
    squares,
    twins,
)
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim.lr_scheduler import ExponentialLR, OneCycleLR

import molgcn
from molgcn.data.loader import PackedLoader
from molgcn.errors import UserError
from molgcn.training import ClippedAdam, ExponentialMovingAverage

PACKED = molecules()


def adam(model: nn.Module, **options: Any) -> torch.optim.Optimizer:
    return torch.optim.Adam(model.parameters(), fused=True, **{"lr": 3e-3, "eps": 1e-2, **options})


def compare(
    device: str,
    batches: list[Any],
    loss: Any = "mse",
    plain: Callable[[Tensor, Tensor], Tensor] = mean_square,
    make: Callable[..., torch.optim.Optimizer] = adam,
    every: int = 1,
    between: Callable[[nn.Module, torch.optim.Optimizer, int], Any] = lambda *_: None,
    model: dict[str, Any] | None = None,
    **options: Any,
) -> tuple[nn.Module, Any]:
    """Train twins for two epochs by captured and by plain steps, assert that they learn the same, and return the first and its step."""
    mine, theirs = twins(PACKED, device, **(model or {}))
    ours, other = make(mine), make(theirs)
    step = molgcn.capture(mine, ours, loss=loss, accumulate_batches=every, **options)
    reference = PlainLoop(theirs, other, plain, options.get("gradient_clip_norm"), every)
    losses: tuple[list[Tensor], list[Tensor]] = ([], [])
    for number, batch in enumerate(batches * 2):
        between(mine, ours, number)
        between(theirs, other, number)
        losses[0].append(step(batch))
        losses[1].append(reference(batch))
    assert_same_losses(*losses)
    assert_same_weights(mine, theirs)
    return mine, step


LOSSES = {"name": ("mse", mean_square), "one number": (F.l1_loss, F.l1_loss), "a term per molecule": (squares, squares)}


@pytest.mark.parametrize("kind", ["pyg", "cpu", "device"])
@pytest.mark.parametrize("loss", LOSSES)
def test_batches_of_any_kind_and_loss(device, kind, loss, replays):
    given, plain = LOSSES[loss]
    compare(device, batches_of(PACKED, kind, device), given, plain)
    forms = {form for form, _, _ in replays}
    assert len(replays) >= 5
    assert len(forms) == (2 if loss == "one number" else 1)  # the numbers of molecules are 8 and 5


def test_a_loaders_batches_are_not_copied(device, replays):
    loader = PackedLoader(PACKED, 8, device=device)
    mine, theirs = twins(PACKED, device)
    step = molgcn.capture(mine, adam(mine), loss="mse", batches=loader)
    reference, losses, forms = PlainLoop(theirs, adam(theirs), mean_square), ([], []), set()
    for epoch in range(3):
        loader.set_epoch(epoch)
        for batch in loader:
            forms.add(batch.padded)
            losses[1].append(reference(batch.clone()))
            losses[0].append(step(batch))
    assert_same_losses(*losses)
    assert len(replays) >= 3 * len(loader) - 3
    assert {form for form, _, _ in replays} == forms


def test_a_loaders_batch_that_was_changed_is_taken_as_it_is(device, replays):
    loader = PackedLoader(PACKED, 8, device=device, drop_last=True)
    mine, theirs = twins(PACKED, device)
    step = molgcn.capture(mine, adam(mine), loss="mse", batches=loader)
    reference, losses = PlainLoop(theirs, adam(theirs), mean_square), ([], [])
    for epoch in range(4):
        loader.set_epoch(epoch)
        for batch in loader:
            if epoch == 1:
                batch.x = 2 * batch.x
            elif epoch == 2:
                batch.targets.sub_(0.5)
            elif epoch == 3:
                batch.targets = batch.targets + 1
            losses[1].append(reference(batch.clone()))
            losses[0].append(step(batch))
    assert_same_losses(*losses)
    assert len(replays) >= 8


OPTIONS: dict[str, dict[str, Any]] = {
    "clipping": {"gradient_clip_norm": 0.05},
    "accumulation": {"every": 2},
    "all of them": {"every": 3, "gradient_clip_norm": 0.05},
    "dropout-free layer norm": {"model": {"norm": "layer"}},
    "gcn": {"model": {"conv": "gcn", "norm": None}},
    "sgd": {"make": lambda model: torch.optim.SGD(model.parameters(), 3e-3, momentum=0.9, nesterov=True, fused=True)},
    "adamw": {"make": lambda model: torch.optim.AdamW(model.parameters(), 3e-3, eps=1e-2, weight_decay=0.1, fused=True)},
    "our update": {"make": lambda model: ClippedAdam(model.parameters(), 0.1, decoupled_weight_decay=True, lr=3e-3, eps=1e-2)},
    "groups": {"make": lambda model: adam_of_groups(model)},
}


def adam_of_groups(model: Any) -> torch.optim.Optimizer:
    head = list(model.head.parameters())
    rest = [parameter for parameter in model.parameters() if all(parameter is not one for one in head)]
    return torch.optim.Adam([{"params": head, "lr": 3e-3}, {"params": rest}], lr=3e-3, eps=1e-2, fused=True)


@pytest.mark.parametrize("name", OPTIONS)
def test_options(device, name, replays):
    compare(device, batches_of(PACKED, "cpu", device, [8] * 6), **OPTIONS[name])
    assert len(replays) >= 8


CAPTURABLE = ["Adadelta", "Adam", "AdamW", "Adamax", "ASGD", "NAdam", "RAdam", "RMSprop", "Rprop"]


@pytest.mark.gpu
@pytest.mark.parametrize("name", CAPTURABLE)
@pytest.mark.parametrize("tensor", [False, True], ids=["number", "tensor"])
@pytest.mark.parametrize("device", ["cuda"], indirect=True)
def test_every_capturable_optimiser(device, name, tensor, replays, caplog):
    """Most read the learning rate on the device; the others are captured anew where it changes."""
    losses: list[list[Tensor]] = [[], []]
    for model, found in zip(twins(PACKED, device, conv="gcn", norm=None), losses, strict=True):
        rate: Any = torch.tensor(1e-3, device=device) if tensor else 1e-3
        optimizer = getattr(torch.optim, name)(model.parameters(), lr=rate, capturable=True)
        loop = PlainLoop(model, optimizer, mean_square) if losses[0] else molgcn.capture(model, optimizer, loss="mse")
        for number, batch in enumerate(batches_of(PACKED, "cpu", device, [8] * 6) * 2):
            if number == 6:
                group = optimizer.param_groups[0]
                group["lr"] = group["lr"].mul_(0.5) if tensor else 0.5 * group["lr"]
            found.append(loop(batch))
    assert_same_losses(*losses, rtol=1e-2)  # those that divide by small gradients enlarge roundings
    said = f"{name} reads its learning rate on the host" in caplog.text
    assert said == (len(replays) == 0)
    assert len(replays) >= 6 or (said and tensor)
    if name in ("Adam", "AdamW", "NAdam"):
        assert len(replays) >= 9  # a new rate is read by the same graph


def test_an_average_follows(device):
    mine, theirs = twins(PACKED, device)
    averages = [ExponentialMovingAverage(model, 0.8) for model in (mine, theirs)]
    step = molgcn.capture(mine, adam(mine), loss="mse", ema=averages[0])
    reference = PlainLoop(theirs, adam(theirs), mean_square)
    for batch in batches_of(PACKED, "cpu", device, [8] * 6):
        step(batch)
        reference(batch)
        averages[1].update(theirs)
    assert_same_weights(averages[0].module, averages[1].module)


def test_a_sum_of_gradients_may_end_early(device):
    mine, theirs = twins(PACKED, device)
    step, reference = (
        molgcn.capture(mine, adam(mine), loss="mse", accumulate_batches=3),
        PlainLoop(theirs, adam(theirs), mean_square, every=3),
    )
    batches = batches_of(PACKED, "cpu", device, [8] * 5)
    for _ in range(3):
        for number, batch in enumerate(batches):
            step(batch, last=True if number == 4 else None)
            reference(batch)
        reference.optimizer.step()  # after five batches: those after the third
        reference.optimizer.zero_grad()
        reference.count = 0
    assert_same_weights(mine, theirs)


def test_without_an_optimiser_gradients_are_left(device, replays):
    """They are added to what is there, as `backward` adds them."""
    mine, theirs = twins(PACKED, device)
    step = molgcn.capture(mine, loss="mse")
    for number, batch in enumerate(batches_of(PACKED, "cpu", device, [8] * 9)):
        loss = step(batch)
        on_device = batch.to(device)
        expected = mean_square(theirs(on_device), on_device.targets)
        expected.backward()
        assert_same_losses([loss], [expected.detach()])
        one, other = (torch.cat([parameter.grad.flatten() for parameter in model.parameters()]) for model in (mine, theirs))
        assert (one - other).norm() <= 1e-4 * other.norm()
        if number % 3 == 2:
            mine.zero_grad(set_to_none=number % 2 == 0)
            theirs.zero_grad()
    assert len(replays) >= 7


@pytest.mark.parametrize("every", [1, 2])
def test_schedules_are_followed(device, every, replays):
    schedules: dict[int, Any] = {}

    def advance(model: nn.Module, optimizer: torch.optim.Optimizer, number: int) -> None:
        if number == 0:
            schedules[id(optimizer)] = ExponentialLR(optimizer, 0.7)
        elif number % every == 0:
            schedules[id(optimizer)].step()

    compare(device, batches_of(PACKED, "cpu", device, [8] * 6), every=every, between=advance)
    assert len(replays) >= 9 - every


def test_one_cycle_is_followed_by_our_update(device, replays, caplog):
    schedules: dict[int, Any] = {}

    def advance(model: nn.Module, optimizer: torch.optim.Optimizer, number: int) -> None:
        if number == 0:
            schedules[id(optimizer)] = OneCycleLR(optimizer, 1e-2, total_steps=20)
        else:
            schedules[id(optimizer)].step()

    batches = batches_of(PACKED, "cpu", device, [8] * 6)
    ours = {"make": lambda model: ClippedAdam(model.parameters(), None, decoupled_weight_decay=False, lr=3e-3, eps=1e-2)}
    compare(device, batches, between=advance, **ours)
    if device == "cuda":  # the kernels read the momentum there
        assert len(replays) >= 9
    replays.clear()
    compare(device, batches, between=advance)
    assert not replays
    assert "an option of the optimiser changes from step to step; with OneCycleLR give it cycle_momentum=False" in caplog.text


def freeze(model: Any) -> None:
    model.convs[0].requires_grad_(False)


def replace_layer(model: Any) -> None:
    torch.manual_seed(3)
    model.head = nn.Linear(16, 1).to(next(model.parameters()).device)


def replace_parameter(model: Any) -> None:
    model.head.weight = nn.Parameter(model.head.weight.detach() * 2)


def move_data(model: Any) -> None:
    for tensor in (*model.parameters(), *model.buffers()):
        tensor.data = tensor.data.clone()


def convert(model: Any) -> None:
    """Give a network new buffers and perhaps new memory, as it gets when it is moved to a CPU and back."""
    model.double().float()


def tie(model: Any) -> None:
    model.convs[1].nn[0].weight = model.convs[0].nn[0].weight


def load(model: Any) -> None:
    model.load_state_dict({name: value * 0.5 for name, value in model.state_dict().items()})


CHANGES: dict[str, Callable[[Any], Any]] = {
    "frozen": freeze,
    "layer replaced": replace_layer,
    "parameter replaced": replace_parameter,
    "p.data": move_data,
    "converted": convert,
    "tied": tie,
    "weights loaded": load,
    "pool": lambda model: setattr(model, "pool", "sum"),
    "evaluation mode": lambda model: model.eval(),
    "momentum": lambda model: [setattr(norm, "momentum", 0.3) for norm in model.modules() if isinstance(norm, nn.BatchNorm1d)],
}


@pytest.mark.parametrize("name", CHANGES)
def test_changes_of_the_network_are_taken(device, name, replays):
    def change(model: nn.Module, optimizer: torch.optim.Optimizer, number: int) -> None:
        if number == 5:
            replays.append(None)
            CHANGES[name](model)

    compare(device, batches_of(PACKED, "cpu", device, [8] * 5), between=change)
    marks = [place for place, key in enumerate(replays) if key is None]
    assert marks[0] >= 2 and len(replays) - marks[1] > 3  # replayed before and after


def set_decay(optimizer: torch.optim.Optimizer) -> None:
    optimizer.param_groups[0]["weight_decay"] = 0.3


def load_state(optimizer: torch.optim.Optimizer) -> None:
    state = copy.deepcopy(optimizer.state_dict())
    for moments in state["state"].values():
        moments["exp_avg"].zero_()
    optimizer.load_state_dict(state)


@pytest.mark.parametrize("change", [set_decay, load_state])
def test_changes_of_the_optimiser_are_taken(device, change, replays):
    def between(model: nn.Module, optimizer: torch.optim.Optimizer, number: int) -> None:
        if number == 5:
            change(optimizer)

    compare(device, batches_of(PACKED, "cpu", device, [8] * 5), between=between)
    assert len(replays) >= 5


def test_parameters_join_and_leave_the_optimiser(device):
    """As in gradual unfreezing."""

    def make(model: Any) -> torch.optim.Optimizer:
        return torch.optim.Adam(model.head.parameters(), lr=3e-3, eps=1e-2, fused=True)

    def between(model: Any, optimizer: torch.optim.Optimizer, number: int) -> None:
        if number == 5:
            optimizer.add_param_group({"params": list(model.convs[1].parameters()), "lr": 1e-3})

    compare(device, batches_of(PACKED, "cpu", device, [8] * 5), make=make, between=between)


def test_hooks_are_called(device, replays, caplog):
    heard: list[int] = []

    def between(model: nn.Module, optimizer: torch.optim.Optimizer, number: int) -> None:
        if number == 5:
            model.register_forward_hook(lambda *_: heard.append(number))

    compare(device, batches_of(PACKED, "cpu", device, [8] * 5), between=between)
    assert len(heard) == 10  # of both twins
    assert 2 <= len(replays) <= 4
    assert caplog.text.count("there are hooks") == 1


def test_a_larger_batch_is_captured_anew_and_said_once(device, replays, caplog):
    compare(device, batches_of(PACKED, "cpu", device, [4, 4, 4, 12, 12, 28, 4]))
    assert len(replays) >= 4
    assert caplog.text.count("is larger than any before") == 1
    assert caplog.text.count("Not captured") == 0


def test_many_numbers_of_molecules_need_a_term_each(device, replays, caplog):
    batches = batches_of(PACKED, "cpu", device, range(3, 15))
    compare(device, batches, F.mse_loss, mean_square)
    assert "let the loss function return one term per molecule" in caplog.text
    assert len({form for form, _, _ in replays}) <= 8
    replays.clear()
    compare(device, batches, squares, mean_square)
    assert len({form for form, _, _ in replays if form is not None}) <= 4 and len(replays) > 12


def test_missing_targets(device, replays):
    packed = molecules(missing=True)
    mine, theirs = twins(packed, device)
    step, reference = molgcn.capture(mine, adam(mine), loss="mse"), PlainLoop(theirs, adam(theirs), mean_square)
    batches = batches_of(packed, "cpu", device, [8] * 5)
    assert_same_losses([step(batch) for batch in batches], [reference(batch) for batch in batches])
    assert len(replays) >= 2


def test_an_index_of_booleans_is_noticed(device, replays, caplog):
    def of_known(predictions: Tensor, targets: Tensor) -> Tensor:
        known = ~targets.isnan()
        return F.mse_loss(predictions[known], targets[known])

    compare(device, batches_of(PACKED, "cpu", device, [8] * 3), of_known)
    assert not replays
    assert caplog.text.count("the loss function reads values of tensors by an index of booleans") == 1


def test_features_that_want_a_gradient(device, replays, caplog):
    mine = network(PACKED, device)
    step = molgcn.capture(mine, adam(mine), loss="mse")
    batches = batches_of(PACKED, "device", device, [8] * 6)
    for batch in batches[:4]:
        step(batch)
    before = len(replays)
    batches[4].x.requires_grad_()
    step(batches[4])
    assert batches[4].x.grad is not None and len(replays) == before
    assert "want a gradient" in caplog.text
    step(batches[5])
    assert len(replays) == before + 1


class NotToday(RuntimeError):
    """An error in a loss."""


def test_an_error_in_the_loss_leaves_the_loop_usable(device):
    """Also while a step is captured."""
    mine, theirs = twins(PACKED, device)
    calls, failures = [], []

    def fails(predictions: Tensor, targets: Tensor) -> Tensor:
        capturing = device == "cuda" and torch.cuda.is_current_stream_capturing()
        calls.append(capturing)
        if len(calls) in (2, 4) or (capturing and sum(calls) == 1):
            failures.append(capturing)
            raise NotToday
        return squares(predictions, targets)

    step, reference = molgcn.capture(mine, adam(mine), loss=fails, accumulate_batches=2), PlainLoop(theirs, adam(theirs), squares, every=2)
    for batch in batches_of(PACKED, "cpu", device, [8] * 12):
        statistics = [buffer.clone() for buffer in mine.buffers()]
        for _ in range(3):
            try:
                step(batch)
                break
            except NotToday:
                for buffer, before in zip(mine.buffers(), statistics, strict=True):
                    buffer.copy_(before)  # the forward pass before the error has counted
        reference(batch)
    assert len(failures) >= 2 and any(failures) == (device == "cuda")
    assert_same_weights(mine, theirs)


def test_two_networks_take_turns_on_one_loader(device, replays):
    loader = PackedLoader(PACKED, 8, device=device)
    pairs = [(*twins(PACKED, device, conv=conv), conv) for conv in ("gine", "gcn")]
    steps = [molgcn.capture(mine, adam(mine), loss="mse") for mine, _, _ in pairs]
    plain = [PlainLoop(theirs, adam(theirs), mean_square) for _, theirs, _ in pairs]
    for epoch in range(2):
        loader.set_epoch(epoch)
        for batch in loader:
            kept = batch.clone()
            for step, reference in zip(steps, plain, strict=True):
                assert_same_losses([step(batch), step(batch)], [reference(kept), reference(kept)])
    assert len(replays) > 4


def test_two_threads(device):
    twins_of = [twins(PACKED, device, conv=conv, dropout=0.0) for conv in ("gine", "gcn")]
    batches = batches_of(PACKED, "cpu", device, [8] * 5) * 4
    losses: list[list[Tensor]] = [[], []]

    def train(number: int) -> None:
        mine = twins_of[number][0]
        step = molgcn.capture(mine, adam(mine), loss="mse")
        losses[number] += [step(batch) for batch in batches]

    threads = [threading.Thread(target=train, args=[number]) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for (mine, theirs), found in zip(twins_of, losses, strict=True):
        reference = PlainLoop(theirs, adam(theirs), mean_square)
        assert_same_losses(found, [reference(batch) for batch in batches])
        assert_same_weights(mine, theirs)


def test_the_network_can_be_copied_and_saved_and_the_step_cannot(device):
    mine = network(PACKED, device)
    step = molgcn.capture(mine, adam(mine), loss="mse", accumulate_batches=2)
    for batch in batches_of(PACKED, "cpu", device, [8] * 5):
        step(batch)
    for other in (copy.deepcopy(mine), pickle.loads(pickle.dumps(mine))):
        assert_same_weights(mine, other, 0, 0)
    for call in (copy.deepcopy, pickle.dumps):
        with pytest.raises(UserError, match=r"cannot be copied or saved.*call molgcn\.capture for the copy"):
            call(step)


@pytest.mark.gpu
@pytest.mark.parametrize("device", ["cuda"], indirect=True)
def test_within_another_capture(device):
    mine = network(PACKED, device)
    step, forward = molgcn.capture(mine, adam(mine), loss="mse"), molgcn.capture(mine)
    batch = batches_of(PACKED, "device", device, [8])[0]
    for _ in range(3):
        step(batch), forward(batch)
    for call in (step, forward):
        with pytest.raises(UserError, match="cannot be called while another one is captured"), torch.cuda.graph(torch.cuda.CUDAGraph()):
            call(batch)
    step(batch), forward(batch)
    torch.cuda.synchronize()


@pytest.mark.gpu
@pytest.mark.parametrize("device", ["cuda"], indirect=True)
@pytest.mark.parametrize("long", [True, False], ids=["around the loop", "around each step"])
def test_autocast(device, long, replays):
    mine, theirs = twins(PACKED, device, backend="reference")
    step, reference = molgcn.capture(mine, adam(mine), loss=squares), PlainLoop(theirs, adam(theirs), squares)
    batches, losses = batches_of(PACKED, "cpu", device, [8] * 6), ([], [])
    with torch.autocast("cuda", torch.bfloat16, enabled=long):
        for batch in batches:
            with torch.autocast("cuda", torch.bfloat16, cache_enabled=False):
                losses[1].append(reference(batch))
            if long:
                losses[0].append(step(batch))
                continue
            with torch.autocast("cuda", torch.bfloat16):
                losses[0].append(step(batch))
    assert_same_losses(*losses, rtol=3e-2)
    assert len(replays) >= 3
    for batch in batches[:4]:  # without autocast, another graph
        step(batch)
    assert len(replays) >= 5


@pytest.mark.gpu
@pytest.mark.parametrize("device", ["cuda"], indirect=True)
def test_the_network_moves(device, replays):
    mine, theirs = twins(PACKED, device, backend="reference", norm="layer")
    step, reference = molgcn.capture(mine, adam(mine), loss="mse"), PlainLoop(theirs, adam(theirs), mean_square)
    batches, losses = batches_of(PACKED, "cpu", device, [8] * 4), ([], [])
    for place in ("cuda", "cpu", "cuda"):
        for model, loop in ((mine, step), (theirs, reference)):
            model.to(place)
            for state in loop.optimizer.state.values():
                state.update({name: tensor.to(place) for name, tensor in state.items()})
        for batch in batches:
            losses[0].append(step(batch))
            losses[1].append(reference(batch))
        if place == "cuda":
            assert len(replays) >= 2
            replays.clear()
        else:
            assert not replays
    torch.testing.assert_close([loss.cpu() for loss in losses[0]], [loss.cpu() for loss in losses[1]], rtol=1e-4, atol=1e-6)


@pytest.mark.gpu
@pytest.mark.parametrize("device", ["cuda"], indirect=True)
def test_dropout_draws_anew_at_every_replay(device, replays):
    torch.manual_seed(0)
    model = network(PACKED, device, dropout=0.5, norm=None)
    step = molgcn.capture(model, torch.optim.SGD(model.parameters(), lr=0.0, fused=True), loss="mse")
    batch = batches_of(PACKED, "cpu", device, [8])[0]
    losses = torch.stack([step(batch) for _ in range(10)])
    assert len(replays) >= 7 and len(losses.unique()) == 10


def test_a_loss_with_tensors_of_its_own(device):
    """A loss may be a module, whose tensors are watched."""

    class Weighted(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("weight", torch.tensor(2.0, device=device))

        def forward(self, predictions: Tensor, targets: Tensor) -> Tensor:
            return self.weight * (predictions - targets).square()

    ours = Weighted()
    mine, theirs = twins(PACKED, device)
    step = molgcn.capture(mine, adam(mine), loss=ours)
    reference = PlainLoop(theirs, adam(theirs), lambda predictions, targets: factor * (predictions - targets).square())
    factor = 2.0
    for number, batch in enumerate(batches_of(PACKED, "cpu", device, [8] * 8)):
        if number == 4:
            ours.weight, factor = torch.tensor(0.5, device=device), 0.5
        assert_same_losses([step(batch)], [reference(batch)])
