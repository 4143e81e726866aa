import pytest
import torch
from lightning.pytorch.profilers import SimpleProfiler

from molgcn.errors import UserError
from molgcn.replicates.run import train_all
from molgcn.training.trainer import build_trainer


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"gradient_clip_val": 1.0}, r"training\.gradient_clip_norm"),
        ({"accumulate_grad_batches": 2}, r"training\.accumulate_batches"),
        ({"logger": False}, "logger=csv"),
        ({"max_epoch": 3}, r"Did you mean trainer\.max_epochs"),
        ({"limit_train_batches": 0}, r"limit_train_batches=0 is not valid.*trainer\.max_epochs=0"),
        ({"limit_test_batches": 0.5}, r"limit_test_batches is not an option of this program. Use dataset\.subset"),
        ({"check_val_every_n_epoch": -1}, r"check_val_every_n_epoch=-1 is not valid: expected more than 0"),
        ({"check_val_every_n_epoch": 0}, r"trainer\.limit_val_batches=0"),
        ({"precision": "16-mixed"}, "bf16-mixed"),
        ({"accelerator": "cpu", "devices": 0}, r"trainer\.devices=0 is not valid: expected at least 1"),
        *(
            ({"strategy": f"ddp_{how}", "accelerator": "cpu", "devices": 2}, rf"trainer\.strategy=ddp_{how} .*Use trainer\.strategy=ddp,")
            for how in ("spawn", "fork", "notebook")
        ),
        ({"strategy": "fsdp", "accelerator": "cpu", "devices": 2}, r"Trainer refuses|trainer\.strategy=fsdp does not"),
        ({"accelerator": "abacus"}, "Lightning's Trainer refuses"),
    ],
)
def test_refusals_name_the_alternative(options, message, tmp_path):
    with pytest.raises(UserError, match=message):
        build_trainer(options, [], [], tmp_path)


def test_several_nodes_need_a_launcher(tmp_path, monkeypatch):
    """Otherwise Lightning's process would wait for the others forever."""
    for name in ("MASTER_ADDR", "SLURM_JOB_ID", "LSB_JOBID"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(UserError, match=r"trainer\.num_nodes=2, but nothing started .* torchrun"):
        build_trainer({"num_nodes": 2, "accelerator": "cpu", "max_epochs": 1}, [], [], tmp_path)
    monkeypatch.setenv("MASTER_ADDR", "node0")
    assert build_trainer({"num_nodes": 2, "accelerator": "cpu", "max_epochs": 1}, [], [], tmp_path).num_nodes == 2


def test_no_gpu_is_said_in_words(tmp_path, monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    for name in ("gpu", "cuda"):
        with pytest.raises(UserError, match=f"accelerator={name}, but torch sees no CUDA GPU"):
            build_trainer({"accelerator": name}, [], [], tmp_path)


@pytest.mark.parametrize("split", ["random", "cv"])
def test_options_are_refused_before_the_data_is_read(split, tmp_path, small_config):
    """The file does not exist, which would be an error too."""
    dataset = {"name": "csv", "path": str(tmp_path / "none.csv"), "targets": ["y"], "subset": None, "split": split}
    with pytest.raises(UserError, match=r"trainer\.precision=16-mixed is not supported"):
        train_all(small_config(dataset=dataset, trainer={"precision": "16-mixed"}), tmp_path / "run")


@pytest.mark.parametrize(("given", "measures"), [({}, False), ({"profiler": None}, False), ({"profiler": "simple"}, True)])
def test_hooks_are_timed_by_the_profiler_that_was_asked_for(given, measures, tmp_path):
    profiler = build_trainer({"accelerator": "cpu", **given}, [], [], tmp_path).profiler
    with profiler.profile("hook"):
        pass
    assert isinstance(profiler, SimpleProfiler) == measures
    if measures:
        assert len(profiler.recorded_durations["hook"]) == 1


@pytest.mark.parametrize("deterministic", [True, "warn", False])
def test_determinism_fills_no_memory(deterministic, tmp_path):
    """PyTorch need not fill memory, since operators never read it before writing; their tests poison uninitialised memory."""
    build_trainer({"accelerator": "cpu", "deterministic": deterministic}, [], [], tmp_path)
    assert torch.are_deterministic_algorithms_enabled() == bool(deterministic)
    assert torch.utils.deterministic.fill_uninitialized_memory == (not deterministic)
