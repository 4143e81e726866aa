"""An evaluation says which molecules training has seen, and which are unlike those."""

import json

import numpy as np
import pytest
from evaluate_cases import config, rows_of
from evaluate_cases import run as run
from rdkit import Chem

from molgcn.errors import UserError
from molgcn.evaluate import evaluate
from molgcn.resources import resource

pytestmark = pytest.mark.usefixtures("empty_figures")


def test_molecules_that_it_was_trained_on_are_counted(run, tmp_path, caplog):
    """The files are the one of the training, and one of new molecules with two known ones that are written differently."""
    splits = json.loads((run / "splits.json").read_text())
    built_in = rows_of(resource("data") / "molecules.csv")
    trained_on = [built_in[row] for row in splits["train"]]
    others = [built_in[row] for part in ("val", "test") for row in splits[part]]
    known = [{**row, "smiles": Chem.MolToSmiles(Chem.MolFromSmiles(row["smiles"]), canonical=False)} for row in trained_on[:2]]
    for name, rows in (("same", trained_on + others), ("new", others), ("mixed", others + known)):
        text = "".join(f"{row['smiles']},{row['logp']},{row['tpsa']}\n" for row in rows)
        (tmp_path / f"{name}.csv").write_text(f"smiles,logp,tpsa\n{text}")
    for name, count, size in (("same", 160, 200), ("new", 0, 40), ("mixed", 2, 42)):
        caplog.clear()
        result = evaluate(config(ckpt=str(run), dataset={"path": str(tmp_path / f"{name}.csv")}))
        assert json.loads((result.folder / "metrics.json").read_text())["trained_on"] == {"all": count}
        page = " ".join((result.folder / "report.html").read_text().split())
        assert (f"{count} of the {size} molecules of 'all' are in the training part of {run}" in caplog.text) == (count > 0)
        assert (f"{count} of the {size} all molecules are in the training part of the run" in page) == (count > 0)
        assert ("training part of the run" in page) == (count > 0)


def test_its_own_split_is_not_warned_about(run, caplog):
    result = evaluate(config(ckpt=str(run)))
    assert json.loads((result.folder / "metrics.json").read_text())["trained_on"] == {"train": 160, "val": 0, "test": 0}
    assert "in the training part" not in caplog.text
    (run / "training_hashes.npy").write_bytes(b"damaged")
    with pytest.raises(UserError, match=r"training_hashes.npy cannot be read"):
        evaluate(config(ckpt=str(run)))


def test_a_run_that_does_not_say_what_it_was_trained_on(run, tmp_path, caplog):
    caplog.set_level("INFO")
    (run / "training_hashes.npy").unlink()
    (tmp_path / "x.csv").write_text("smiles,logp,tpsa\nCCO,1,10\nCC,2,20\n")
    result = evaluate(config(ckpt=str(run), dataset={"path": str(tmp_path / "x.csv")}))
    assert json.loads((result.folder / "metrics.json").read_text())["trained_on"] is None
    assert "is not known: there is no training_hashes.npy" in caplog.text


def test_a_checkpoint_betrays_no_molecule(run):
    """A checkpoint has neither hashes nor rows of molecules, and may be shared where the set may not."""
    hashes = np.load(run / "training_hashes.npy")
    assert hashes.dtype == np.uint64 and len(hashes) == 160
    content = (run / "checkpoints" / "best.ckpt").read_bytes()
    assert not [one for one in hashes if one.tobytes() in content]


def test_molecules_unlike_the_training_are_counted(run, tmp_path, caplog):
    path = tmp_path / "other.csv"
    path.write_text("smiles,logp,tpsa\nCCO.CO,1,10\nC,1,20\nCCCCO,2,30\n")
    evaluate(config(ckpt=str(run), dataset={"path": str(path)}, output=str(tmp_path / "out")))
    found = [record.message for record in caplog.records if "extrapolations" in record.message]
    assert found == [
        f"{path} has molecules unlike the training molecules: 1 of several fragments (salts, mixtures), 1 outside the "
        "training molecules' 4 to 9 heavy atoms; their predictions are extrapolations"
    ]
