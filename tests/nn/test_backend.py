import pytest

from molgcn.config import BackendConfig
from molgcn.errors import UserError
from molgcn.nn import backend
from molgcn.nn.backend import check_strategy, resolve_backend


@pytest.mark.parametrize(
    ("extension", "capability", "hidden", "expected"),
    [
        (True, None, 64, "fused"),
        (False, None, 64, "pyg"),
        (True, (9, 0), 512, "fused"),
        (True, (9, 0), 4096, "pyg"),
        (False, (8, 0), 64, "fused"),
        (True, (7, 5), 64, "pyg"),
    ],
)
def test_auto_is_what_can_train_the_model(extension, capability, hidden, expected, monkeypatch):
    monkeypatch.setattr(backend, "HAS_CPU_EXTENSION", extension)
    monkeypatch.setattr("torch.cuda.is_available", lambda: capability is not None)
    monkeypatch.setattr("torch.cuda.get_device_capability", lambda: capability)
    assert resolve_backend("auto", hidden).name == expected
    assert resolve_backend("pyg", hidden).name == "pyg"


def test_what_is_missing_is_said(monkeypatch):
    monkeypatch.setattr(backend, "HAS_CPU_EXTENSION", False)
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    with pytest.raises(UserError, match="pip install -e"):
        resolve_backend("fused")
    with pytest.raises(UserError, match="backend=dgl is unknown"):
        resolve_backend("dgl")
    with pytest.raises(UserError, match="has only auto"):
        check_strategy("layer", "pyg")


def test_earlier_names_of_strategies_mean_the_same():
    assert [check_strategy(name, "fused") for name in ("stack", "vertex", "tile", "layer", "auto")] == ["tile", "layer"] * 2 + ["auto"]
    assert BackendConfig("fused", "vertex").strategy == "vertex"  # the given name is kept, so that earlier runs go on
    with pytest.raises(UserError, match=r"strategy=vertexes is unknown\. Expected one of auto, tile, layer"):
        BackendConfig("fused", "vertexes")
