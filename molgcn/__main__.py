"""The commands `molgcn`, `python -m molgcn` and `python train.py`."""

from molgcn.signals import end_on_interrupt


def main() -> None:
    """Trains as the command line says; Ctrl-C ends it in one line also while it imports what it needs."""
    end_on_interrupt()
    from molgcn.cli import main as train

    train()


if __name__ == "__main__":
    main()
