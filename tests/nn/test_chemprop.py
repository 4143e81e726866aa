"""`model=dmpnn` is Chemprop's network with the defaults of its command."""

import pytest
import torch
from conf_cases import model_values
from torch_geometric.data import Batch

from molgcn.config.run import BackendConfig, ModelConfig, parse
from molgcn.nn.build import build_network

pytestmark = pytest.mark.peers
SMILES = ["CC(=O)Oc1ccccc1C(=O)O", "C", "[Na+].[Cl-]", "C1CC1", "N#Cc1ccc2c(c1)C(=O)N(C2)[C@@H](F)/C=C/S"]


@pytest.mark.parametrize("backend", ["reference", "pyg", "fused"])
def test_the_whole_network_gives_the_same(backend):
    from chemprop.data import BatchMolGraph
    from chemprop.featurizers import SimpleMoleculeMolGraphFeaturizer
    from chemprop.models import MPNN
    from chemprop.nn import BondMessagePassing, NormAggregation, RegressionFFN
    from rdkit import Chem

    torch.manual_seed(0)
    graphs = BatchMolGraph([SimpleMoleculeMolGraphFeaturizer()(Chem.MolFromSmiles(smiles)) for smiles in SMILES])
    graphs.V, graphs.E = graphs.V.double(), graphs.E.double()
    chemprop = MPNN(BondMessagePassing(), NormAggregation(), RegressionFFN(n_tasks=2)).double()

    config = parse(ModelConfig, model_values("dmpnn"))
    ours = build_network(config, BackendConfig(backend), graphs.V.shape[1], 2, graphs.E.shape[1]).double()
    with torch.no_grad():
        for parameter, other in zip(ours.parameters(), chemprop.parameters(), strict=True):  # in the same order
            parameter.copy_(other)
    batch = Batch(x=graphs.V, edge_index=graphs.edge_index, edge_attr=graphs.E, batch=graphs.batch)
    batch._num_graphs = len(SMILES)

    results = []
    for network, given in ((ours, batch), (chemprop, graphs)):
        out = network(given)
        results.append([out, *torch.autograd.grad(out.square().sum(), list(network.parameters()))])
    torch.testing.assert_close(*results, rtol=1e-10, atol=1e-10)
