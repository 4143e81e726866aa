import pytest

from molgcn.errors import UserError
from molgcn.nn import MoleculeNet, backend
from molgcn.nn.backend import check_strategy, resolve_backend


@pytest.mark.parametrize(
    ("extension", "capability", "lack"),
    [
        (True, None, None),
        (False, None, "molgcn has no C++ extension for this machine"),
        (True, (9, 0), None),
        (False, (8, 0), None),
        (True, (7, 5), "the CUDA kernels need a GPU of compute capability 8.0 (Ampere) or later"),
    ],
)
def test_auto_is_what_can_train_the_model_and_says_so(extension, capability, lack, monkeypatch, caplog):
    caplog.set_level("INFO")
    monkeypatch.setattr(backend, "HAS_CPU_EXTENSION", extension)
    monkeypatch.setattr("torch.cuda.is_available", lambda: capability is not None)
    monkeypatch.setattr("torch.cuda.get_device_capability", lambda: capability)
    assert resolve_backend("auto").name == ("fused" if lack is None else "pyg")
    assert caplog.messages == ([] if lack is None else [f"backend=auto takes pyg, since {lack}."])
    assert resolve_backend("pyg").name == "pyg"


def test_what_is_missing_is_said(monkeypatch):
    monkeypatch.setattr(backend, "HAS_CPU_EXTENSION", False)
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    with pytest.raises(UserError, match="pip install -e"):
        resolve_backend("fused")
    with pytest.raises(UserError, match="backend=dgl is unknown"):
        resolve_backend("dgl")
    with pytest.raises(UserError, match=r"strategy=vertex is unknown\. Expected one of auto, tile, layer"):
        check_strategy("vertex", "fused")
    with pytest.raises(UserError, match="has only auto"):
        check_strategy("layer", "pyg")


def test_recomputing_is_refused_where_autograd_keeps_rows():
    with pytest.raises(UserError, match=r"backend\.recompute=true is for .*backend=pyg.* Use backend\.recompute=false\."):
        MoleculeNet(5, 8, 2, 1, conv="gin", backend="pyg", recompute=True)
