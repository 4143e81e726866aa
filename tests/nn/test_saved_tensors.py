"""Hooks on saved tensors, as for offloading and compression, may give backward the same values in other memory."""

import pytest
import torch
from compiler import needs_extension
from direct_calls import relaid
from family_cases import FUSED
from layer_cases import DEVICES, EACH_ONCE, assert_close, inputs_for, name_of, pair, random_graph, results
from network_cases import OPTIONS, batch_of, fitting, network
from test_molecule_net import outcome
from torch.autograd.graph import saved_tensors_hooks

each_way = pytest.mark.parametrize("how", ["strided", "transposed", "unaligned"])


def in_other_memory(how: str) -> saved_tensors_hooks:
    return saved_tensors_hooks(lambda tensor: tensor, lambda tensor: relaid(tensor)[how])


@pytest.mark.parametrize("device", DEVICES)
@each_way
@pytest.mark.parametrize("case", EACH_ONCE, ids=name_of)
def test_layers_for_any_graph(case, how, device):
    layer, _ = pair(case, device=device)
    arguments = inputs_for(case, random_graph(), device=device)
    expected = results(layer, *arguments)
    with in_other_memory(how):
        assert_close(results(layer, *arguments), expected, 1e-14)


@needs_extension
@each_way
@pytest.mark.parametrize("conv", FUSED)
def test_networks(conv, how, one_thread):
    options = fitting(conv, OPTIONS["gnn+"])
    expected = outcome(network(conv, options, "fused"), batch_of("many"))
    with in_other_memory(how):
        found = outcome(network(conv, options, "fused"), batch_of("many"))
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)
