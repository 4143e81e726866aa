import torch

from molgcn.data import PackedMolecules
from molgcn_benchmark.loaders import KEY, measure
from molgcn_benchmark.results import Table


def test_every_loader_batch_size_and_number_of_workers_once(tmp_path):
    molecules = PackedMolecules.from_smiles(["CCO", "c1ccccc1O", "CC(C)N", "C#N"])
    threads = torch.get_num_threads()
    path, cpu = tmp_path / "loaders.csv", torch.device("cpu")
    first = list(measure(molecules, "four", cpu, Table(path, KEY), [0], [2], epochs=1))
    assert [row["loader"] for row in first] == ["PyG DataLoader, main process", "packed, CPU, 1 thread"]
    assert all(row["molecules_per_second"] == round(2 / row["microseconds"] * 1e6) or row["microseconds"] > 1 for row in first)
    second = list(measure(molecules, "four", cpu, Table(path, KEY), [0, 1], [2, 4], epochs=1))
    found = [(row["loader"], row["batch_size"]) for row in second]
    pyg, packed = "PyG DataLoader, main process", "packed, CPU, 1 thread"
    assert found == [("PyG DataLoader, 1 workers", 2), (pyg, 4), ("PyG DataLoader, 1 workers", 4), (packed, 4)]
    assert torch.get_num_threads() == threads
