import itertools
import os
import pickle
from pathlib import Path

import pytest
import torch
from run_cases import CheckpointsBy, KeepCopies

from molgcn.data.datamodule import MoleculeDataModule
from molgcn.errors import UserError
from molgcn.training.build import build_module
from molgcn.training.checkpoint import RunCheckpoint
from molgcn.training.checkpoint_file import load_checkpoint, write
from molgcn.training.checkpoint_format import FORMAT
from molgcn.training.checkpoint_io import AtomicCheckpointIO
from molgcn.training.loggers import MetricsCSV
from molgcn.training.trainer import build_trainer


class Evil:
    def __reduce__(self):
        return os.system, ("true",)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "not a readable checkpoint"),
        (b"no checkpoint at all", "not a readable checkpoint"),
        (pickle.dumps(Evil()), "not a readable checkpoint"),
    ],
)
def test_unreadable_files(content, message, tmp_path):
    (tmp_path / "x.ckpt").write_bytes(content)
    with pytest.raises(UserError, match=message):
        load_checkpoint(tmp_path / "x.ckpt")


def test_foreign_and_missing_files(tmp_path):
    torch.save({"state_dict": {}}, tmp_path / "foreign.ckpt")
    with pytest.raises(UserError, match="was not written by molgcn"):
        load_checkpoint(tmp_path / "foreign.ckpt")
    torch.save({"molgcn": Evil()}, tmp_path / "evil.ckpt")
    with pytest.raises(UserError, match="not a readable checkpoint"):
        load_checkpoint(tmp_path / "evil.ckpt")
    with pytest.raises(UserError, match="There is no checkpoint"):
        load_checkpoint(Path("nowhere.ckpt"))


def test_cut_off_file(tmp_path):
    write({"molgcn": {}, "tensor": torch.zeros(1000)}, tmp_path / "a.ckpt")
    content = (tmp_path / "a.ckpt").read_bytes()
    (tmp_path / "a.ckpt").write_bytes(content[: len(content) // 2])
    with pytest.raises(UserError, match="not a readable checkpoint"):
        load_checkpoint(tmp_path / "a.ckpt")


def test_a_file_is_read_as_it_was_last_written(tmp_path):
    plugin = AtomicCheckpointIO()
    for value in range(3):
        plugin.save_checkpoint({"molgcn": {"format": FORMAT}, "value": value}, tmp_path / "a.ckpt")
        assert plugin.load_checkpoint(tmp_path / "a.ckpt")["value"] == value
    plugin.teardown()


@pytest.mark.parametrize(
    ("tick", "options", "steps"),
    [(0.0, {"max_epochs": 3}, [8, 24]), (0.0, {"max_steps": 10}, [8, 10]), (2.0, {"max_epochs": 3}, [8, 16, 24])],
)
def test_short_epochs_do_not_wait_for_the_disk(tmp_path, small_config, tick, options, steps):
    """The first and the last epoch write in any case, so that a run can be resumed however soon it is interrupted."""
    config, clock = small_config(trainer=options), itertools.count(step=tick)
    data = MoleculeDataModule(config.dataset, config.loader, config.backend.name, config.seed)
    module, io = build_module(config, data), KeepCopies()
    folder = tmp_path / "run"
    folder.mkdir()
    checkpoint = RunCheckpoint(folder / "checkpoints", seconds=1000, clock=lambda: next(clock))
    logger = MetricsCSV(folder / "metrics.csv", module.task.keys("val"))
    build_trainer(config.trainer, [CheckpointsBy(io), checkpoint], [logger], folder).fit(module, datamodule=data)
    lasts, bests = ([load_checkpoint(copy / "checkpoints" / name) for copy in io.copies] for name in ("last.ckpt", "best.ckpt"))
    assert [last["global_step"] for last in lasts] == steps
    assert [best["epoch"] for best in bests] == [last["callbacks"]["RunCheckpoint"]["best_epoch"] for last in lasts]
