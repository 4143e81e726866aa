"""Time the trainings in a command of a package that trains with Lightning: `python timed_fit.py OUT.json MODULE:FUNCTION ARGUMENTS`.

It stands alone, so that the environment of another package can run it.
"""

import importlib
import json
import sys
import time

from lightning.pytorch import Trainer


def main() -> None:
    output, entry, *arguments = sys.argv[1:]
    sys.path.pop(0)  # this folder, whose files are called as the packages that they measure
    spent = [0.0, 0.0]
    fit = Trainer.fit

    def timed(*args: object, **kwargs: object) -> None:
        start = time.perf_counter(), time.process_time()
        fit(*args, **kwargs)
        for place, (clock, before) in enumerate(zip((time.perf_counter, time.process_time), start, strict=True)):
            spent[place] += clock() - before

    Trainer.fit = timed
    module, _, function = entry.partition(":")
    sys.argv = [entry, *arguments]
    try:
        getattr(importlib.import_module(module), function)()
    finally:
        with open(output, "w") as file:
            json.dump({"seconds": spent[0], "processor_seconds": spent[1]}, file)


if __name__ == "__main__":
    main()
