import csv

import pytest
from rdkit import Chem

from molgcn.data.config import DatasetConfig
from molgcn.data.load import load_dataset
from molgcn.data.saved_parts import save_parts

HEADER, LINES = ["note", "smiles", "y"], [[f'a, "{n}"', f"{'C' * n}O", f"{n}.0"] for n in range(1, 21)]


def write(path, header, lines):
    with open(path, "w", newline="") as file:
        csv.writer(file).writerows([header, *lines])


def read(folder):
    return {path.stem: [*csv.reader(open(path, newline=""))] for path in sorted(folder.glob("*.csv")) if path.stem != "x"}


def parts(tmp_path, **options):
    config = DatasetConfig(name="csv", targets=["y"], cache_dir=str(tmp_path / "cache"), num_workers=0, **options)
    data = load_dataset(config)
    out = tmp_path / "out"
    out.mkdir()
    save_parts(out, config, data)
    return data, read(out)


def test_rows_are_those_of_the_file(tmp_path):
    write(tmp_path / "x.csv", HEADER, [*LINES[:5], ["left out", "C1CC", "3"], *LINES[5:]])
    data, found = parts(tmp_path, path=str(tmp_path / "x.csv"), on_error="skip", calibration_fraction=0.2)
    assert {name: len(rows) - 1 for name, rows in found.items()} == {name: len(places) for name, places in data.splits.items()}
    assert all(rows[0] == HEADER for rows in found.values())
    assert sorted(row for rows in found.values() for row in rows[1:]) == sorted(LINES)
    for name, rows in found.items():
        assert [row[1] for row in rows[1:]] == [data.molecules.smiles[place] for place in data.splits[name]]


def test_several_files(tmp_path):
    write(tmp_path / "x.csv", HEADER, LINES[:15])
    write(tmp_path / "t.csv", ["y", "smiles", "more"], [[y, smiles, "m"] for _, smiles, y in LINES[15:]])
    _, found = parts(tmp_path, path=str(tmp_path / "x.csv"), test_path=str(tmp_path / "t.csv"))
    assert found["test"] == [[*HEADER, "more"], *(["", smiles, y, "m"] for _, smiles, y in LINES[15:])]
    assert all(row[3] == "" for row in found["train"][1:])


@pytest.mark.parametrize("name", ["x.smi", "x.sdf"])
def test_lists_and_structures(name, tmp_path):
    smiles = [f"{'C' * n}O" for n in range(1, 21)]
    if name == "x.smi":
        (tmp_path / name).write_text("smiles y\n" + "".join(f"{text} {place}\n" for place, text in enumerate(smiles)))
    else:
        with Chem.SDWriter(str(tmp_path / name)) as writer:
            for place, text in enumerate(smiles):
                molecule = Chem.MolFromSmiles(text)
                molecule.SetProp("y", str(place))
                writer.write(molecule)
    _, found = parts(tmp_path, path=str(tmp_path / name))
    rows = [row for part in found.values() for row in part[1:]]
    assert sorted((row[0], row[-1]) for row in rows) == sorted((text, str(place)) for place, text in enumerate(smiles))
