"""Graphs and networks that the tests of all networks share."""

import torch
from torch_geometric.data import Batch, Data

from molgcn.nn import MoleculeNet
from molgcn.nn.options import PLAIN
from molgcn.nn.registry import get_kind, layer_names

NUM_FEATURES, NUM_EDGE_FEATURES, STEPS, NUM_DESCRIPTORS = 6, 3, 4, 5

# Every option of the network, in few combinations that show each together with others.
OPTIONS = {
    "plain": {},
    "gnn+": {
        "norm": "batch",
        "residual": True,
        "feed_forward": True,
        "embed": True,
        "embed_bonds": True,
        "rwse": 4,
        "rwse_dim": 5,
        "bond_rw": 4,
        "descriptor_channels": NUM_DESCRIPTORS,
    },
    "norms": {
        "norm": "layer",
        "last_activation": False,
        "feed_forward": True,
        "feed_forward_norm": "layer",
        "head_layers": 2,
        "pool": "sum",
    },
    "blocks without norm": {"feed_forward": True, "feed_forward_norm": None, "activation": "gelu", "pool": "norm", "init": "glorot"},
    "attention": {
        "pool": "attention",
        "readout": "all",
        "activation": "silu",
        "head_channels": [7, 5],
        "residual": True,
        "init": "kaiming",
        "descriptor_channels": NUM_DESCRIPTORS,
    },
    "max": {"pool": "max", "activation": "elu", "norm": "batch", "rwse": 4, "rwse_dim": 3, "embed_bonds": True},
    "leaky": {"activation": "leaky_relu", "head_layers": 1, "embed": True},
}


def fitting(conv: str, options: dict) -> dict:
    """Return those options that a network of these layers can have, with bonds where its layers see them."""
    kind = get_kind(conv)
    options = {name: value for name, value in options.items() if name not in kind.without or value == PLAIN[name]}
    if kind.bonds == "never":
        return {name: value for name, value in options.items() if name not in ("embed_bonds", "bond_rw")}
    return {**options, "edge_channels": NUM_EDGE_FEATURES}


CASES = [(conv, name) for conv in layer_names() for name in OPTIONS]
RICH = [(conv, "gnn+") for conv in layer_names()]  # has most of the options
ONCE = RICH + [("gine", name) for name in OPTIONS if name != "gnn+"]


def network(conv: str, options: dict, backend: str = "reference", num_layers: int = 3, **more) -> MoleculeNet:
    """Return a network in float64, drawn with one seed."""
    torch.manual_seed(0)
    return MoleculeNet(NUM_FEATURES, 12, num_layers, 2, conv=conv, backend=backend, **fitting(conv, options), **more).double()


def molecule(num_atoms: int, bonds: list[tuple[int, int]], seed: int = 0) -> Data:
    """Return a graph with both directions of each bond, features and encodings drawn at random."""
    generator = torch.Generator().manual_seed(seed)
    one_way = torch.tensor(bonds, dtype=torch.int64).reshape(-1, 2).T
    edge_index = torch.cat([one_way, one_way.flip(0)], dim=1)
    rows = {"x": (num_atoms, NUM_FEATURES), "rwse": (num_atoms, STEPS)}
    rows |= {
        "edge_attr": (edge_index.shape[1], NUM_EDGE_FEATURES),
        "bond_rw": (edge_index.shape[1], STEPS),
        "descriptors": (1, NUM_DESCRIPTORS),
    }
    drawn = {name: torch.rand(shape, generator=generator, dtype=torch.double) for name, shape in rows.items()}
    return Data(edge_index=edge_index, **drawn)


def random_molecule(num_atoms: int, num_bonds: int, seed: int) -> Data:
    """Return a graph with bonds anywhere, duplicates and self-loops among them."""
    pairs = torch.randint(num_atoms, (num_bonds, 2), generator=torch.Generator().manual_seed(seed))
    return molecule(num_atoms, [tuple(pair) for pair in pairs.tolist()], seed)


CHAIN = [(0, 1), (1, 2), (2, 3)]
BATCHES = {
    "many": [
        molecule(1, []),
        molecule(4, CHAIN),
        molecule(6, CHAIN, 1),
        molecule(3, [(0, 1), (0, 1), (1, 2), (2, 2)]),
        random_molecule(9, 12, 2),
    ],
    "no bonds": [molecule(3, []), molecule(1, []), molecule(2, [])],
    "one molecule": [molecule(4, CHAIN)],
    "300 atoms": [random_molecule(300, 330, 3), molecule(2, [(0, 1)])],
}


def batch_of(name: str) -> Batch:
    """Return the batch called `name` as a batch of PyG."""
    return Batch.from_data_list(BATCHES[name])


COMPONENTS = [
    [molecule(4, CHAIN), random_molecule(9, 12, 2), molecule(1, [])],
    [molecule(1, [], 3), molecule(6, CHAIN, 4), random_molecule(30, 40, 5)],
]


def joined():
    """Return the rows with one graph each, as :func:`molgcn.data.components.join_components` makes them."""
    apart = Batch.from_data_list([one for row in zip(*COMPONENTS, strict=True) for one in row])
    apart.component = (apart.batch % 2).int()
    apart.batch, apart._num_graphs, apart.ptr = apart.batch // 2, 3, apart.ptr[::2]
    apart.edge_index, apart.edge_attr = apart.edge_index, apart.edge_attr
    del apart.descriptors
    return apart
