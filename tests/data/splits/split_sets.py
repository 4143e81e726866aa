from molgcn.data.splits.parts import PARTS


def as_sets(split):
    return {part: set(split[part].tolist()) for part in PARTS}
