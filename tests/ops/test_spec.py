"""The spec of a network has the right string form and order of parameters, and refuses wrong values."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from molgcn.nn import GCN
from molgcn.ops import NetworkSpec, Parameters
from molgcn.ops.spec import NORMS, POOLS


@given(
    st.builds(
        NetworkSpec,
        in_channels=st.integers(1, 500),
        hidden_channels=st.integers(1, 500),
        num_layers=st.integers(1, 40),
        norm=st.sampled_from(NORMS),
        residual=st.booleans(),
        add_self_loops=st.booleans(),
        last_activation=st.booleans(),
        dropout=st.floats(0, 1, exclude_max=True),
        pool=st.sampled_from(POOLS),
        eps=st.floats(0, 1),
        momentum=st.floats(0, 1),
    )
)
def test_the_string_form_says_everything(spec):
    again = NetworkSpec.from_string(spec.to_string())
    assert again == spec and hash(again) == hash(spec)
    assert NetworkSpec.from_string(spec.to_string()) is again


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("last_activation", [False, True])
def test_names_and_shapes_are_the_state_dicts(norm, last_activation):
    model = GCN(5, 8, 3, 2, backend="pyg", norm=norm, last_activation=last_activation)
    spec = NetworkSpec(5, 8, 3, norm=norm, last_activation=last_activation)
    state = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items() if tensor.dim() and not name.startswith("head")}
    assert {**spec.parameters, **spec.statistics} == state


def test_parameters_come_back_in_their_order():
    spec = NetworkSpec(5, 8, 3, norm="batch")
    tensors = [torch.zeros(shape) for shape in spec.parameters.values()]
    statistics = [torch.zeros(shape) for shape in spec.statistics.values()]
    parameters = Parameters.of(spec, tensors, statistics)
    assert [len(some) for some in parameters] == [3, 3, 2, 2, 2, 2]
    assert all(one is other for one, other in zip(parameters.tensors, tensors, strict=True))
    assert all(one is other for one, other in zip(parameters.statistics, statistics, strict=True))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"pool": "median"}, r"pool=median is unknown\. Expected one of mean, sum, max"),
        ({"norm": "group"}, "norm=group is unknown. Expected one of None, batch, layer"),
        ({"message": "gin"}, "message=gin is unknown"),
        ({"dropout": 1.0}, "dropout=1.0"),
        ({"num_layers": 0}, "at least one layer"),
    ],
    ids=str,
)
def test_what_is_out_of_range_is_refused(change, message):
    spec = NetworkSpec(5, 8, 3)
    with pytest.raises(ValueError, match=message):
        replace(spec, **change)
    ((name, value),) = change.items()
    with pytest.raises(ValueError, match=message):
        NetworkSpec.from_string(spec.to_string().replace(f"{name}={getattr(spec, name)}", f"{name}={value}"))


@pytest.mark.parametrize("change", [("/1 ", "/2 "), ("eps=", "epsilon="), (" pool=mean", ""), ("pool=mean", "pool=mean pool=mean")])
def test_another_form_is_refused(change):
    with pytest.raises(ValueError, match=r"a network's spec starts with 'molgcn\.network/1' and names in_channels, "):
        NetworkSpec.from_string(NetworkSpec(5, 8, 3).to_string().replace(*change))
