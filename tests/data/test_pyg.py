import numpy as np
import pytest
import torch
from graphs import assert_same_bonds, molecule_lists, sorted_edges
from hypothesis import given
from torch_geometric.data import Data

from molgcn.data import PackedMolecules
from molgcn.errors import UserError


@given(molecule_lists())
def test_round_trip_is_exact_up_to_the_order_of_edges(data):
    back = PackedMolecules.from_pyg(data).to_pyg()
    assert len(back) == len(data)
    for one, other in zip(back, data, strict=True):
        assert torch.equal(one.x, other.x) and one.x.dtype == torch.float
        assert torch.equal(one.edge_index, sorted_edges(other.edge_index))
        assert_same_bonds(one.edge_attr, other)
        if other.y.numel():
            assert torch.equal(one.y.nan_to_num(nan=-9), other.y.nan_to_num(nan=-9)) and one.y.shape == other.y.shape
        else:
            assert one.y is None
        assert torch.equal(one.descriptors, other.descriptors) if "descriptors" in other else "descriptors" not in one
    again = PackedMolecules.from_pyg(back).to_pyg()
    for one, other in zip(again, back, strict=True):
        assert torch.equal(one.edge_index, other.edge_index)
        assert one.edge_attr is None if other.edge_attr is None else torch.equal(one.edge_attr, other.edge_attr)


def item(atoms=2, features=1, y=None, edges=((0, 1), (1, 0)), edge_attr=None):
    return Data(x=torch.zeros(atoms, features), edge_index=torch.tensor(edges), y=y, edge_attr=edge_attr)


def test_one_feature_of_bonds_may_be_a_list_of_any_type():
    """PyG's ZINC has such a feature."""
    packed = PackedMolecules.from_pyg([item(edge_attr=torch.tensor([3, 1])), item(edge_attr=torch.tensor([1, 1]))])
    assert packed.edge_features().tolist() == [[1], [3], [1], [1]] and packed.edge_attr.dtype == np.uint8


def test_duplicate_bonds_pair_by_rank():
    bonds = torch.tensor([[0, 1, 0, 1, 1, 1], [1, 0, 1, 0, 1, 1]])
    packed = PackedMolecules.from_pyg([Data(x=torch.zeros(2, 1), edge_index=bonds, edge_attr=torch.arange(6.0)[:, None])])
    assert packed.neighbors.tolist() == [1, 1, 0, 0, 1, 1] and packed.edge_features()[:, 0].tolist() == [1, 3, 0, 2, 4, 5]


def test_targets_are_one_row_numbers_or_a_number():
    packed = PackedMolecules.from_pyg([item(y=torch.tensor([1.0, 2.0])), item(y=torch.tensor([[3.0, 4.0]]))])
    assert packed.targets.tolist() == [[1, 2], [3, 4]] and packed.target_names == ("y0", "y1")
    assert PackedMolecules.from_pyg([item(y=torch.tensor(1.0)), item(y=2.0)]).targets.tolist() == [[1], [2]]
    assert PackedMolecules.from_pyg([item()]).targets.shape == (1, 0)


def test_what_data_holds_is_copied():
    data = [item()]
    packed = PackedMolecules.from_pyg(data)
    data[0].x += 5
    assert packed.node_features().tolist() == [[0], [0]]


@pytest.mark.parametrize(
    ("data", "match"),
    [
        ([], "empty"),
        ([item(), Data(edge_index=torch.zeros(2, 0, dtype=torch.long))], "Data 1 has no `x`"),
        ([Data(x=torch.zeros(2, 1))], "Data 0 has no `edge_index`"),
        ([item(), item(features=2)], r"Data 1 has x of shape \[2, 2\]; expected \[atoms, 1\]"),
        ([item(y=torch.zeros(1, 1)), item()], "Data 1 has no `y`"),
        ([item(y=torch.zeros(1, 1)), item(y=torch.zeros(1, 2))], "between 1 and 2 targets"),
        ([item(y=torch.zeros(2, 1))], r"`y` of Data 0 has the shape \[2, 1\] for 1 graphs\. Give each graph one row, \[1, columns\]"),
        ([item(y=torch.full((1, 1), torch.inf))], "Target 0 of molecule 0 is infinite"),
        ([item(edge_attr=torch.zeros(2, 1)), item()], "Data 1 has no `edge_attr`, others have"),
        ([item(edge_attr=torch.zeros(3, 1))], r"Data 0 has edge_attr of shape \[3, 1\]; expected \[bonds, features\] = \[2, 1\]"),
        ([item(edge_attr=torch.zeros(2, 1)), item(edge_attr=torch.zeros(2, 2))], r"Data 1 has edge_attr of shape \[2, 2\]"),
        ([item(edge_attr=torch.zeros(2, 1, 1))], r"Data 0 has edge_attr of shape \[2, 1, 1\]"),
        ([item(edge_attr=torch.tensor([[0.0], [np.nan]]))], "Row 1 of the features `edge_attr`"),
        ([item(edges=((0, 2), (2, 0)))], "out of range"),
        ([item(edges=((0,), (1,)))], "one direction only"),
        ([Data(x=torch.full((1, 1), np.nan), edge_index=torch.zeros(2, 0, dtype=torch.long))], "not finite"),
        ([Data(x=torch.zeros(0, 1), edge_index=torch.zeros(2, 0, dtype=torch.long))], "no atoms"),
    ],
)
def test_bad_data(data, match):
    with pytest.raises(UserError, match=match):
        PackedMolecules.from_pyg(data)
