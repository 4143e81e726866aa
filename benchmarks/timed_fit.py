"""Time the trainings in a command of a package that trains with Lightning.

It imports nothing of this project, so that the environment of another package can run it.
"""

import argparse
import contextlib
import importlib
import itertools
import json
import sys
import time
from collections.abc import Iterator


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("output", help="the JSON file to write: seconds and processor_seconds of all trainings, and seconds of each epoch")
    parser.add_argument("entry", metavar="module:function", help="what the command starts, such as chemprop.cli.main:main")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="the command's own")
    given = parser.parse_args()
    sys.path.pop(0)  # this folder, whose files have the names of the packages that they measure
    with timed_fits() as times:
        try:
            run(given.entry, given.arguments)
        finally:
            with open(given.output, "w") as file:
                json.dump(times, file)


def run(entry: str, arguments: list[str]) -> None:
    """Run a command, `module:function`, with its own arguments."""
    module, _, function = entry.partition(":")
    sys.argv = [entry, *arguments]
    getattr(importlib.import_module(module), function)()


@contextlib.contextmanager
def timed_fits() -> Iterator[dict]:
    """Time every `Trainer.fit` inside the `with` block, whose value grows with each of them."""
    from lightning.pytorch import Trainer  # takes seconds to import
    from lightning.pytorch.callbacks import LambdaCallback

    times: dict = {"seconds": 0.0, "processor_seconds": 0.0, "epoch_seconds": []}
    fit = Trainer.fit

    def timed(trainer: Trainer, *args: object, **kwargs: object) -> None:
        starts: list[float] = []
        trainer.callbacks.append(LambdaCallback(on_train_epoch_start=lambda *_: starts.append(time.perf_counter())))
        start, processor = time.perf_counter(), time.process_time()
        fit(trainer, *args, **kwargs)
        end = time.perf_counter()
        times["seconds"] += end - start
        times["processor_seconds"] += time.process_time() - processor
        times["epoch_seconds"] += [after - before for before, after in itertools.pairwise([*starts, end])]

    Trainer.fit = timed
    try:
        yield times
    finally:
        Trainer.fit = fit


if __name__ == "__main__":
    main()
