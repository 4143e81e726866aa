"""Time the trainings in a command of a package that trains with Lightning.

It imports nothing of this project, so that the environment of another package can run it.
"""

import argparse
import importlib
import itertools
import json
import sys
import time


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("output", help="the JSON file to write: seconds and processor_seconds of all trainings, and seconds of each epoch")
    parser.add_argument("entry", metavar="module:function", help="what the command starts, such as chemprop.cli.main:main")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="the command's own")
    given = parser.parse_args()
    from lightning.pytorch import Trainer  # takes seconds to import
    from lightning.pytorch.callbacks import LambdaCallback

    sys.path.pop(0)  # this folder, whose files have the names of the packages that they measure
    spent = [0.0, 0.0]
    epochs: list[float] = []
    fit = Trainer.fit

    def timed(trainer: Trainer, *args: object, **kwargs: object) -> None:
        starts: list[float] = []
        trainer.callbacks.append(LambdaCallback(on_train_epoch_start=lambda *_: starts.append(time.perf_counter())))
        start = time.perf_counter(), time.process_time()
        fit(trainer, *args, **kwargs)
        for place, (clock, before) in enumerate(zip((time.perf_counter, time.process_time), start, strict=True)):
            spent[place] += clock() - before
        epochs.extend(after - before for before, after in itertools.pairwise([*starts, time.perf_counter()]))

    Trainer.fit = timed
    module, _, function = given.entry.partition(":")
    sys.argv = [given.entry, *given.arguments]
    try:
        getattr(importlib.import_module(module), function)()
    finally:
        with open(given.output, "w") as file:
            json.dump({"seconds": spent[0], "processor_seconds": spent[1], "epoch_seconds": epochs}, file)


if __name__ == "__main__":
    main()
