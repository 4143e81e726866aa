"""Errors of a batch that a network cannot read."""

import numpy as np
import pytest
import torch
from network_cases import NUM_EDGE_FEATURES, NUM_FEATURES, batch_of, network

from molgcn.data import GraphBatch, PackedMolecules
from molgcn.errors import UserError


@pytest.mark.parametrize("backend", ["reference", "pyg"])
@pytest.mark.parametrize(("name", "width"), [("x", NUM_FEATURES), ("edge_attr", NUM_EDGE_FEATURES)])
def test_other_features_than_the_network_was_made_for(name, width, backend):
    batch = batch_of("many")
    batch[name] = torch.cat([batch[name], batch[name]], dim=1)
    for one in (batch, GraphBatch.from_pyg(batch)):
        with pytest.raises(UserError, match=rf"`{name}` has {2 * width} features per \w+, but the network was made for {width}\."):
            network("gine", {}, backend)(one)


def test_a_saved_set_without_bonds(tmp_path):
    x = np.ones((3, NUM_FEATURES), np.float32)
    PackedMolecules.from_arrays([3], [4], [[0, 1, 1, 2], [1, 0, 2, 1]], x=x).save(tmp_path)
    with pytest.raises(UserError, match="The network reads `edge_attr`, which the batch does not have"):
        network("gine", {})(PackedMolecules.load(tmp_path).batch([0]))
