"""Nodes are put into reverse Cuthill-McKee order."""

import pytest
import torch

from molgcn.ops import renumber


def bandwidth(edge_index):
    return int((edge_index[0] - edge_index[1]).abs().max())


def test_neighbours_get_close_numbers():
    """Renumbering gives a shuffled path of 100 nodes a bandwidth of 1."""
    number = torch.randperm(100, generator=torch.Generator().manual_seed(0))
    edge_index = torch.stack([number[:-1], number[1:]])
    order = renumber(edge_index, 100)
    place = torch.empty_like(order).scatter_(0, order, torch.arange(100))
    assert bandwidth(edge_index) > 50
    assert bandwidth(place[edge_index]) == 1


@pytest.mark.parametrize(("num_nodes", "num_edges"), [(0, 0), (5, 0), (40, 90)])
def test_every_node_once(num_nodes, num_edges):
    edge_index = torch.randint(0, max(num_nodes, 1), (2, num_edges), generator=torch.Generator().manual_seed(0))
    assert torch.equal(renumber(edge_index, num_nodes).sort().values, torch.arange(num_nodes))


def test_a_node_that_is_not_there():
    with pytest.raises(IndexError, match=r"edge_index\[1, 0\] is 5"):
        renumber(torch.tensor([[0], [5]]), 5)
