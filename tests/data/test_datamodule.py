"""The data set that jobs of one process share."""

import json
import os

from molgcn.data.config import DatasetConfig
from molgcn.data.datamodule import load_once


def test_a_file_that_changes_is_read_again(tmp_path):
    path = tmp_path / "mine.csv"
    rows = [f"{'C' * n},{n}" for n in range(1, 11)]
    path.write_text("\n".join(["smiles,y", *rows]))
    config = DatasetConfig(name="csv", path=str(path), targets=["y"])
    first = load_once(config)
    assert load_once(config) is first
    path.write_text("\n".join(["smiles,y", *rows, "CCO,7"]))
    assert len(load_once(config).molecules) == len(first.molecules) + 1


def test_another_split_of_the_same_name_is_read_again(tmp_path):
    (tmp_path / "mine.csv").write_text("\n".join(["smiles,y", *(f"{'C' * n},{n}" for n in range(1, 11))]))
    split = tmp_path / "split.json"
    config = DatasetConfig(name="csv", path=str(tmp_path / "mine.csv"), targets=["y"], split="file", split_file=str(split))
    sizes = []
    for border in (6, 7):
        split.write_text(json.dumps({"train": [*range(border)], "val": [*range(border, 9)], "test": [9]}))
        os.utime(split, (border, border))  # as long as the other one
        sizes.append(len(load_once(config).splits["train"]))
    assert sizes == [6, 7]
