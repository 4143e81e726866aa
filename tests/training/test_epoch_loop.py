"""An epoch and its validation are the same whether Lightning calls every hook or only those callbacks are called that listen."""

import pytest
import torch
from lightning import Callback
from lightning.pytorch.callbacks import LambdaCallback
from run_cases import assert_same_run

from molgcn.training.checkpoint_file import load_checkpoint
from molgcn.training.epoch_loop import EpochLoop
from molgcn.training.train import train


class Logs(Callback):
    """A user's callback, which logs within the batches, and reads what the epoch gave."""

    def __init__(self):
        self.seen, self.means, self.validated = [], [], []

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        assert isinstance(trainer.fit_loop.epoch_loop, EpochLoop)
        self.seen.append((trainer.current_epoch, batch_idx, trainer.is_last_batch))
        pl_module.log("mine", float(batch_idx), on_step=False, on_epoch=True, logger=False, batch_size=1)

    def on_validation_batch_end(self, trainer, pl_module, outputs, batch, batch_idx, dataloader_idx=0):
        assert not pl_module.training and not torch.is_grad_enabled()
        pl_module.log("theirs", float(batch.num_graphs), logger=False, batch_size=batch.num_graphs, reduce_fx="sum")

    def on_validation_end(self, trainer, pl_module):
        self.validated.append(int(trainer.callback_metrics["theirs"]))

    def on_train_epoch_end(self, trainer, pl_module):
        self.means.append(float(trainer.callback_metrics["mine"]))


@pytest.mark.parametrize("options", [{}, {"max_epochs": -1, "max_steps": 11, "val_check_interval": 3}], ids=["epochs", "steps"])
def test_who_listens_does_not_change_what_is_learned(options, tmp_path, small_config):
    logs, counted = Logs(), []
    config = small_config(trainer={"max_epochs": 2, "log_every_n_steps": 3, **options})
    train(
        config, tmp_path / "nobody", [LambdaCallback(on_train_epoch_start=lambda trainer, _: counted.append(trainer.num_training_batches))]
    )
    train(config, tmp_path / "somebody", [logs])
    assert_same_run(tmp_path / "nobody", tmp_path / "somebody")
    batches = counted[0]
    expected = [(epoch, batch, batch + 1 == batches) for epoch in range(2) for batch in range(batches)]
    assert logs.seen == expected[: 11 if options else None]
    assert logs.means[0] == (batches - 1) / 2
    assert len(logs.means) == 2
    assert logs.validated == [30] * len(logs.validated) and len(logs.validated) == (3 if options else 2)
    ones, others = (load_checkpoint(tmp_path / name / "checkpoints" / "last.ckpt") for name in ("nobody", "somebody"))
    assert ones["loops"] == others["loops"]


def test_a_validation_may_read_a_part_and_leaves_frozen_norms_alone(tmp_path, small_config):
    seen = []
    told = LambdaCallback(
        on_validation_batch_end=lambda trainer, module, *_: seen.append(("eval", module.model.training)),
        on_train_batch_end=lambda trainer, module, *_: seen.append((module.model.training, module.model.norms[0].training)),
    )
    train(small_config(model={"norm": "batch"}), tmp_path / "before")
    config = small_config(
        model={"norm": "batch"},
        training={"freeze": 1},
        trainer={"max_epochs": 1, "limit_val_batches": 1, "val_check_interval": 3},
        ckpt_path=str(tmp_path / "before"),
    )
    for folder, watchers in (("nobody", []), ("somebody", [told])):
        train(config, tmp_path / folder, watchers)
    assert_same_run(tmp_path / "nobody", tmp_path / "somebody")
    assert seen.count(("eval", False)) == 2 and set(seen) == {("eval", False), (True, False)}
