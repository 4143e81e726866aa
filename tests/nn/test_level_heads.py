"""Outputs of atoms and bonds: they agree between backends, are the same in both directions of a bond, and padding does not change them."""

import pytest
import torch
from network_cases import NUM_FEATURES, batch_of, fitting
from test_molecule_net import EXACT, outcome, padded

import molgcn
from molgcn.data import GraphBatch
from molgcn.errors import UserError
from molgcn.nn import MoleculeNet
from molgcn.nn.layers.propagate import reverse_bonds
from molgcn.ops import HAS_CPU_EXTENSION

pytestmark = pytest.mark.usefixtures("one_thread")
FUSED = ["fused"] if HAS_CPU_EXTENSION else []
OUTPUTS = {"atom_outputs": [1], "bond_outputs": [0, 3]}


def net(conv="gine", backend="reference", out_channels=4, **options):
    torch.manual_seed(0)
    return MoleculeNet(NUM_FEATURES, 12, 3, out_channels, conv=conv, backend=backend, **fitting(conv, {**OUTPUTS, **options})).double()


@pytest.mark.parametrize("backend", ["pyg", *FUSED])
@pytest.mark.parametrize("options", [{}, {"pool": "attention", "readout": "all"}], ids=str)
@pytest.mark.parametrize("conv", ["gine", "gcn", "gated_gcn", "dmpnn"])
def test_backends_agree(conv, options, backend):
    reference, other = (outcome(net(conv, name, **options), batch_of("many")) for name in ("reference", backend))
    torch.testing.assert_close(reference, other, **EXACT)


def test_rows_are_molecules_atoms_and_bonds_each_with_its_own_outputs():
    batch = GraphBatch.from_pyg(batch_of("many"))
    reverse = reverse_bonds(batch.edge_index, batch.num_nodes)
    batch.edge_attr = batch.edge_attr + batch.edge_attr[reverse]  # the same for both directions of a bond, as RDKit's are
    model = net().eval()
    molecules, atoms, bonds = model(batch).split([batch.num_graphs, batch.num_nodes, batch.num_edges])
    for rows, own in ((molecules, [2]), (atoms, [1]), (bonds, [0, 3])):
        assert (rows[:, own] != 0).all() and (rows[:, [place for place in range(4) if place not in own]] == 0).all()
    torch.testing.assert_close(bonds, bonds[reverse], **EXACT)
    alone = net(out_channels=1, atom_outputs=[], bond_outputs=[]).eval()
    alone.load_state_dict({name: value for name, value in model.state_dict().items() if not name.startswith(("atom_head", "bond_head"))})
    torch.testing.assert_close(molecules[:, 2:3], alone(batch), **EXACT)


@pytest.mark.parametrize("backend", ["reference", *FUSED])
def test_padding_does_not_count(backend):
    batch = GraphBatch.from_pyg(batch_of("many"))
    model = net(backend=backend).eval()
    slot = padded(batch, 3, 5, 2)
    sizes, places = (batch.num_graphs, batch.num_nodes, batch.num_edges), (batch.num_graphs + 2, batch.num_nodes + 3, batch.num_edges + 5)
    found = [rows[:size] for rows, size in zip(model(slot).split(places), sizes, strict=True)]
    torch.testing.assert_close(torch.cat(found), model(batch), **EXACT)


def test_without_outputs_of_molecules_there_is_no_head_of_theirs():
    batch = batch_of("many")
    model = net(out_channels=1, atom_outputs=[0], bond_outputs=[])
    assert [*model.heads] == [model.atom_head] and not any(name.startswith("head") for name in model.state_dict())
    assert model(batch).shape == (batch.num_graphs + batch.num_nodes, 1)


def test_steps_of_own_loops_are_not_captured():
    with pytest.raises(UserError, match="the model has some of atoms or bonds"):
        molgcn.capture(net())
