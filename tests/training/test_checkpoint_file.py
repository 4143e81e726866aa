"""A checkpoint is read as it was written, or refused."""

from __future__ import annotations

import io
import random
import zipfile
from collections import OrderedDict

import pytest
import torch

from molgcn.errors import UserError
from molgcn.predict import PredictConfig, predict
from molgcn.training.checkpoint_file import load_checkpoint, write
from molgcn.training.checkpoint_format import FORMAT
from molgcn.training.train import train


def content():
    weights = OrderedDict(a=torch.arange(15.0).view(5, 3), b=torch.arange(7), c=torch.tensor([0.1, -2.5], dtype=torch.double))
    return {"molgcn": {"format": FORMAT, "config": {"lr": 1e-3, "names": ["x", "y"]}}, "state_dict": weights, "epoch": 3}


def parts(value):
    """Return nested values with tensors replaced by their bytes."""
    if isinstance(value, torch.Tensor):
        return value.dtype, value.shape, value.numpy().tobytes()
    return [(key, parts(item)) for key, item in value.items()] if isinstance(value, dict) else value


def test_a_flipped_bit_is_refused_or_does_not_matter(tmp_path):
    path, seen = tmp_path / "last.ckpt", {"refused": 0, "read": 0}
    write(content(), path)
    written = path.read_bytes()
    with zipfile.ZipFile(io.BytesIO(written)) as archive:
        folder_flags = [written.rindex(name.encode()) - 8 for name in archive.namelist()]  # which make PyTorch read nothing
    bits = [8 * at + 4 for at in folder_flags] + random.Random(0).sample(range(8 * len(written)), 600)
    for bit in bits:
        damaged = bytearray(written)
        damaged[bit // 8] ^= 1 << bit % 8
        path.write_bytes(damaged)
        try:
            assert parts(load_checkpoint(path)) == parts(content()), bit
            seen["read"] += 1
        except UserError:
            seen["refused"] += 1
    assert seen["refused"] > 250 and seen["read"] > 100  # padding and dates do not matter


def damage(path):
    """Flip a bit in the middle of the largest tensor."""
    with zipfile.ZipFile(path) as archive:
        entry = max(archive.infolist(), key=lambda entry: entry.file_size)
    data = bytearray(path.read_bytes())
    data[entry.header_offset + 200 + entry.file_size // 2] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize(("damaged", "intact"), [("best.ckpt", "last.ckpt"), ("last.ckpt", "best.ckpt")])
def test_the_other_one_is_named(damaged, intact, tmp_path):
    for name in (damaged, intact):
        write({**content(), "large": torch.zeros(5000)}, tmp_path / name)
    damage(tmp_path / damaged)
    with pytest.raises(
        UserError, match=rf"{damaged} is not a readable .* checksum .*{intact} beside it is intact: ckpt=\S*/{intact} "
    ) as error:
        load_checkpoint(tmp_path / damaged)
    assert "weights_only" not in str(error.value)
    damage(tmp_path / intact)
    with pytest.raises(UserError, match="Restore it from a copy, or train again"):
        load_checkpoint(tmp_path / damaged)


def test_every_reader_refuses_it(tmp_path, small_config):
    train(small_config(trainer={"max_epochs": 1}), tmp_path / "run")
    (tmp_path / "a.smi").write_text("C\n")
    last = tmp_path / "run" / "checkpoints" / "last.ckpt"
    damage(last)
    for use in (
        lambda: train(small_config(resume=str(tmp_path / "run")), tmp_path / "run"),
        lambda: train(small_config(ckpt_path=str(last)), tmp_path / "new"),
        lambda: predict(PredictConfig(ckpt=str(last), input=str(tmp_path / "a.smi"), output=str(tmp_path / "p.csv"))),
    ):
        with pytest.raises(UserError, match=r"last.ckpt is not a readable checkpoint.*best\.ckpt beside it is intact"):
            use()


def test_a_compressed_file_is_refused(tmp_path):
    """A few compressed bytes could fill the memory."""
    with zipfile.ZipFile(tmp_path / "x.ckpt", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("x/data.pkl", bytes(10_000_000))
    with pytest.raises(UserError, match="compressed"):
        load_checkpoint(tmp_path / "x.ckpt")
