"""Make the checkpoints of Chemprop in this folder, with Chemprop's own predictions in predictions.json.

Chemprop pins another RDKit, so that it needs an environment of its own:

    python -m venv /tmp/chemprop && /tmp/chemprop/bin/pip install chemprop==2.3.1
    /tmp/chemprop/bin/python tests/conversion/make_checkpoints.py
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
from chemprop import nn
from chemprop.data import BatchMolGraph
from chemprop.featurizers import MultiHotAtomFeaturizer, SimpleMoleculeMolGraphFeaturizer
from chemprop.models import MPNN, load_model, save_model
from chemprop.nn.transforms import GraphTransform, ScaleTransform, UnscaleTransform
from rdkit import Chem

FOLDER = Path(__file__).parent / "chemprop"
SMILES = [
    *("C", "CCO", "c1ccccc1", "CC(=O)Oc1ccccc1C(=O)O", "[Na+].[Cl-]", "C1CC1", "N#Cc1ccc2c(c1)C(=O)N(C2)[C@@H](F)/C=C/S"),
    *("C[C@H](N)C(=O)O", "F/C=C\\F", "O=S(=O)(N)c1ccc(Br)cc1", "CN1C=NC2=C1C(=O)N(C(=O)N2C)C", "[O-][N+](=O)c1ccccc1"),
]
WIDTH = 8


def network(*, messages=None, agg=None, head=None, predictor=nn.RegressionFFN, targets=1, scaled=True, descriptors=0, **options) -> MPNN:
    """Return a network with random weights; the scalers hold numbers such as training would give."""
    messages = nn.BondMessagePassing(d_h=WIDTH, **(messages or {})) if not isinstance(messages, torch.nn.Module) else messages
    scaler = UnscaleTransform(np.linspace(-2, 3, targets), np.linspace(1.5, 4, targets)) if scaled else None
    transform = ScaleTransform(np.arange(descriptors) - 1.0, np.arange(descriptors) + 0.5) if descriptors else None
    head = {"input_dim": WIDTH + descriptors, "hidden_dim": WIDTH, "n_tasks": targets, "output_transform": scaler} | (head or {})
    model = MPNN(messages, agg or nn.NormAggregation(), predictor(**head), X_d_transform=transform, **options)
    if options.get("batch_norm"):
        for tensor in (model.bn.weight.data, model.bn.bias.data, model.bn.running_mean, model.bn.running_var):
            tensor.copy_(torch.rand(tensor.shape) + 0.5)
    return model


SCALED = GraphTransform(
    ScaleTransform(np.array([4.0, -1.0]), np.array([2.5, 0.5]), pad=72), ScaleTransform(np.array([1.5]), np.array([0.25]), pad=14)
)
CASES = {
    "plain": lambda: network(),
    "mean_depth_tanh": lambda: network(
        agg=nn.MeanAggregation(), messages={"depth": 5, "activation": "tanh"}, head={"activation": "tanh"}, scaled=False
    ),
    "sum_layers_dropout": lambda: network(
        agg=nn.SumAggregation(), messages={"dropout": 0.3}, head={"n_layers": 3, "hidden_dim": [8, 6, 4], "dropout": 0.2}
    ),
    "attention_elu": lambda: network(
        agg=nn.AttentiveAggregation(output_size=WIDTH), messages={"activation": "elu"}, head={"activation": "elu"}
    ),
    "undirected_bias": lambda: network(messages={"undirected": True, "bias": True, "depth": 4}),
    "norm_constant_batch_norm": lambda: network(agg=nn.NormAggregation(norm=7.0), batch_norm=True),
    "several_targets": lambda: network(targets=3),
    "classification": lambda: network(predictor=nn.BinaryClassificationFFN, targets=2, scaled=False),
    "multiclass": lambda: network(predictor=nn.MulticlassClassificationFFN, targets=2, scaled=False, head={"n_classes": 3}),
    "mve": lambda: network(predictor=nn.MveFFN, targets=2),
    "evidential": lambda: network(predictor=nn.EvidentialFFN, targets=2),
    "descriptors_batch_norm": lambda: network(descriptors=3, batch_norm=True),
    "own_features": lambda: network(messages={"d_v": 72 + 2, "d_e": 14 + 1, "graph_transform": SCALED}, head={"n_layers": 2}),
    "own_atom_features": lambda: network(messages={"d_v": 72 + 2}),
    "linear_head": lambda: network(head={"n_layers": 0}, agg=nn.NormAggregation(norm=10.0)),
}
REFUSED = {
    "atom_messages": lambda: network(messages=nn.AtomMessagePassing(d_h=WIDTH)),
    "atom_descriptors": lambda: network(messages={"d_vd": 2}, head={"input_dim": WIDTH + 2}),
    "leaky_relu": lambda: network(messages={"activation": "leakyrelu"}),
    "two_activations": lambda: network(messages={"activation": "elu"}),
    "quantile": lambda: network(predictor=nn.QuantileFFN),
    "dirichlet": lambda: network(predictor=nn.BinaryDirichletFFN, scaled=False),
    "v1_features": lambda: network(messages={"d_v": len(MultiHotAtomFeaturizer.v1())}),
}


def own_features(of: str) -> list[list[list[float]]]:
    """Return features of the atoms or bonds of SMILES, a matrix for each: 2 of an atom, 1 of a bond."""
    mols = map(Chem.MolFromSmiles, SMILES)
    if of == "atom":
        return [[[atom.GetIdx() % 5 + 0.5, -atom.GetTotalNumHs()] for atom in mol.GetAtoms()] for mol in mols]
    return [[[bond.GetBondTypeAsDouble() + bond.GetIdx() % 3] for bond in mol.GetBonds()] for mol in mols]


def predictions(model: MPNN, descriptors: int) -> list[list[float]]:
    """Return Chemprop's predictions of SMILES, one row for each; standard deviations and intervals as Chemprop's command computes them."""
    atoms, bonds = model.message_passing.W_o.in_features - WIDTH - 72, model.message_passing.W_i.in_features
    bonds -= 72 + atoms + 14
    featurize = SimpleMoleculeMolGraphFeaturizer(extra_atom_fdim=atoms, extra_bond_fdim=bonds)
    own = [[np.array(rows, float).reshape(-1, width) for rows in own_features(of)] for of, width in (("atom", 2), ("bond", 1))]
    mols = [Chem.MolFromSmiles(smiles) for smiles in SMILES]
    given = [(one if atoms else None, two if bonds else None) for one, two in zip(*own, strict=True)]
    graphs = BatchMolGraph([featurize(mol, *extra) for mol, extra in zip(mols, given, strict=True)])
    given = torch.tensor(values(descriptors)) if descriptors else None
    with torch.no_grad():
        found = model.eval()(graphs, X_d=given)
    if isinstance(model.predictor, nn.MveFFN):
        found = torch.stack([found[..., 0], found[..., 1].sqrt()], 2)
    if isinstance(model.predictor, nn.EvidentialFFN):
        mean, nu, alpha, beta = found.unbind(2)
        found = torch.stack([mean, (beta / (alpha - 1)).sqrt(), (beta / (nu * (alpha - 1))).sqrt()], 2)
    return found.flatten(1).tolist()


def values(count: int) -> list[list[float]]:
    return [[float(len(smiles) * (place + 1) % 7) for place in range(count)] for smiles in SMILES]


def trained(folder: Path) -> tuple[Path, Path]:
    """Train with Chemprop's command, and return the model that it exports and Lightning's checkpoint."""
    rows = [f"{smiles},{len(smiles) / 3:.3f},{smiles.count('C')}" for smiles in SMILES * 2]
    (folder / "data.csv").write_text("\n".join(["smiles,size,carbons", *rows]))
    sizes = ["--message-hidden-dim", "8", "--ffn-hidden-dim", "8", "--depth", "2", "--epochs", "2", "--warmup-epochs", "1"]
    command = [str(Path(sys.executable).with_name("chemprop")), "train", "-i", "data.csv", "-o", "out", "--metrics", "mae", "r2", *sizes]
    subprocess.run([*command, "--accelerator", "cpu", "--num-workers", "0"], cwd=folder, check=True)
    checkpoint = next(path for path in (folder / "out/model_0/checkpoints").glob("*.ckpt") if path.name != "last.ckpt")
    return folder / "out/model_0/best.pt", checkpoint


def main() -> None:
    """Write all files."""
    FOLDER.mkdir(exist_ok=True)
    expected: dict[str, list[list[float]]] = {}
    torch.manual_seed(1)
    for name, make in {**CASES, **REFUSED}.items():
        model = make()
        save_model(FOLDER / f"{name}.pt", model, ["logp", "pka", "mp"][: model.n_tasks])
        if name in CASES:
            descriptors = 3 if name.startswith("descriptors") else 0
            expected[name] = predictions(model, descriptors)
    with tempfile.TemporaryDirectory() as folder:
        exported, checkpoint = trained(Path(folder))
        (FOLDER / "trained.pt").write_bytes(exported.read_bytes())
        (FOLDER / "trained.ckpt").write_bytes(checkpoint.read_bytes())
    expected["trained"] = predictions(load_model(FOLDER / "trained.pt"), 0)
    messages = nn.BondMessagePassing(d_h=WIDTH, depth=4)
    plain = {key: value for key, value in messages.hparams.items() if key not in ("cls", "V_d_transform", "graph_transform", "activation")}
    foundation = {"hyper_parameters": {**plain, "activation": "relu"}, "state_dict": messages.state_dict()}  # as CheMeleon's
    torch.save(foundation, FOLDER / "message_passing.pt")
    own = {f"{of}_features": own_features(of) for of in ("atom", "bond")}
    rows = {"smiles": SMILES, "descriptors": values(3), **own, "predictions": expected}
    (FOLDER / "predictions.json").write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
