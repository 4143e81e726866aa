"""A padded batch is a graph whose shapes never change, with real bonds first and padding that reaches no real atom."""

import torch
from compiler import needs_extension
from graphs import molecule_lists
from hypothesis import given, settings
from hypothesis import strategies as st

from molgcn.data import PackedMolecules
from molgcn.data.loader import PackedLoader

pytestmark = needs_extension


@settings(max_examples=30)
@given(molecule_lists(), st.integers(1, 12))
def test_a_padded_batch_is_its_batch_and_padding(data, batch_size):
    loader = PackedLoader(PackedMolecules.from_pyg(data), batch_size)
    shapes = set()
    for batch in loader:
        padded, nodes, edges = batch.padded, batch.num_nodes, batch.num_edges
        assert padded.edge_index.dtype == padded.batch.dtype == torch.int64
        assert torch.equal(padded.edge_index[:, :edges], batch.edge_index) and torch.all(padded.edge_index[:, edges:] == padded.num_nodes)
        assert torch.equal(padded.batch[:nodes], batch.batch) and torch.all(padded.batch[nodes:] == padded.num_graphs)
        assert len(padded.batch) == padded.num_nodes + 1
        if batch.edge_attr is not None:
            assert torch.equal(padded.edge_attr[:edges], batch.edge_attr) and padded.edge_attr.isfinite().all()
        clone = padded.clone()
        assert torch.equal(clone.edge_index, padded.edge_index) and torch.equal(clone.batch, padded.batch)
        shapes.add((padded.edge_index.shape, padded.batch.shape, None if padded.edge_attr is None else padded.edge_attr.shape))
    assert len(shapes) == 1
