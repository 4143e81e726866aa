import os
import sys
import threading
import time
from collections import OrderedDict
from contextlib import ExitStack

import pytest
import torch
from lightning.pytorch.callbacks import LambdaCallback
from run_cases import CheckpointsBy
from torch import nn

from molgcn.errors import UserError
from molgcn.training.checkpoint_file import load_checkpoint, write
from molgcn.training.checkpoint_format import FORMAT
from molgcn.training.checkpoint_io import AtomicCheckpointIO
from molgcn.training.host_copy import HostCopy
from molgcn.training.train import train


def threads():
    return [thread for thread in threading.enumerate() if thread.name.startswith("molgcn-checkpoint")]


class SlowDisk:
    """A disk that writes when it is told to, and lists what it wrote."""

    def __init__(self):
        self.go, self.written = threading.Event(), []

    def write(self, checkpoint, path):
        assert self.go.wait(30)
        write(checkpoint, path)
        self.written.append(path.name)


def everything(device):
    """Return a checkpoint with every kind of value, with tensors on a device."""
    norm = nn.BatchNorm1d(3).to(device)
    long = torch.arange(12, device=device)
    return {
        "state_dict": norm.state_dict(),
        "nested": [(torch.ones(2, 3, device=device, dtype=torch.double), {"step": torch.tensor(4.0, device=device)}), torch.zeros(0, 5)],
        "strided": long.view(3, 4).T,
        "twice": [long, long],
        "bytes": torch.get_rng_state(),
        "plain": (1, 2.5, "three", None, [4], {"five": 6}),
    }


def tensors(checkpoint):
    """Return the tensors of :func:`everything`."""
    double, step = checkpoint["nested"][0]
    others = [checkpoint["nested"][1], checkpoint["strided"], *checkpoint["twice"], checkpoint["bytes"]]
    return [*checkpoint["state_dict"].values(), double, step["step"], *others]


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_a_copy_is_what_was_there_when_it_was_made(device):
    checkpoint, expected = everything(device), everything("cpu")
    copied = HostCopy(checkpoint).checkpoint()
    for tensor in tensors(checkpoint):
        tensor.detach().zero_()
    assert isinstance(copied["state_dict"], OrderedDict)
    assert copied["state_dict"]._metadata == expected["state_dict"]._metadata
    assert copied["plain"] == expected["plain"]
    assert copied["plain"][4] is not checkpoint["plain"][4]
    mine, theirs = (tensors(value) for value in (copied, expected))
    for tensor, original in zip(mine, theirs, strict=True):
        assert (tensor.device.type, tensor.dtype, tensor.requires_grad) == ("cpu", original.dtype, False)
        if not torch.equal(original, torch.get_rng_state()):
            torch.testing.assert_close(tensor, original, rtol=0, atol=0)


@pytest.mark.gpu
def test_a_copy_waits_for_the_steps_before_it_and_not_for_those_behind():
    weights = torch.zeros(1_000_000, device="cuda")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(100):
            weights.add_(1.0)
    graph.replay()
    torch.cuda.synchronize()
    weights.zero_()
    for step in range(1, 4):
        for _ in range(5):
            graph.replay()
        copied = HostCopy({"weights": weights}).checkpoint()
        graph.replay()
        assert copied["weights"].eq(100.0 * (6 * step - 1)).all()


def test_training_goes_on_while_files_are_written_in_order(tmp_path):
    disk, value = SlowDisk(), torch.zeros(3)
    writer = AtomicCheckpointIO(disk.write)
    for name in ("best", "last"):
        value += 1
        writer.save_checkpoint({"molgcn": {"format": FORMAT}, "value": value}, tmp_path / "run" / name)  # nothing can be written yet
    value += 1
    assert disk.written == []
    threading.Timer(0.05, disk.go.set).start()
    writer.save_checkpoint({"molgcn": {"format": FORMAT}, "value": value}, tmp_path / "run" / "best")  # waits for one of the two
    assert disk.written[0] == "best"
    writer.wait()
    assert disk.written == ["best", "last", "best"]
    assert [load_checkpoint(tmp_path / "run" / name)["value"].tolist() for name in ("best", "last")] == [[3.0] * 3, [2.0] * 3]
    assert len(threads()) == 1
    writer.teardown()
    assert threads() == []
    writer.save_checkpoint({"molgcn": {"format": FORMAT}}, tmp_path / "after")
    writer.teardown()
    assert load_checkpoint(tmp_path / "after")["molgcn"]
    assert sorted(os.listdir(tmp_path / "run")) == ["best", "last"]


def test_the_newest_of_checkpoints_that_follow_each_other_soon_is_written_before_another_file(tmp_path):
    disk, value = SlowDisk(), torch.zeros(3)
    disk.go.set()
    writer = AtomicCheckpointIO(disk.write)

    def save(name, at_most_every):
        value.add_(1)
        writer.save_checkpoint({"molgcn": {"format": FORMAT}, "value": value}, tmp_path / name, at_most_every)

    def written(name):
        return torch.load(tmp_path / name)["value"].tolist()

    save("best", 1000.0)
    while disk.written != ["best"]:  # the first waits for nothing
        time.sleep(0.001)
    for _ in range(3):
        save("best", 1000.0)
    assert (disk.written, written("best")) == (["best"], [1.0] * 3)
    save("last", None)
    save("best", 1000.0)
    save("best", 1000.0)
    while len(disk.written) < 3:
        time.sleep(0.001)
    assert (disk.written, written("best"), written("last")) == (["best", "best", "last"], [4.0] * 3, [5.0] * 3)
    writer.teardown()
    assert (disk.written, written("best")) == (["best", "best", "last", "best"], [7.0] * 3)
    save("best", 0.05)
    while len(disk.written) < 5:
        time.sleep(0.001)
    save("best", 0.05)
    while len(disk.written) < 6:  # what waits is written when the time is over, though nobody asks
        time.sleep(0.001)
    assert written("best") == [9.0] * 3
    writer.teardown()
    assert threads() == []


def test_each_tensor_has_a_storage_of_its_own_in_the_file(tmp_path):
    writer = AtomicCheckpointIO()
    writer.save_checkpoint({"molgcn": {"format": FORMAT}, **everything("cpu")}, tmp_path / "a")
    writer.teardown()
    for tensor in tensors(load_checkpoint(tmp_path / "a")):
        assert tensor.untyped_storage().nbytes() == tensor.numel() * tensor.element_size()


def write_more(writer, path):
    """Write until the first checkpoint has to be on disk."""
    for _ in range(2):
        writer.save_checkpoint({}, path)


@pytest.mark.parametrize("end", [lambda writer, _: writer.wait(), lambda writer, _: writer.teardown(), write_more])
def test_a_failed_write_is_told_at_the_next_occasion_and_leaves_the_old_file(tmp_path, full_disk, end):
    path, writer = tmp_path / "last.ckpt", AtomicCheckpointIO()
    writer.save_checkpoint({"molgcn": {"format": FORMAT}, "value": 1}, path)
    writer.wait()
    with full_disk(50_000):
        writer.save_checkpoint({"molgcn": {"format": FORMAT}, "value": torch.zeros(100_000)}, path)
        with pytest.raises(UserError, match=r"last\.ckpt could not be written: File too large"):
            end(writer, tmp_path / "another")
    writer.teardown()  # it is told once
    assert load_checkpoint(path)["value"] == 1
    assert {*os.listdir(tmp_path)} - {"another"} == {"last.ckpt"}


@pytest.mark.parametrize("name", ["best.ckpt", "last.ckpt"])
def test_a_disk_that_fills_up_within_a_large_file(name, tmp_path, full_disk):
    """PyTorch's own writer raises a RuntimeError at a limit on the size of files."""
    large, path = {"molgcn": {"format": FORMAT}, "value": torch.zeros(100_000)}, tmp_path / "a run" / "checkpoints" / name
    for continues in (False, True):
        if continues:
            write({"molgcn": {"format": FORMAT}}, path.with_name("last.ckpt"))
        with full_disk(50_000), pytest.raises(UserError, match=f"{name} could not be written: File too large") as error:
            write(large, path)
        assert (f"'resume={tmp_path}/a run' continues from the earlier last.ckpt" in str(error.value)) is continues
        assert ("it was the run's first" in str(error.value)) is not continues
        assert os.listdir(path.parent) == (["last.ckpt"] if continues else [])


def test_threads_take_short_turns_only_while_a_file_is_written(tmp_path):
    before, during = sys.getswitchinterval(), []
    writer = AtomicCheckpointIO(lambda *_: during.append(sys.getswitchinterval()))
    writer.save_checkpoint({}, tmp_path / "a")
    writer.teardown()
    assert during[0] < before / 10
    assert sys.getswitchinterval() == before


@pytest.mark.parametrize("error", [RuntimeError("a bug"), KeyboardInterrupt()])
def test_a_run_that_breaks_off_has_its_checkpoints_on_disk(tmp_path, small_config, error):
    """The run breaks off after its first epoch, and the disk is slow."""
    disk = SlowDisk()

    def break_off(trainer, *_):
        if trainer.current_epoch == 1:
            threading.Timer(0.1, disk.go.set).start()
            raise error

    watchers = [CheckpointsBy(AtomicCheckpointIO(disk.write)), LambdaCallback(on_train_batch_start=break_off)]
    config = small_config(trainer={"limit_train_batches": 1}, training={"checkpoint_seconds": 0})
    with pytest.raises(type(error)):
        train(config, tmp_path, watchers)
    assert threads() == []
    assert [load_checkpoint(tmp_path / "checkpoints" / name)["global_step"] for name in ("best.ckpt", "last.ckpt")] == [1, 1]


def test_a_run_whose_disk_is_full_says_so(tmp_path, small_config, full_disk):
    config = small_config(trainer={"limit_train_batches": 2, "max_epochs": 1}, model={"hidden_channels": 64})
    with pytest.raises(UserError, match="File too large"), ExitStack() as disk:
        train(config, tmp_path, [LambdaCallback(on_train_start=lambda *_: disk.enter_context(full_disk(20_000)))])
    assert threads() == []
    assert os.listdir(tmp_path / "checkpoints") == []
