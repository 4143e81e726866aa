"""Every bond's reverse is found."""

import pytest
import torch
from edge_layer_cases import GRAPHS, molecule_like
from hypothesis import given
from hypothesis import strategies as st

from molgcn.nn.layers.propagate import reverse_bonds


def by_search(edge_index):
    """Return the reverse of every bond by a search through all bonds."""
    bonds = [tuple(bond) for bond in edge_index.T.tolist()]
    rank = [bonds[:place].count(bond) for place, bond in enumerate(bonds)]
    return [
        next(other for other, bond in enumerate(bonds) if bond == (target, source) and rank[other] == rank[place])
        for place, (source, target) in enumerate(bonds)
    ]


@pytest.mark.parametrize("graph", GRAPHS.values(), ids=GRAPHS)
def test_reverses_of_graphs(graph):
    num_atoms, edge_index = graph
    assert reverse_bonds(edge_index, num_atoms).tolist() == by_search(edge_index)


@given(num_atoms=st.integers(2, 6), num_bonds=st.integers(0, 12), loops=st.integers(0, 4), seed=st.integers(0, 1000))
def test_is_a_permutation_that_is_its_own_inverse(num_atoms, num_bonds, loops, seed):
    edge_index = molecule_like(num_atoms, num_bonds, loops, seed)
    reverse = reverse_bonds(edge_index, num_atoms)
    assert torch.equal(reverse[reverse], torch.arange(edge_index.shape[1]))
    assert torch.equal(edge_index[:, reverse], edge_index.flip(0))
    assert reverse.tolist() == by_search(edge_index)


def test_atom_numbers_up_to_two_to_the_31():
    last = 2**31 - 1
    edge_index = torch.tensor([[last, last - 1, 0, last, last], [last - 1, last, last, 0, last]])
    assert reverse_bonds(edge_index, 2**31).tolist() == [1, 0, 3, 2, 4]
