"""Programs of graph convolutions are recognised with their sizes and options, and no others are."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from layer_network_cases import NETWORKS, network_options, options_of
from stack_cases import program

from molgcn.nn import GCN
from molgcn.nn.network_steps import program_of
from molgcn.ops.gcn_network import GcnNetwork, Parameters, gcn_pattern

NORMS = (None, "batch", "layer")
PLAIN = network_options("gcn", 5, 8, 3)


@given(
    st.builds(
        GcnNetwork,
        in_channels=st.integers(1, 500),
        hidden_channels=st.integers(1, 500),
        num_layers=st.integers(2, 40),
        norm=st.sampled_from(NORMS),
        residual=st.booleans(),
        add_self_loops=st.booleans(),
        last_activation=st.booleans(),
        dropout=st.floats(0, 1, exclude_max=True),
        pool=st.sampled_from(("mean", "sum", "max")),
        eps=st.floats(0, 1),
        momentum=st.floats(0, 1),
    )
)
def test_the_pattern_has_every_option(network):
    assert gcn_pattern(program(network)) == network


@pytest.mark.parametrize("last_activation", [False, True])
@pytest.mark.parametrize("norm", NORMS)
def test_a_single_layer(norm, last_activation):
    """Without an activation it has no norm, and with other widths no residual."""
    network = GcnNetwork(5, 8, 1, norm, residual=True, last_activation=last_activation)
    assert gcn_pattern(program(network)) == replace(network, residual=False, norm=norm if last_activation else None)


@pytest.mark.parametrize(
    "change",
    [
        {"activation": "gelu"},
        {"feed_forward": True},
        {"readout": "all"},
        {"pool": "none"},
        {"conv": "gin"},
        {"conv": "gcn_edge", "edge_channels": 4},
    ],
    ids=str,
)
def test_what_is_more_than_graph_convolutions_has_no_pattern(change):
    assert gcn_pattern(program_of(PLAIN)) is not None
    assert gcn_pattern(program_of(PLAIN._replace(**change))) is None


def test_no_other_network_has_one():
    assert {name for name in NETWORKS if gcn_pattern(program_of(options_of(name))) is not None} == {"gcn", "gcn without loops"}


@pytest.mark.parametrize("norm", NORMS)
def test_parameters_by_kind_come_back_in_the_order_of_the_program(norm):
    network = GcnNetwork(5, 8, 3, norm)
    made = program(network)
    tensors = [torch.zeros(shape) for shape in made.parameters.values()]
    statistics = [torch.zeros(shape) for shape in made.statistics.values()]
    parameters = Parameters.of(network, tensors, statistics)
    norms, buffers = (2 if norm else 0), (2 if norm == "batch" else 0)
    assert [len(some) for some in parameters] == [3, 3, norms, norms, buffers, buffers]
    assert all(one is other for one, other in zip(parameters.tensors, tensors, strict=True))
    assert all(one is other for one, other in zip(parameters.statistics, statistics, strict=True))
    state = GCN(5, 8, 3, 2, backend="pyg", norm=norm, last_activation=False).state_dict()
    shapes = {name: tuple(tensor.shape) for name, tensor in state.items() if tensor.dim() and not name.startswith("head")}
    assert {**made.parameters, **made.statistics} == shapes
