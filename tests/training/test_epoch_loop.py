"""An epoch is the same whether Lightning calls every hook at each batch or only those callbacks are called that listen."""

import pytest
from lightning import Callback
from lightning.pytorch.callbacks import LambdaCallback
from run_cases import assert_same_run

from molgcn.training.epoch_loop import EpochLoop
from molgcn.training.train import train


class Logs(Callback):
    """A user's callback, which logs within the batches, and reads what the epoch gave."""

    def __init__(self):
        self.seen, self.means = [], []

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        assert isinstance(trainer.fit_loop.epoch_loop, EpochLoop)
        self.seen.append((trainer.current_epoch, batch_idx, trainer.is_last_batch))
        pl_module.log("mine", float(batch_idx), on_step=False, on_epoch=True, logger=False, batch_size=1)

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
