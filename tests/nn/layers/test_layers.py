"""Every layer of the registry in plain PyTorch has the parameters, the weights per seed and the results of its PyG layer."""

import pytest
import torch
from torch import nn

from molgcn.errors import UserError
from molgcn.nn.layers.base import LayerKind, LayerOptions
from molgcn.nn.layers.propagate import max_incoming
from molgcn.nn.registry import get_kind, layer_names

KINDS = {name: get_kind(name) for name in layer_names()}

MLPS = [
    {"mlp_norm": True},
    {"eps": 0.5},
    {"train_eps": True},
    *({"mlp_activation": name} for name in ("gelu", "silu", "leaky_relu", "elu", "tanh")),
]
ATTENTION = [
    {"heads": 4},
    {"heads": 3, "concat": False, "linear_residual": True},
    {"heads": 2, "negative_slope": 0.5, "bias": False},
    {"heads": 2, "attention_dropout": 0.4},
]
VARIANTS = {
    "gcn": [{"add_self_loops": False}],
    "gin": MLPS,
    "gine": MLPS,
    "sage": [{"aggr": "sum"}, {"aggr": "max"}, {"project": True, "aggr": "max"}, {"normalize": True}, {"root_weight": False}],
    "gat": ATTENTION,
    "gatv2": [*ATTENTION, {"heads": 2, "share_weights": True}],
    "dmpnn": [{"undirected": True}, {"message_bias": True}],
}
CHANNELS = 6


def case(kind: LayerKind, edge_channels: int | None, settings: dict):
    words = [kind.name, *([f"bonds={edge_channels}"] if edge_channels else []), *(f"{key}={value}" for key, value in settings.items())]
    return pytest.param(kind, LayerOptions(CHANNELS, 8, edge_channels, settings), id="-".join(words))


EDGE_CHANNELS = {"never": [None], "optional": [None, 3], "always": [3, CHANNELS]}
DEFAULTS = [case(kind, width, {}) for kind in KINDS.values() for width in EDGE_CHANNELS[kind.bonds]]
ONCE = [case(kind, EDGE_CHANNELS[kind.bonds][-1], {}) for kind in KINDS.values()]
OTHERS = [case(KINDS[name], EDGE_CHANNELS[KINDS[name].bonds][-1], settings) for name, variants in VARIANTS.items() for settings in variants]
CASES = pytest.mark.parametrize(("kind", "options"), DEFAULTS + OTHERS)


def random_bonds(num_atoms: int, num_bonds: int, seed: int) -> tuple[int, torch.Tensor]:
    """Return bonds in any order and direction, with duplicates and self-loops."""
    return num_atoms, torch.randint(0, num_atoms, (2, num_bonds), generator=torch.Generator().manual_seed(seed))


GRAPHS = {
    "one atom": (1, torch.empty(2, 0, dtype=torch.long)),
    "no bonds": (5, torch.empty(2, 0, dtype=torch.long)),
    "isolated atoms": (7, torch.tensor([[1, 2, 5, 2], [2, 1, 2, 5]])),
    "duplicate bonds": (4, torch.tensor([[0, 1, 0, 1, 0, 1, 2], [1, 0, 1, 0, 1, 0, 1]])),
    "self-loops": (4, torch.tensor([[0, 0, 1, 1, 2, 3], [0, 0, 1, 2, 1, 3]])),
    "padded bonds": (6, torch.tensor([[0, 1, 1, 2, 5, 5, 5], [1, 0, 2, 1, 5, 5, 5]])),
    "300 atoms": random_bonds(300, 700, seed=0),
    **{f"random {seed}": random_bonds(3 * seed + 2, 8 * seed, seed) for seed in range(1, 5)},
}
FEW = ("one atom", "isolated atoms", "duplicate bonds", "self-loops", "random 3")


def both_layers(kind: LayerKind, options: LayerOptions) -> tuple[nn.Module, nn.Module]:
    """Return both layers in float64 with the same parameters, none of them 0."""
    reference, pyg = kind.reference(options).double(), kind.pyg(options).double()
    for parameter in reference.parameters():
        nn.init.normal_(parameter)
    pyg.load_state_dict(reference.state_dict())
    return reference, pyg


def features(options: LayerOptions, num_atoms: int, edge_index: torch.Tensor, dtype=torch.float64):
    """Return random states of the atoms and, if the layer sees bonds, of the bonds."""
    x = torch.randn(num_atoms, options.in_channels, dtype=dtype)
    bonds = None if options.edge_channels is None else torch.randn(edge_index.shape[1], options.edge_channels, dtype=dtype)
    return x, bonds


def outputs(layer: nn.Module, *arguments) -> tuple[torch.Tensor, ...]:
    """Return the atoms' states and, if the layer changes them, the bonds' states."""
    given = [argument for argument in arguments if argument is not None]
    out = layer(*given)
    return out if isinstance(out, tuple) else (out,)


def results(layer: nn.Module, x, edge_index, edge_attr, seed: int = 1) -> dict[str, torch.Tensor]:
    """Return the outputs, all gradients and the buffers afterwards."""
    x = x.clone().requires_grad_()
    edge_attr = None if edge_attr is None else edge_attr.clone().requires_grad_()
    torch.manual_seed(seed)  # seeds dropout
    outs = outputs(layer, x, edge_index, edge_attr)
    inputs = {"x": x, **({} if edge_attr is None else {"edge_attr": edge_attr}), **dict(layer.named_parameters())}
    torch.manual_seed(2)
    loss = sum((out * torch.randn(out.shape, dtype=torch.float64)).sum() for out in outs)
    gradients = torch.autograd.grad(loss, list(inputs.values()), materialize_grads=True)
    return {
        **{f"output {i}": out.detach() for i, out in enumerate(outs)},
        **{f"gradient of {name}": gradient for name, gradient in zip(inputs, gradients, strict=True)},
        **dict(layer.named_buffers()),
    }


def assert_same(actual: dict[str, torch.Tensor], expected: dict[str, torch.Tensor], graph: str) -> None:
    assert list(actual) == list(expected)
    for name, value in expected.items():
        torch.testing.assert_close(actual[name], value, rtol=1e-10, atol=1e-10, msg=lambda text, name=name: f"{graph}, {name}: {text}")


@CASES
def test_outputs_and_gradients_are_those_of_pyg(kind, options):
    for graph in FEW if options.settings else GRAPHS:
        torch.manual_seed(0)
        num_atoms, edge_index = GRAPHS[graph]
        reference, pyg = both_layers(kind, options)
        one_row = num_atoms == 1  # for which batch norm in training raises
        other_mask = "attention_dropout" in options.settings and bool((edge_index[0] == edge_index[1]).any())  # PyG draws none for loops
        for layer in (reference, pyg):
            layer.train(not one_row and not other_mask)
        x, edge_attr = features(options, num_atoms, edge_index)
        assert_same(results(reference, x, edge_index, edge_attr), results(pyg, x, edge_index, edge_attr), graph)


@CASES
def test_one_seed_gives_both_backends_the_same_weights(kind, options):
    drawn = []
    for build in (kind.reference, kind.pyg):
        torch.manual_seed(7)
        layer = build(options)
        built = {name: value.clone() for name, value in layer.state_dict().items()}
        layer.reset_parameters()
        drawn.append((built, layer.state_dict(), [name for name, _ in layer.named_parameters()], torch.rand(1)))
    (built, again, names, following), (pyg_built, pyg_again, pyg_names, pyg_following) = drawn
    assert list(built) == list(pyg_built) and names == pyg_names
    assert all(torch.equal(built[name], pyg_built[name]) and torch.equal(again[name], pyg_again[name]) for name in built)
    assert torch.equal(following, pyg_following)


@pytest.mark.parametrize(("kind", "options"), ONCE)
def test_second_derivatives(kind, options):
    torch.manual_seed(0)
    num_atoms, edge_index = GRAPHS["self-loops"]
    layer = kind.reference(options).double()
    x, edge_attr = features(options, num_atoms, edge_index)
    inputs = [x.requires_grad_()] if edge_attr is None else [x.requires_grad_(), edge_attr.requires_grad_()]
    parameters = [parameter for parameter in layer.parameters() if parameter.dim() == 2][:1]

    def out(x, *rest):
        return outputs(layer, x, edge_index, *rest[: len(inputs) - 1])

    assert torch.autograd.gradgradcheck(out, (*inputs, *parameters))


@pytest.mark.parametrize(("kind", "options"), DEFAULTS)
def test_lower_precision_is_near(kind, options):
    torch.manual_seed(0)
    num_atoms, edge_index = GRAPHS["random 4"]
    layer = kind.reference(options)
    x, edge_attr = features(options, num_atoms, edge_index, torch.float32)
    single = results(layer, x, edge_index, edge_attr)
    with torch.autocast("cpu", torch.bfloat16):
        mixed = results(layer, x, edge_index, edge_attr)
    double = results(layer.double(), x.double(), edge_index, None if edge_attr is None else edge_attr.double())
    for name, value in double.items():
        assert (single[name] - value).norm() <= 1e-5 * (1 + value.norm()), name
        if name.startswith("output"):  # gradients jump where rounding moves an activation past its kink
            assert (mixed[name] - value).norm() <= 0.02 * value.norm(), name
        assert mixed[name].isfinite().all(), name


@pytest.mark.parametrize(("kind", "options"), ONCE)
def test_is_exported_with_any_number_of_atoms_and_bonds(kind, options):
    layer = kind.reference(options).double().eval()
    atoms, bonds = torch.export.Dim("atoms", min=2), torch.export.Dim("bonds", min=2)
    shapes = ({0: atoms}, {1: bonds}, *([] if options.edge_channels is None else [{0: bonds}]))
    arguments = []
    for graph in ("random 2", "300 atoms"):
        x, edge_attr = features(options, *GRAPHS[graph])
        arguments.append([each for each in (x, GRAPHS[graph][1], edge_attr) if each is not None])
    exported = torch.export.export(layer, tuple(arguments[0]), dynamic_shapes=shapes).module()
    for given in arguments:
        for actual, expected in zip(outputs(exported, *given), outputs(layer, *given), strict=True):
            torch.testing.assert_close(actual, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", [name for name, kind in KINDS.items() if kind.counts_atoms])
def test_a_layer_that_counts_atoms_leaves_padding_out(name):
    torch.manual_seed(0)
    num_atoms, edge_index = GRAPHS["random 4"]
    padding = torch.full((2, 5), num_atoms + 2)
    settings = {"mlp_norm": True} if "mlp_norm" in KINDS[name].own_settings else {}
    options = LayerOptions(CHANNELS, 8, EDGE_CHANNELS[KINDS[name].bonds][-1], settings)
    plain, padded = (KINDS[name].reference(options).double() for _ in range(2))
    padded.load_state_dict(plain.state_dict())
    x, edge_attr = features(options, num_atoms + 3, torch.cat([edge_index, padding], dim=1))
    bonds = [[], []] if edge_attr is None else [[edge_attr[:-5]], [edge_attr]]
    expected = plain(x[:num_atoms], edge_index, *bonds[0])
    actual = padded(x, torch.cat([edge_index, padding], dim=1), *bonds[1], count=torch.tensor(num_atoms))
    torch.testing.assert_close(actual[:num_atoms], expected, rtol=1e-10, atol=1e-10)
    for (key, mine), value in zip(padded.named_buffers(), plain.buffers(), strict=True):
        torch.testing.assert_close(mine, value, rtol=1e-10, atol=1e-10, msg=key)


def test_equally_large_neighbours_share_the_gradient_of_their_maximum():
    messages = torch.tensor([[2.0], [2.0], [1.0], [-3.0]], requires_grad=True)
    largest = max_incoming(messages, torch.tensor([0, 0, 0, 2]), 3)
    assert largest[:, 0].tolist() == [2, 0, -3]
    assert torch.autograd.grad(largest.sum(), messages)[0][:, 0].tolist() == [0.5, 0.5, 0, 1]


@pytest.mark.parametrize("name", KINDS)
def test_every_setting_is_tried(name):
    assert {key for settings in VARIANTS.get(name, []) for key in settings} == set(KINDS[name].own_settings)


@pytest.mark.parametrize(
    ("name", "settings", "words"),
    [
        ("gin", {"mlp_activation": "swish"}, "model.mlp_activation=swish: expected one of relu, gelu"),
        ("gat", {"heads": 3}, "model.heads=3 does not fit a layer of 4 channels: expected a divisor of 4"),
        ("gatv2", {"heads": 0, "concat": False}, "model.heads=0 does not fit"),
        ("gatv2", {"attention_dropout": 1.0}, "model.attention_dropout=1.0: expected a probability"),
        ("sage", {"aggr": "median"}, "model.aggr=median: expected one of mean, sum, max"),
    ],
)
@pytest.mark.parametrize("backend", ["reference", "pyg"])
def test_refuses_settings_out_of_range(name, settings, words, backend):
    with pytest.raises(UserError, match=words):
        getattr(KINDS[name], backend)(LayerOptions(4, 4, None, settings))
