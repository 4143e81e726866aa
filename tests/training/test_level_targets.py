"""Targets of atoms and bonds are learned, measured, predicted and written, alone and beside those of molecules."""

import csv
import json
import re
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
import torch
from rdkit import Chem

import molgcn
from molgcn.calibrate import CalibrateConfig, calibrate
from molgcn.config.run import Config, parse
from molgcn.data.config import DatasetConfig
from molgcn.data.layout import BatchLayout, lay_out
from molgcn.data.levels import Levels, Rows
from molgcn.data.load import load_dataset
from molgcn.data.loader import PackedLoader
from molgcn.data.saved_parts import save_parts
from molgcn.errors import UserError
from molgcn.evaluate import EvaluateConfig, evaluate
from molgcn.evaluation.config import EvaluationDataConfig
from molgcn.evaluation.finished_runs import read_run
from molgcn.explain.command import explain
from molgcn.explain.config import ExplainConfig
from molgcn.export import ExportConfig, export
from molgcn.fingerprint import FingerprintConfig, fingerprint
from molgcn.predict import PredictConfig, predict
from molgcn.replicates.run import train_all
from molgcn.training.build import build_data, build_module
from molgcn.training.level_labels import labels_of_batch
from molgcn.training.train import train

pytestmark = pytest.mark.usefixtures("one_thread", "empty_figures")
ENDS = ("C", "N", "O", "F", "Cl", "CO", "C=C")
SMILES = [
    f"{one}C{two}({three}){four}" for one, two, three, four in product(ENDS[:6], ("C", "N"), ENDS, ENDS) if "N(F" not in f"{two}({three}"
]


def charge(atom):
    """Return a number that depends on an atom's element and neighbours alone."""
    return atom.GetAtomicNum() / 4 + sum(other.GetAtomicNum() for other in atom.GetNeighbors()) / 8


def order(bond):
    return bond.GetBondTypeAsDouble() + bond.GetBeginAtom().GetAtomicNum() * bond.GetEndAtom().GetAtomicNum() / 20


def save(path, smiles):
    """Write targets of molecules, atoms and bonds, with missing numbers, an empty cell, and classes of atoms."""
    rows = []
    for place, text in enumerate(smiles):
        mol = Chem.MolFromSmiles(text)
        charges = [charge(atom) for atom in mol.GetAtoms()]
        charges[place % len(charges)] = None
        hetero = [int(atom.GetAtomicNum() != 6) for atom in mol.GetAtoms()]
        cells = [charges, [order(bond) for bond in mol.GetBonds()], hetero]
        rows.append([text, mol.GetNumAtoms() ** 2, *("" if place % 9 == 8 else json.dumps(one) for one in cells)])
    with open(path, "w", newline="") as file:
        csv.writer(file).writerows([["smiles", "size", "charge", "order", "hetero"], *rows])


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("levels")


@pytest.fixture(scope="module")
def config(folder):
    save(folder / "a.csv", SMILES[::4][:120])
    below = {"atom_targets": ["charge"], "bond_targets": ["order"]}
    dataset = {"name": "csv", "path": str(folder / "a.csv"), "targets": ["size"], "features": "general", "batch_size": 16, **below}
    values = {
        "dataset": {**dataset, "cache_dir": str(folder / "cache"), "split_fractions": [0.8, 0.1, 0.1]},
        "model": {"name": "gine", "bonds": True, "hidden_channels": 32, "num_layers": 2, "embed": True, "head_layers": 1},
        "optimizer": {"lr": 0.01},
        "logger": {"name": "csv"},
        "training": {"bootstrap": 20},
        "trainer": {"max_epochs": 25, "accelerator": "cpu", "num_sanity_val_steps": 0, "enable_model_summary": False},
    }
    return parse(Config, values)


@pytest.fixture(scope="module")
def run(config, folder):
    result = train(config, folder / "run")
    result.save([])
    return result


def lists(path, *columns):
    """Return the lists of columns of a CSV file, NaN where missing and empty where a cell is empty."""
    with open(path, newline="") as file:
        rows = list(csv.DictReader(file))
    return [[np.array(json.loads(row[name] or "[]"), float) for row in rows] for name in columns], rows


def test_they_are_learned_and_measured(run):
    """The targets of atoms and bonds depend on what is a bond away, and their errors become small against their spread."""
    assert run.metrics["test/mae/charge"] < 0.2 and run.metrics["test/mae/order"] < 0.2
    assert {f"{part}/r2/{name}" for part in ("train", "val", "test") for name in ("size", "charge", "order")} < run.metrics.keys()
    header = (run.folder / "metrics.csv").read_text().splitlines()[0]
    assert "val/mae/charge" in header and "val/mae/order" in header
    for metric, name in product(("charge", "order"), ("true", "predicted")):
        (true, predicted), _ = lists(run.folder / "predictions_test.csv", metric, f"{metric} predicted")
        pairs = [(one, other) for one, other in zip(true, predicted, strict=True) if one.size]
        errors = np.abs(np.concatenate([one - other for one, other in pairs]))
        assert np.nanmean(errors) == pytest.approx(run.metrics[f"test/mae/{metric}"], rel=1e-4), name


def test_the_loss_is_the_mean_over_levels_of_the_means_over_known_targets(config):
    """It is that of a plain loop over molecules, atoms and bonds."""
    data = build_data(config)
    module = build_module(config, data)
    molecules = data.part("train")
    batch = molecules.batch([5, 2, 9])
    outputs = module.model(batch)
    loss, _ = module.loss.of_model(module.model, batch, *module.for_loss(labels_of_batch(batch, module.levels)))
    mean, std = module.target_mean.tolist(), module.target_std.tolist()
    terms, place = {"size": [], "charge": [], "order": []}, {"atom": 0, "bond": 0}
    for number, index in enumerate((5, 2, 9)):
        mol = Chem.MolFromSmiles(molecules.smiles[index])
        row = molecules.rows[index]
        terms["size"].append(abs(outputs[number, 0] - (mol.GetNumAtoms() ** 2 - mean[0]) / std[0]))
        atoms = range(3 + place["atom"], 3 + place["atom"] + mol.GetNumAtoms())
        bonds = [
            (3 + batch.num_nodes + place["bond"] + edge, mol.GetBondBetweenAtoms(*ends))
            for edge, ends in enumerate(molecules[index].to_pyg()[0].edge_index.T.tolist())
            if ends[0] < ends[1]
        ]
        if row % 9 != 8:
            for atom, output in zip(mol.GetAtoms(), outputs[list(atoms), 1], strict=True):
                if atom.GetIdx() != row % mol.GetNumAtoms():
                    terms["charge"].append(abs(output - (charge(atom) - mean[1]) / std[1]))
            terms["order"] += [abs(outputs[edge, 2] - (order(bond) - mean[2]) / std[2]) for edge, bond in bonds]
        place = {"atom": place["atom"] + mol.GetNumAtoms(), "bond": place["bond"] + 2 * mol.GetNumBonds()}
    torch.testing.assert_close(loss, torch.stack([torch.stack(one).mean() for one in terms.values()]).mean(), rtol=1e-5, atol=1e-6)


def test_statistics_are_those_of_the_training_atoms(config):
    data = build_data(config)
    module, train_part = build_module(config, data), data.part("train")
    known = train_part.atom_targets[~np.isnan(train_part.atom_targets)].astype(np.float64)
    np.testing.assert_allclose([module.target_mean[1], module.target_std[1]], [known.mean(), known.std()], rtol=1e-5)


def test_new_molecules_get_lists_in_rdkits_order(run, folder):
    smiles = ["OCC(=O)N", "no molecule", "C[C@H](F)O", "[H]C"]
    (folder / "new.csv").write_text("\n".join(["id,smiles", *(f"{n},{text}" for n, text in enumerate(smiles))]) + "\n")
    predict(PredictConfig(ckpt=str(run.folder), input=str(folder / "new.csv"), output=str(folder / "p.csv"), on_error="nan", device="cpu"))
    (charges, orders), rows = lists(folder / "p.csv", "charge predicted", "order predicted")
    assert [len(one) for one in charges] == [5, 0, 4, 1] and [len(one) for one in orders] == [4, 0, 3, 0]
    assert rows[1]["error"] and rows[1]["size predicted"] == "nan"
    found = molgcn.load(str(run.folder)).predict(smiles, on_error="nan")
    for number, values in enumerate(charges):
        np.testing.assert_allclose(found.to_frame()["charge predicted"][number], values, rtol=1e-5)
    for text in ("NC(=O)CO", "C(O)C(=O)N"):  # the same molecule, in another order
        mol = Chem.MolFromSmiles(text)
        match = mol.GetSubstructMatch(Chem.MolFromSmiles(smiles[0]))
        other = molgcn.load(str(run.folder)).predict([text])
        np.testing.assert_allclose(other.values[0, 1][list(match)], charges[0], rtol=1e-4)
        for bond, value in zip(Chem.MolFromSmiles(smiles[0]).GetBonds(), orders[0], strict=True):
            same = mol.GetBondBetweenAtoms(match[bond.GetBeginAtomIdx()], match[bond.GetEndAtomIdx()])
            assert other.values[0, 2][same.GetIdx()] == pytest.approx(value, rel=1e-4)


def test_evaluation_repeats_the_run_and_measures_another_file(run, folder):
    own = evaluate(EvaluateConfig(ckpt=str(run.folder), device="cpu", bootstrap=0, output=str(folder / "own")))
    for key in ("test/mae/size", "test/mae/charge", "test/rmse/order"):
        assert own.metrics[key] == pytest.approx(run.metrics[key], rel=1e-5)
    save(folder / "other.csv", SMILES[1::9][:20])
    data = EvaluationDataConfig(path=str(folder / "other.csv"))
    other = evaluate(EvaluateConfig(ckpt=str(run.folder), dataset=data, device="cpu", bootstrap=0, output=str(folder / "other")))
    (true, predicted), _ = lists(folder / "other" / "predictions_all.csv", "order", "order predicted")
    errors = [np.abs(one - two) for one, two in zip(true, predicted, strict=True) if one.size]
    assert other.metrics["all/mae/order"] == pytest.approx(np.nanmean(np.concatenate(errors)), rel=1e-4)
    matrices = [np.array([[charge(atom)] for atom in Chem.MolFromSmiles(text).GetAtoms()]) for text in SMILES[1::9][:20]]
    np.savez(folder / "charges.npz", *matrices, names=np.array(["charge"]))
    of_file = replace(data, atom_targets_path=str(folder / "charges.npz"))
    evaluate(EvaluateConfig(ckpt=str(run.folder), dataset=of_file, device="cpu", bootstrap=0, output=str(folder / "third")))
    np.savez(folder / "charges.npz", *matrices)
    with pytest.raises(UserError, match="gives the targets size, atom_target_0, order; the model predicts size, charge, order"):
        evaluate(EvaluateConfig(ckpt=str(run.folder), dataset=of_file, device="cpu", output=str(folder / "fourth")))


def few(config, **dataset):
    return replace(config, dataset=replace(config.dataset, **dataset), trainer={**config.trainer, "max_epochs": 2})


def test_classes_of_atoms_alone(config, folder):
    """The network has a head of atoms alone, and its probabilities are lists."""
    alone = few(config, targets=None, atom_targets=["hetero"], bond_targets=None)
    result = train(replace(alone, trainer={**alone.trainer, "max_epochs": 8}), folder / "classes")
    assert result.task == "classification" and result.metrics["test/roc_auc/hetero"] > 0.95
    result.save([])
    found = molgcn.load(str(result.folder)).predict(["CCO"]).values[0, 0]
    assert found.shape == (3,) and found.argmax() == 2
    with pytest.raises(UserError, match="all targets of this model are of atoms or bonds"):
        fingerprint(FingerprintConfig(ckpt=str(result.folder), molecule="CCO", device="cpu"))
    both = few(config, targets=None, atom_targets=["charge", "hetero"], bond_targets=None)
    mixed = train(replace(both, dataset=replace(both.dataset, tasks={"hetero": "classification"})), folder / "mixed")
    assert mixed.task == "mixed" and {"test/mae/charge", "test/roc_auc/hetero"} < mixed.metrics.keys()
    (charges, shares), _ = lists(folder / "mixed" / "predictions_test.csv", "charge predicted", "hetero probability")
    assert all(len(one) == len(other) and (other >= 0).all() for one, other in zip(charges, shares, strict=True))


def test_a_resumed_run_ends_with_the_same_weights(config, folder):
    half = replace(few(config), scheduler=replace(config.scheduler, name="constant"))
    whole = train(half, folder / "whole")
    train(replace(half, trainer={**half.trainer, "max_epochs": 1}), folder / "resumed")
    train(replace(half, resume=str(folder / "resumed")), folder / "resumed")
    files = [folder / name / "predictions_test.csv" for name in ("whole", "resumed")]
    assert files[0].read_text() == files[1].read_text() and whole.metrics


@pytest.mark.slow
def test_ensembles_and_folds_predict_together(config, folder):
    two = replace(few(config), training=replace(config.training, ensemble=2))
    train_all(two, folder / "ensemble").save([])
    (mean, std), _ = lists(folder / "ensemble" / "predictions_test.csv", "charge predicted", "charge predicted std")
    members = [molgcn.load(str(folder / "ensemble" / f"member_{number}")) for number in range(2)]
    smiles = list(load_dataset(two.dataset).part("test").smiles)
    each = [member.predict(smiles).values[:, 1] for member in members]
    for row, values in enumerate(mean):
        one, other = (own[row] for own in each)
        np.testing.assert_allclose(values, (one + other) / 2, rtol=1e-4)
        np.testing.assert_allclose(std[row], np.abs(one - other) / 2**0.5, rtol=1e-2, atol=1e-5)
    folds = train_all(few(config, split="cv", folds=2), folder / "folds")
    assert "test/mae/charge" in folds.metrics


def test_uncertainties_and_weights_of_targets(config, folder):
    training = replace(config.training, loss="mve", task_weights={"charge": 3.0})
    train(replace(few(config), training=training), folder / "mve")
    (std,), _ = lists(folder / "mve" / "predictions_test.csv", "charge std")
    assert all((one > 0).all() for one in std)


def test_both_loaders_and_pyg_train_alike(config, folder):
    found = []
    for name in ("packed", "pyg"):
        module = train(
            replace(few(config), backend=replace(config.backend, name="pyg"), loader=replace(config.loader, name=name)), folder / name
        )
        found.append(module.metrics)
    assert found[0] == pytest.approx(found[1], rel=1e-4, nan_ok=True)


@pytest.mark.parametrize(
    ("command", "match"),
    [
        (lambda folder: explain(ExplainConfig(ckpt=str(folder), molecule="CCO", device="cpu")), "molgcn.explain does not go with"),
        (lambda folder: export(ExportConfig(ckpt=str(folder), output=str(folder / "x.onnx"))), "molgcn.export does not go with"),
        (lambda folder: calibrate(CalibrateConfig(ckpt=str(folder), input="a.csv", device="cpu")), "molgcn.calibrate does not go with"),
        (lambda folder: read_run(folder), "molgcn.compare does not go with"),
    ],
)
def test_commands_of_molecules_refuse_them(run, command, match):
    with pytest.raises(UserError, match=match):
        command(run.folder)


@pytest.mark.parametrize(
    ("training", "match"),
    [({"blend": "trees"}, "trees predict molecules"), ({"baseline": "rf"}, "forest"), ({"calibration": "auto"}, "training.loss=mve")],
)
def test_options_of_molecules_refuse_them(config, training, match):
    with pytest.raises(UserError, match=match):
        replace(config, training=replace(config.training, **training))
    assert replace(config, training=replace(config.training, blend="auto")).training.blend == "none"


def test_rows_without_levels_are_the_molecules():
    assert not Levels(3) and Levels(3).of_targets == ["molecule"] * 3
    rows = Rows(molgcn.data.PackedMolecules.from_smiles(["CC", "C"]), Levels(0))
    assert rows.at(np.array([1])).tolist() == [1]


def test_the_report_names_what_has_a_value(run):
    """It counts atoms and bonds, a bond once, and says which one of its molecule a card shows."""
    text = re.sub(r"<[^>]+>|\s+", " ", (run.folder / "report.html").read_text())
    text = re.sub(r"\s+", " ", text)
    (true,), rows = lists(run.folder / "predictions_test.csv", "charge")
    atoms = sum(Chem.MolFromSmiles(row["smiles"]).GetNumAtoms() for row in rows)
    missing = atoms - sum(int((~np.isnan(one)).sum()) for one in true)
    assert f"{missing} atoms have no true value" in text and "half of the bonds are closer than this" in text
    assert "The worst atoms" in text and re.search(r"The worst bonds bond \d+ true ", text)


def test_padded_batches_have_the_same_labels_and_outputs(config):
    """Captured steps read whole slots, whose other places hold rows of earlier batches."""
    data = build_data(config)
    module = build_module(config, data).eval()
    for batch in PackedLoader(lay_out(data.part("train"), BatchLayout(bonds=True)), 16, shuffle=True):
        slot = batch.padded
        assert slot.num_nodes > batch.num_nodes
        loss, sums = module.loss.of_model(module.model, batch, *module.for_loss(labels_of_batch(batch, module.levels)))
        padded, padded_sums = module.loss.of_model(module.model, slot, *module.for_loss(labels_of_batch(slot, module.levels)))
        torch.testing.assert_close(padded, loss)
        torch.testing.assert_close(padded_sums, sums, rtol=1e-5, atol=1e-5)


def test_saved_parts_hold_the_lists(config, folder):
    """A set without columns of its own gets them from a file, and its parts are written with them."""
    molecules = load_dataset(DatasetConfig(subset=20)).molecules
    matrices = [np.arange(count, dtype=float)[:, None] + 0.25 for count in molecules.num_nodes_per_graph]
    whole = [np.zeros((0, 1))] * molecules.num_rows
    for row, matrix in zip(molecules.rows.tolist(), matrices, strict=True):
        whole[row] = matrix
    np.savez(folder / "builtin.npz", *whole, names=np.array(["number"]))
    options = DatasetConfig(subset=20, atom_targets_path=str(folder / "builtin.npz"))
    (folder / "parts").mkdir()
    save_parts(folder / "parts", options, load_dataset(options))
    (numbers,), rows = lists(folder / "parts" / "train.csv", "number")
    assert all(row["logp"] for row in rows) and all((one == np.arange(len(one)) + 0.25).all() for one in numbers)
