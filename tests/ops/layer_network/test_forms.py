"""A call has the form of one that was checked only if it would pass the same checks."""

from itertools import compress

import pytest
import torch
from layer_network_cases import options_of, random_call
from torch import nn

from molgcn.ops.layer_network.call import LayerNetworkCall
from molgcn.ops.layer_network.forms import Sizes, known_form, remember_form


def call_of(sizes: list[int], **options) -> LayerNetworkCall:
    call = random_call(options_of("gine", 12, in_channels=8), sizes=sizes, dtype=torch.float32, **options)
    return call._replace(parameters=[nn.Parameter(parameter) for parameter in call.parameters])


def with_parameter(call: LayerNetworkCall, tensor: torch.Tensor | None, place: int = 0) -> LayerNetworkCall:
    return call._replace(parameters=[*call.parameters[:place], tensor, *call.parameters[place + 1 :]])


def with_data(parameter: nn.Parameter, data: torch.Tensor) -> nn.Parameter:
    made = nn.Parameter(parameter.detach().clone())
    made.data = data
    return made


def is_known(call: LayerNetworkCall) -> bool:
    return known_form(call, call.tensors) is not None


@pytest.fixture
def call() -> LayerNetworkCall:
    made = call_of([5, 9, 3])
    remember_form(made, made.tensors)
    return made


def test_batches_of_other_sizes_and_other_values_are_known(call):
    other = call_of([4, 1, 1, 7], training=call.options.training)
    other = call._replace(graph=other.graph, parameters=[nn.Parameter(parameter + 1) for parameter in call.parameters])
    form, sizes = known_form(other, other.tensors)
    assert form.are_contiguous
    assert sizes == Sizes(4, 13, other.graph.col.shape[0], other.graph.bonds.shape[0], other.graph.tile_ptr.shape[0] - 1)


class Subclass(torch.Tensor):
    """A tensor that would have to see a call."""


OTHERS = {
    "shape": lambda weight: weight[:-1],
    "dtype": torch.Tensor.double,
    "strides": lambda weight: weight.T.contiguous().T,
    "device": lambda weight: weight.to("meta"),
    "layout": torch.Tensor.to_sparse,
    "subclass": lambda weight: weight.as_subclass(Subclass),
    "none": lambda weight: None,
}


@pytest.mark.parametrize("other", OTHERS)
def test_another_parameter_is_not_known(call, other):
    weight = call.parameters[0]
    assert is_known(call)
    made = OTHERS[other](weight.detach())
    assert not is_known(with_parameter(call, made))
    if other in ("shape", "dtype", "strides"):
        assert not is_known(with_parameter(call, with_data(weight, made)))


def test_data_of_another_address_is_known(call):
    assert is_known(with_parameter(call, with_data(call.parameters[0], call.parameters[0].detach() + 1)))


@pytest.mark.parametrize("field", ["rowptr", "col", "bonds", "code"])
def test_numbers_of_rows_that_do_not_agree_are_not_known(call, field):
    cut = getattr(call.graph, field)[:-1]
    known = is_known(call._replace(graph=call.graph._replace(**{field: cut})))
    assert known == (field == "bonds")  # of which there may be any number


def test_graphs_without_codes_have_another_form(call):
    assert not is_known(call._replace(graph=call.graph._replace(code=None)))


def test_tied_parameters_stay_tied(call):
    shapes = [parameter.shape for parameter in call.parameters]
    place = next(place for place in range(1, len(shapes)) if shapes[place] in shapes[:place])
    tied = with_parameter(call, call.parameters[shapes.index(shapes[place])], place)
    assert not is_known(tied)
    form, _ = remember_form(tied, tied.tensors)
    assert is_known(tied)
    assert not is_known(call)
    chosen = [tensor is not None for tensor in tied.tensors]
    assert not form.has_kept([*compress(tied.tensors, chosen)], chosen)  # each is checked by itself


def test_what_backward_gets_is_checked(call):
    form, _ = known_form(call, call.tensors)
    chosen = [tensor is not None for tensor in call.tensors]
    kept = [*compress(call.tensors, chosen)]
    assert form.has_kept(kept, chosen)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert form.has_kept(kept, chosen)
    assert form.has_kept(kept, chosen)
    place = [*map(id, kept)].index(id(call.parameters[0]))
    weight = kept[place].detach()
    assert not form.has_kept([*kept[:place], weight.T.contiguous().T, *kept[place + 1 :]], chosen)
    for wrong in (weight[1:], weight.double(), weight.to("meta")):
        with pytest.raises(ValueError, match="was saved for backward, and came back"):
            form.has_kept([*kept[:place], wrong, *kept[place + 1 :]], chosen)
