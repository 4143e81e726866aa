"""python train.py [dataset=...] [backend=...] [key=value ...]; see python train.py --help."""

from molgcn.__main__ import main

if __name__ == "__main__":
    main()
