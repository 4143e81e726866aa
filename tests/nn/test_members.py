"""Members that are found once are those that a network has now."""

import copy

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations, prune

from molgcn.nn.members import members_of, named

NAMES = ("layers.0.weight", "layers.1.bias", "norms.0.running_mean", "norms.0")


def network() -> nn.Module:
    made = nn.Module()
    made.layers, made.norms = nn.ModuleList([nn.Linear(3, 3), nn.Linear(3, 3)]), nn.ModuleList([nn.BatchNorm1d(3)])
    return made


def found(model: nn.Module) -> list:
    return members_of(model, ("layers", "norms")).once("found", lambda: named(model, NAMES))


def expected(model: nn.Module) -> list:
    return [model.layers[0].weight, model.layers[1].bias, model.norms[0].running_mean, model.norms[0]]


def check(model: nn.Module) -> None:
    assert all(one is other for one, other in zip(found(model), expected(model), strict=True))


def replace_parameter(model):
    model.layers[0].weight = nn.Parameter(torch.zeros(3, 3))


def replace_buffer(model):
    model.norms[0].running_mean = torch.ones(3)


def replace_module(model):
    model.layers[0] = nn.Linear(3, 3)


def replace_list(model):
    model.layers = nn.ModuleList([nn.Linear(3, 3), nn.Linear(3, 3)])


def replace_by_plain_tensor(model):
    del model.layers[0].weight
    model.layers[0].weight = torch.zeros(3, 3)


def move_buffers(model):
    model.norms._apply(torch.Tensor.clone)


def swap_parameters(model):
    first, second = model.layers
    first.weight, second.weight = second.weight, first.weight


def add_module(model):
    model.layers[1].register_forward_pre_hook(print)
    model.layers.append(nn.Linear(3, 3))


REPLACED = [replace_parameter, replace_buffer, replace_module, replace_list, replace_by_plain_tensor, move_buffers, swap_parameters]


@pytest.mark.parametrize("change", [*REPLACED, add_module])
def test_what_is_replaced_is_found(change):
    model = network()
    check(model)
    before = members_of(model, ("layers", "norms")).modules
    change(model)
    check(model)
    modules = members_of(model, ("layers", "norms")).modules
    assert [*map(id, modules)] == [*map(id, (*model.layers.modules(), *model.norms.modules()))]
    assert (modules is before) == (change not in (replace_module, replace_list, add_module))  # a search only where modules have changed


def test_a_leaf_that_gets_children_is_searched():
    model = network()
    check(model)
    parametrizations.weight_norm(model.layers[0])
    modules = members_of(model, ("layers", "norms")).modules
    assert [*map(id, modules)] == [*map(id, (*model.layers.modules(), *model.norms.modules()))]


def test_in_place_changes_search_nothing_anew():
    model = network().train()
    before = members_of(model, ("layers", "norms"))
    model.layers[0].weight.data = torch.zeros(3, 3, dtype=torch.float64)
    model.layers[0].weight.register_hook(print)
    model.eval().requires_grad_(False)
    assert members_of(model, ("layers", "norms")) is before


def test_weights_that_are_computed_are_not_held():
    model = network()
    check(model)
    for computed in (lambda module: prune.l1_unstructured(module, "weight", amount=2), nn.utils.weight_norm, parametrizations.weight_norm):
        model.layers[0] = nn.Linear(3, 3)
        computed(model.layers[0])
        assert not members_of(model, ("layers", "norms")).hold(named(model, NAMES))
        assert members_of(model, ("layers", "norms")).hold(named(model, NAMES[1:]))
    model.layers[0] = prune.l1_unstructured(nn.Linear(3, 3), "weight", amount=2)
    members_of(model, ("layers", "norms"))
    prune.remove(model.layers[0], "weight")
    check(model)


def test_a_copy_has_members_of_its_own():
    model = network()
    check(model)
    check(copy.deepcopy(model))
    check(model)


def test_a_missing_member_is_an_error():
    model = network()
    model.layers[0].register_parameter("weight", None)
    model.layers[1].bias = None
    assert found(model)[:2] == [None, None]
    with pytest.raises(AttributeError):
        named(model, ("layers.0.nothing",))
    with pytest.raises(ValueError, match="none"):
        named(model, NAMES, lambda: ValueError("none"))


def test_what_is_found_once_is_found_again_after_a_change():
    model, asked = network(), []

    def find() -> None:
        members_of(model, ("layers", "norms")).once("key", lambda: asked.append("again"))

    for change in (lambda: None, lambda: model.layers[1].register_forward_hook(print), lambda: replace_module(model)):
        change()
        find()
        find()
    assert asked == ["again"] * 3
