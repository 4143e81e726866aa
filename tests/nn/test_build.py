"""The networks of conf/model are built, and a configuration's demands on a data set are checked."""

import pytest
from conf_cases import MODELS, model_values

from molgcn.config.run import BackendConfig, ModelConfig, parse
from molgcn.data import PackedMolecules
from molgcn.errors import UserError
from molgcn.nn.build import build_network, edge_channels_of, resolved_backend
from molgcn.nn.registry import layer_names
from molgcn.ops import HAS_CPU_EXTENSION

LAYERS = set(layer_names())  # before other tests register layers
COUNTS = {"gcn_plus": 260_177, "gin_plus": 477_241, "gated_gcn_plus": 413_355}  # Luo et al., 2025: 21 atom types, 4 bond types


@pytest.mark.parametrize("name", MODELS)
def test_every_file_makes_its_network(name):
    model = parse(ModelConfig, model_values(name), "model")
    network = build_network(model, BackendConfig("reference"), 21, 1, 4 if model.bonds else None)
    assert network.conv == model.name
    assert name in (model.name, *COUNTS)
    if name in COUNTS:
        assert sum(parameter.numel() for parameter in network.parameters()) == COUNTS[name]


def test_every_layer_has_a_file():
    assert {model_values(name)["name"] for name in MODELS} == LAYERS


def test_an_option_of_another_layer_is_refused():
    with pytest.raises(UserError, match=r"model.heads is not an option of gcn, whose own options are: add_self_loops\. Leave it out"):
        resolved_backend(ModelConfig(heads=4), BackendConfig("pyg"))


def test_the_backend_is_known_before_the_data():
    assert resolved_backend(ModelConfig(), BackendConfig("pyg")) == "pyg"
    assert resolved_backend(ModelConfig(name="gat", bonds=True), BackendConfig("auto")) == ("fused" if HAS_CPU_EXTENSION else "pyg")
    with pytest.raises(UserError, match=r"model\.bonds=false does not go with gine"):
        resolved_backend(ModelConfig(name="gine"), BackendConfig("auto"))


def test_bonds_that_a_set_does_not_have():
    arrays = {"num_nodes": [2], "num_edges": [2], "edge_index": [[0, 1], [1, 0]], "x": [[1.0], [2.0]]}
    with_bonds = PackedMolecules.from_arrays(**arrays, edge_attr=[[1.0, 0.0], [1.0, 0.0]])
    assert edge_channels_of(ModelConfig(name="gine", bonds=True), with_bonds) == 2
    assert edge_channels_of(ModelConfig(), with_bonds) is None
    with pytest.raises(UserError, match=r"model.bonds=true, but the data set has no features of bonds\. Choose dataset.features that"):
        edge_channels_of(ModelConfig(name="gine", bonds=True), PackedMolecules.from_arrays(**arrays))
