"""Jobs of one process share a data set, and get batches in the layout that their model chooses."""

import json
import os
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from graphs import assert_tiles

from molgcn.data.config import DatasetConfig, LoaderConfig
from molgcn.data.datamodule import MoleculeDataModule, load_once
from molgcn.data.layout import BatchLayout
from molgcn.data.pyg import unpack_pyg
from molgcn.data.splits.given import save_split

FEW = DatasetConfig(name="builtin", subset=600)


def test_a_file_that_changes_is_read_again(tmp_path):
    path = tmp_path / "mine.csv"
    rows = [f"{'C' * n},{n}" for n in range(1, 11)]
    path.write_text("\n".join(["smiles,y", *rows]))
    config = DatasetConfig(name="csv", path=str(path), targets=["y"])
    first = load_once(config)
    assert load_once(config) is first
    path.write_text("\n".join(["smiles,y", *rows, "CCO,7"]))
    assert len(load_once(config).molecules) == len(first.molecules) + 1


def test_another_split_of_the_same_name_is_read_again(tmp_path):
    (tmp_path / "mine.csv").write_text("\n".join(["smiles,y", *(f"{'C' * n},{n}" for n in range(1, 11))]))
    split = tmp_path / "split.json"
    config = DatasetConfig(name="csv", path=str(tmp_path / "mine.csv"), targets=["y"], split="file", split_file=str(split))
    sizes = []
    for border in (6, 7):
        split.write_text(json.dumps({"train": [*range(border)], "val": [*range(border, 9)], "test": [9]}))
        os.utime(split, (border, border))  # both files have one length, so that only the time differs
        sizes.append(len(load_once(config).splits["train"]))
    assert sizes == [6, 7]


def test_a_saved_split_and_all_folds_are_of_the_same_molecules(tmp_path):
    config = DatasetConfig(subset=60, split="cv", folds=3, fold=0)
    first = load_once(config)
    save_split(tmp_path / "splits.json", first.splits, first.molecules.rows)
    saved = load_once(replace(config, fold=1), tmp_path / "splits.json")
    other = load_once(replace(config, fold=1))
    assert saved.molecules is first.molecules and other.molecules is first.molecules
    assert all(np.array_equal(saved.splits[part], first.splits[part]) for part in first.splits)
    assert not set(other.splits["test"].tolist()) & set(first.splits["test"].tolist())


def test_loaders_of_a_run_share_pygs_data(monkeypatch):
    """Training, validation and the measurements after them read the same parts."""
    sizes = []
    monkeypatch.setattr("molgcn.data.loader.unpack_pyg", lambda molecules: sizes.append(len(molecules)) or unpack_pyg(molecules))
    data = MoleculeDataModule(DatasetConfig(subset=60), LoaderConfig(name="pyg"), "pyg", seed=0)
    loaders = [data.train_dataloader(), data.val_dataloader(), data.evaluation_loader("train"), data.evaluation_loader("val")]
    batches = [torch.cat([batch.indices for batch in loader]).sort().values.tolist() for loader in loaders]
    assert batches[:2] == batches[2:] == [[*range(48)], [*range(6)]]
    assert sizes == [48, 6]


def with_layout(layout, backend="fused", loader="auto", batch_size=64):
    """Return a data module whose model chooses `layout`, if it may have it, and the list of sets that it was asked about."""
    asked = []

    def choose_layout(molecules, typical, device, precision, *, can_merge):
        assert len(set(typical.tolist())) == min(batch_size, len(molecules)) and typical.max() < len(molecules)
        asked.append((len(molecules), precision, can_merge))
        return layout if can_merge else BatchLayout(layout.tile_nodes, join_single=layout.join_single)

    return MoleculeDataModule(replace(FEW, batch_size=batch_size), LoaderConfig(name=loader), backend, 0, choose_layout), asked


@pytest.mark.parametrize(("backend", "loader", "merges"), [("fused", "auto", True), ("fused", "pyg", False), ("pyg", "auto", False)])
def test_equal_leaves_are_one_row_where_the_model_wishes_it_and_the_loader_can(backend, loader, merges):
    data, asked = with_layout(BatchLayout(64, merge_leaves=True), backend, loader)
    train, val = next(iter(data.train_dataloader())), next(iter(data.val_dataloader()))
    assert asked == [(len(data.part(part)), "32-true", merges) for part in ("train", "val")]
    assert train.leaves_merged == val.leaves_merged == merges
    assert (train.num_nodes < data.part("train").num_nodes_per_graph[train.indices].sum()) == merges
    assert_tiles(train)


@pytest.mark.parametrize("loader", ["packed", "pyg"])
@pytest.mark.parametrize("backend", ["fused", "pyg"])
@pytest.mark.parametrize(("wished", "given"), [(48, 48), (None, 64)])
def test_every_loader_and_backend_gets_the_tiles_that_the_model_wishes(backend, loader, wished, given):
    data, _ = with_layout(BatchLayout(wished), backend, loader)
    for batch in (next(iter(data.train_dataloader())), next(iter(data.val_dataloader()))):
        assert batch.tile_nodes == given
        assert_tiles(batch)


@pytest.mark.parametrize("join_single", [True, False])
def test_a_single_molecule_joins_the_batch_before_in_training_where_the_model_wishes_it(join_single):
    molecules = len(load_once(FEW).splits["train"])
    data, _ = with_layout(BatchLayout(join_single=join_single), batch_size=molecules - 1)
    assert len(data.train_dataloader()) == (1 if join_single else 2)
    assert len(data.val_dataloader()) == 1


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
@pytest.mark.parametrize(("given", "on_cpu", "on_gpu"), [(None, 40, 160), (7, 7, 7)])
def test_batches_of_evaluation(given, on_cpu, on_gpu, device):
    """On a GPU they are larger than those of training, since nothing is kept for backward."""
    expected = on_gpu if device == "cuda" else on_cpu
    data = MoleculeDataModule(replace(FEW, batch_size=40, eval_batch_size=given), LoaderConfig(), "fused", 0)
    data.trainer = SimpleNamespace(strategy=SimpleNamespace(root_device=torch.device(device)), global_rank=0, world_size=1)
    assert [loader.batch_size for loader in (data.train_dataloader(), data.val_dataloader())] == [40, expected]
