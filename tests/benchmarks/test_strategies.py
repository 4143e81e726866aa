import pytest
import torch

from molgcn.data import PackedMolecules
from molgcn.nn import GCN
from molgcn.ops.schedule import automatic
from molgcn_benchmark.candidates import build, capture
from molgcn_benchmark.strategies import Row, Work, strategies_for, table


def test_table_names_what_auto_takes():
    row = Row(Work("QM9", 128, 32, 12, {"norm": "batch"}), {"layer": 230.4, "pyg": 1234.6}, "layer")
    heading, _, line = table([row])
    assert heading == "| work | layer | pyg | auto |"
    assert line == "| QM9, B=128, H=32, L=12, norm=batch | 230 | 1,235 | layer |"


@pytest.mark.parametrize(
    ("norm", "hidden", "layers", "expected"),
    [
        (None, 32, 28, "tile"),
        ("layer", 96, 400, "tile"),
        ("batch", 32, 28, "layer"),
        (None, 97, 4, "layer"),
        (None, 32, 401, "layer"),
    ],
)
def test_auto(norm, hidden, layers, expected):
    assert automatic(norm, hidden, layers) == expected


@pytest.mark.parametrize(
    ("norm", "hidden", "layers", "tile"),
    [(None, 256, 28, True), ("layer", 97, 400, True), ("batch", 32, 28, False), (None, 257, 4, False), (None, 32, 401, False)],
)
def test_only_what_tile_cannot_do_is_measured_without_it(norm, hidden, layers, tile):
    found = strategies_for(Work("QM9", 128, hidden, layers, {"norm": norm}))
    assert found == (("tile",) if tile else ()) + ("layer",)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"norm": "batch", "residual": True, "last_activation": True, "add_self_loops": False, "pool": "max"},
        {"embed": True, "head_layers": 1, "dropout": 0.5, "init": "kaiming"},
    ],
)
def test_hoisted_pyg_is_the_same_network(options):
    batch = PackedMolecules.from_smiles(["CCO", "c1ccccc1N", "CC(=O)O"], features="qm9").batch(slice(None))
    batch.targets = torch.zeros(3, 1)
    model = GCN(batch.x.shape[1], 12, 3, 1, backend="pyg", **options)
    hoisted = build("pyg_hoisted", model, torch.device("cpu"))
    results = []
    for network, inputs in ((hoisted.model, hoisted.convert(batch)), (model, batch.to_pyg())):
        torch.manual_seed(0)  # seeds dropout
        results.append(network(inputs))
    torch.testing.assert_close(*results, rtol=1e-5, atol=1e-6)


@pytest.mark.gpu
def test_a_replay_outlives_the_workspaces_that_calls_share():
    """torch.compile, which PyG's compiled form uses, frees these workspaces and the allocator's cache."""
    weight, product = torch.randn(512, 512, device="cuda"), torch.empty(512, 512, device="cuda")
    replay = capture(lambda: torch.mm(weight, weight, out=product))
    expected = (weight.double() @ weight.double()).float()
    torch._C._cuda_clearCublasWorkspaces()
    torch.cuda.empty_cache()
    product.zero_()
    replay()
    torch.testing.assert_close(product, expected, rtol=1e-3, atol=1e-3)
