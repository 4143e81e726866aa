"""A reaction becomes its condensed graph: Chemprop's, in all modes, and what cannot be read says why."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rdkit import rdBase
from reaction_rows import substitutions

from molgcn.data import PackedMolecules
from molgcn.data.config import DatasetConfig
from molgcn.data.descriptors.generators import calculator
from molgcn.data.featurizers import get_featurizer
from molgcn.data.featurizers.chemprop import CHEMPROP
from molgcn.data.featurizers.reactions import MODES
from molgcn.data.fingerprints import morgan_fingerprint, murcko_scaffolds
from molgcn.data.identity import with_hashes
from molgcn.data.load import load_dataset
from molgcn.data.molecules import InvalidMoleculeError
from molgcn.data.reaction_smiles import joined, sides_of
from molgcn.data.reactions import read_reaction
from molgcn.errors import UserError
from molgcn.report.drawings import draw

REACTIONS = [
    "[CH3:1][Br:2].[OH-:3]>>[CH3:1][OH:3].[Br-:2]",
    "[CH2:1]=[CH:2][CH:3]=[CH2:4].[CH2:5]=[CH2:6]>>[CH2:1]1[CH:2]=[CH:3][CH2:4][CH2:5][CH2:6]1",
    "[CH3:1][C:2](=[O:3])[OH:4].[CH3:5][OH:6]>>[CH3:1][C:2](=[O:3])[O:6][CH3:5]",
    "[CH3:1][C:2](=[O:3])Cl.[CH3:5][NH2:6]>>[CH3:1][C:2](=[O:3])[NH:6][CH3:5]",
    "[CH3:1][Cl:2]>>[CH3:1][OH:3]",
    "[CH3:1][CH2:2][Cl:3]>[Na+].[I-]>[CH3:1][CH2:2][I:4]",
    "[C:1]([H:2])([H:3])([H:4])[O:5][H:6]>>[C:1]([H:2])([H:3])=[O:5].[H:4][H:6]",
    "[CH3:1][C@H:2]([OH:3])[F:4]>>[CH3:1][C@@H:2]([Br:5])[F:4]",
    r"[CH3:1]/[CH:2]=[CH:3]/[CH3:4]>>[CH3:1]/[CH:2]=[CH:3]\[CH3:4]",
    "[cH:1]1[cH:2][cH:3][cH:4][cH:5][c:6]1[N+:7](=[O:8])[O-:9]>>[cH:1]1[cH:2][cH:3][cH:4][cH:5][c:6]1[NH2:7].[OH2:8].[OH2:9]",
    "[CH4:1]>>[CH4:1].CCO",
]


def packed(reactions, features="general:reac_diff"):
    return PackedMolecules.from_smiles(reactions, features=features, num_workers=0)


def bonds_of(data):
    return {tuple(pair): row for pair, row in zip(data.edge_index.T.tolist(), data.edge_attr.tolist(), strict=True)}


@pytest.mark.peers
@pytest.mark.parametrize("mode", MODES)
def test_graphs_are_chemprops(mode):
    from chemprop.data import ReactionDatapoint
    from chemprop.featurizers import CondensedGraphOfReactionFeaturizer

    theirs = CondensedGraphOfReactionFeaturizer(mode_=mode)
    reactions = REACTIONS + [row[place] for row in substitutions(48) for place in (0, 2)]
    for text, mine in zip(reactions, packed(reactions, f"chemprop:{mode}").to_pyg(), strict=True):
        point = ReactionDatapoint.from_smi(text, keep_h=True)
        graph = theirs((point.rct, point.pdt))
        np.testing.assert_allclose(mine.x, graph.V, rtol=1e-6, err_msg=text)  # masses are float32
        assert bonds_of(mine) == {tuple(pair): row for pair, row in zip(graph.edge_index.T.tolist(), graph.E.tolist(), strict=True)}, text


def columns(features, row):
    return {get_featurizer(features).names[place]: round(float(row[place]), 4) for place in np.flatnonzero(row)}


@pytest.mark.parametrize(
    ("mode", "leaving", "entering"),
    [
        ("reac_prod", ("reactant_element_17", "reactant_mass"), ("reactant_element_8", "product_mass")),
        ("reac_prod_balance", ("reactant_element_17", "product_mass"), ("reactant_mass", "product_mass")),
        ("reac_diff", ("reactant_mass", "change_mass"), ("reactant_element_8", "change_mass")),
        ("reac_diff_balance", ("reactant_element_17", "reactant_mass"), ("reactant_element_8", "reactant_mass")),
        ("prod_diff", ("product_element_17", "change_mass"), ("product_mass", "change_mass")),
        ("prod_diff_balance", ("product_element_17", "product_mass"), ("product_element_8", "product_mass")),
    ],
)
def test_atoms_of_one_side(mode, leaving, entering):
    """A chloride that leaves and an oxygen that comes have these columns among theirs; a balanced one has no change."""
    features = f"chemprop:{mode}"
    data = packed(["[CH3:1][Cl:2]>>[CH3:1][OH:3]"], features).to_pyg()[0]
    assert data.x.shape == (3, 106) and data.edge_attr.shape[1] == 28
    rows = [columns(features, row) for row in data.x.numpy()]
    assert set(leaving) <= rows[1].keys() and set(entering) <= rows[2].keys()
    changes = [name for row in rows[1:] for name in row if name.startswith("change_")]
    assert bool(changes) == (mode in ("reac_diff", "prod_diff"))
    assert [get_featurizer(features).element(row) for row in data.x.numpy()] == [6, 17, 8]


def test_a_bond_that_breaks_and_one_that_forms():
    data = packed([REACTIONS[0]], "chemprop:reac_prod").to_pyg()[0]
    names = CHEMPROP.bond_names
    single, no_bond = names.index("single"), names.index("no_bond")
    found = bonds_of(data)
    assert found.keys() == {(0, 1), (1, 0), (0, 2), (2, 0)}
    assert found[0, 1][single] == 1 and found[0, 1][14 + no_bond] == 1 and found[0, 1][14 + single] == 0
    assert found[0, 2][no_bond] == 1 and found[0, 2][14 + single] == 1


def renumbered(text, numbers):
    """Return a reaction with other atom maps."""
    for old, new in enumerate(numbers, 1):
        text = text.replace(f":{old}]", f":{new + 1000}]")
    return text


@settings(max_examples=20)
@given(st.sampled_from(REACTIONS[:5] + REACTIONS[9:10]), st.permutations(range(1, 10)), st.sampled_from(MODES))
def test_what_maps_are_called_does_not_matter(text, numbers, mode):
    one, other = packed([text, renumbered(text, numbers)], f"general:{mode}").to_pyg()
    assert np.array_equal(one.x, other.x) and bonds_of(one) == bonds_of(other)


def test_equal_reactions_are_found():
    same = "[OH-:7].[Br:5][CH3:9]>>[Br-:5].[OH:7][CH3:9]"
    reverse = ">>".join(reversed(REACTIONS[0].split(">>")))
    hashes = with_hashes(packed([REACTIONS[0], same, reverse]))
    assert hashes.exact_hashes[0] == hashes.exact_hashes[1] != hashes.exact_hashes[2]
    assert hashes.hashes[0] == hashes.hashes[1] != hashes.hashes[2]


MISTAKES = [
    ("CCO", "it is not a reaction: expected reactants>>products"),
    (">>[CH4:1]", "it has no reactants: expected"),
    ("[CH4:1]>>", "it has no products: expected"),
    ("[CH4:1]>>[CH4:1](C)C", "its products cannot be read: RDKit refuses it: Explicit valence"),
    ("[CH4:1]>C1>[CH4:1]", "its agents cannot be read: it is not a SMILES"),
    ("CBr.[OH-]>>CO.[Br-]", "no atom of its reactants has the atom map of an atom of its products.* RXNMapper"),
    ("[CH3:1][OH:2]>>CO", "no atom of its reactants has the atom map"),
    ("[CH3:1][OH:1]>>[CH3:1][OH:2]", "an atom map stands twice in its reactants: 1; give"),
    ("[CH3:1][OH:2]>>[CH3:2][OH:1]", "an atom map changes its element: 1 is C in its reactants and O in its products"),
    ("[CH3:1]Cl>>[CH3:1]O", r"atoms of both sides have no atom map: 1 \(Cl\) of its reactants and 1 \(O\) of its products"),
]


@pytest.mark.parametrize(("text", "why"), MISTAKES)
def test_mistakes_name_the_row_and_what_to_do(tmp_path, text, why):
    file = tmp_path / "r.csv"
    file.write_text("rxn,y\n" + "".join(f"{row[0]},{row[3]}\n" for row in substitutions(20)) + f'"{text}",1\n')
    values = {"name": "csv", "path": str(file), "smiles": "rxn", "targets": ["y"], "num_workers": 0}
    reactions = file.read_text().splitlines()
    with pytest.raises(UserError, match=rf"Row 20 of {file} \(counted from 0, without a header\).* cannot be used: {why}"):
        load_dataset(DatasetConfig(**values))
    left_out = load_dataset(DatasetConfig(**values, on_error="skip")).molecules
    assert [row.row for row in left_out.skipped] == [20] and left_out.features == "general:reac_diff"
    file.write_text("\n".join([reactions[0], reactions[-1], *reactions[1:-1]]))  # the first row does not decide what the column holds
    with pytest.raises(UserError, match=rf"Row 0 of {file} .* cannot be used: {why}"):
        load_dataset(DatasetConfig(**values))


@settings(max_examples=100)
@given(st.sampled_from(REACTIONS), st.integers(0, 40), st.integers(0, 5), st.text("CO[]:12>.=()H+-@", max_size=6))
def test_any_text_is_a_reaction_or_refused(text, place, length, between):
    """Each atom of a side of what is read is one atom of the graph."""
    text = text[:place] + between + text[place + length :]
    with rdBase.BlockLogs():
        try:
            reaction = read_reaction(text)
        except InvalidMoleculeError:
            return
    kept = reaction.becomes[reaction.becomes >= 0]
    assert len(kept) == len(set(kept)) > 0
    atoms = {*range(len(reaction.becomes)), *reaction.places.tolist()}
    assert len(set(reaction.places.tolist())) == reaction.products.GetNumAtoms() and atoms == set(range(len(atoms)))
    data = packed([text]).to_pyg()[0]
    assert data.num_nodes == len(atoms) and len(bonds_of(data)) == data.edge_index.shape[1]


def test_maps_without_partner_on_both_sides_are_said(tmp_path, caplog):
    file = tmp_path / "r.csv"
    rows = [*(row[0] for row in substitutions(20)), "[CH3:1][Cl:2]>>[CH3:1][OH:3]", "[CH3:1][Cl:2]>>[CH3:1]O", "[CH3:1]Cl>>[CH3:1][OH:2]"]
    file.write_text("rxn,y\n" + "".join(f"{row},{number}\n" for number, row in enumerate(rows)))
    load_dataset(DatasetConfig(name="csv", path=str(file), smiles="rxn", targets=["y"], num_workers=0))
    said = [record.message for record in caplog.records if "atom maps" in record.message]
    assert len(said) == 1 and "1 of 23 reactions have atom maps that only the reactants have" in said[0]
    assert "as 2 and 3 in row 20 ('[CH3:1][Cl:2]>>[CH3:1][OH:3]')" in said[0]


@pytest.mark.parametrize("name", ["general:reac_diff", "general:no_stereo:prod_diff", "chemprop:reac_prod_balance@0+1", "ogb:reac_diff@1"])
def test_names_of_features(name):
    featurizer = get_featurizer(name)
    assert featurizer.spelled == get_featurizer(featurizer.versioned).spelled == name
    assert len(set(featurizer.names)) == featurizer.num_features
    rows = packed([REACTIONS[2]], name.partition("@")[0])
    assert (rows.num_features, rows.num_edge_features) == (featurizer.num_features, featurizer.num_bond_features)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"features": "qm9"}, "features=qm9 cannot describe reactions. Use features=general, ogb or chemprop"),
        ({"features": "zinc"}, "features=zinc cannot describe reactions"),
        ({"standardize": "neutral"}, "dataset.standardize=neutral is for molecules, and .* has reactions"),
        ({"atom_features_path": "a.npz"}, "dataset.atom_features_path=a.npz is for molecules, and .* has reactions"),
        ({"reaction_mode": "diff"}, "dataset.reaction_mode=diff is not an option.* reac_diff_balance"),
        ({"smiles": "solvent", "reaction_mode": "reac_diff"}, "dataset.reaction_mode=reac_diff is for reactions, and .* has molecules"),
        ({"smiles": "solvent", "features": "general:prod_diff"}, "takes reactions in solvent of .* which has them in none"),
        ({"smiles": ["solvent", "rxn"], "features": "general:prod_diff"}, "takes reactions in solvent of .* has them in rxn"),
    ],
)
def test_options_that_do_not_fit(tmp_path, monkeypatch, options, why):
    monkeypatch.chdir(tmp_path)
    np.savez("a.npz", x=np.zeros((1, 1)))
    file = tmp_path / "r.csv"
    file.write_text("rxn,solvent,y\n" + "".join(f"{rxn},{solvent},{y}\n" for rxn, solvent, _, y in substitutions(20)))
    for _ in range(2):  # the second time what could be packed is in the cache
        with pytest.raises(UserError, match=why):
            load_dataset(DatasetConfig(**{"name": "csv", "path": str(file), "smiles": "rxn", "targets": ["y"], "num_workers": 0} | options))


@pytest.mark.parametrize("split", ["random", "stratified", "scaffold", "butina", "kmeans", "cv"])
def test_splits(tmp_path, split):
    file = tmp_path / "r.csv"
    rings = [(f"[CH3:1][Br:2].[OH-:3].C1{'C' * n}C1>>[CH3:1][OH:3].[Br-:2]", n) for n in range(1, 9)]
    file.write_text("rxn,y\n" + "".join(f"{rxn},{y}\n" for rxn, *_, y in [*substitutions(40), *rings]))
    fold = {"fold": 0, "cv_by": "scaffold"} if split == "cv" else {}
    options = {"name": "csv", "path": str(file), "smiles": "rxn", "targets": ["y"], "split": split, "num_workers": 0}
    loaded = load_dataset(DatasetConfig(**options, **fold))
    parts = [loaded.splits[part] for part in ("train", "val", "test")]
    assert sorted(np.concatenate(parts)) == list(range(48)) and all(map(len, parts[::2]))


def test_descriptors_and_fingerprints_compare_the_sides():
    reaction = "[CH3:1][Br:2].[OH-:3]>c1ccccc1>[CH3:1][OH:3].[Br-:2]"
    compute = calculator(["physchem", "morgan_counts"])
    np.testing.assert_array_equal(compute(reaction), compute("CO.[Br-]") - compute("CBr.[OH-]"))
    reverse = ">".join(reversed(reaction.split(">")))
    assert not np.array_equal(morgan_fingerprint(reaction), morgan_fingerprint(reverse))
    assert morgan_fingerprint(reaction).sum() > morgan_fingerprint("CBr.[OH-]").sum()
    assert murcko_scaffolds(["[CH3:1]C1CC1>>[CH3:1]c1ccccc1"], 0) == ["C1CC1"]
    assert draw(reaction) is not None and draw("[CH3:1]>>C1") is None


def test_texts():
    assert sides_of("CC>>CO") == ("CC", "", "CO") and sides_of(" A > B>C") == ("A", "B", "C")
    assert sides_of("[NH3]->[Cu+2]") is None and sides_of("[NH3:1]->[Cu+2]>>N") == ("[NH3:1]->[Cu+2]", "", "N")
    assert joined(["C>>O", "CCO"]) == "C>CCO>O" and joined(["CCO", "C>N>O", "C>>F"]) == "C.C>CCO.N>O.F"
    assert joined(["CCO ", "C"]) == "CCO.C"
