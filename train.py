"""python train.py [dataset=...] [backend=...] [key=value ...]; see python train.py --help."""

from molgcn.cli import main

if __name__ == "__main__":
    main()
