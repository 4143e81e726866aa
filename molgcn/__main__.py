"""The commands `molgcn`, `python -m molgcn` and `python train.py`."""

from molgcn.process.signals import end_on_interrupt


def main() -> None:
    """Train as the command line says. Ctrl-C ends the process with one line, also while modules are imported."""
    end_on_interrupt()
    from molgcn.cli import main as train

    train()


if __name__ == "__main__":
    main()
