import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rdkit import Chem
from rdkit.Chem import AllChem

from molgcn.data import PackedMolecules
from molgcn.data.featurize import featurize_chunk, featurize_items, sides_of_graph
from molgcn.data.featurizers import FEATURIZERS, get_featurizer
from molgcn.data.featurizers.general import GENERAL
from molgcn.data.featurizers.zinc import TYPES
from molgcn.data.packed_arrays import ARRAYS
from molgcn.data.plain_molecule import count_hydrogens
from molgcn.data.pyg import unpack_pyg
from molgcn.data.workers import CHUNK
from molgcn.errors import UserError

featurize = PackedMolecules.from_smiles

SMILES = ["C", "CCO", "c1ccccc1", "C#N", "[NH4+]", "CC(=O)[O-]", "FC(F)F", "O=c1cc[nH]cc1", "C1CC1", "[2H]OC", "[H][H]", "C.O"]


def features_of(molecules, molecule=0):
    return molecules[molecule].node_features()


def test_qm9_features_of_methane_and_ethene():
    x = features_of(featurize(["C"]))
    carbon = [0, 1, 0, 0, 0, 6, 0, 0, 0, 1, 4]
    hydrogen = [1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0]
    np.testing.assert_array_equal(x, np.array([carbon] + [hydrogen] * 4, np.float32))
    x = features_of(featurize(["C=C"]))
    np.testing.assert_array_equal(x[:2], [[0, 1, 0, 0, 0, 6, 0, 0, 1, 0, 2]] * 2)


def test_qm9_features_of_aromatic_and_triple_bonds():
    x = features_of(featurize(["c1ccncc1"]))
    np.testing.assert_array_equal(x[3], [0, 0, 1, 0, 0, 7, 1, 0, 1, 0, 0])
    x = features_of(featurize(["C#N"]))
    np.testing.assert_array_equal(x[0], [0, 1, 0, 0, 0, 6, 0, 1, 0, 0, 1])


@pytest.mark.parametrize("smiles", SMILES)
def test_hydrogens_come_after_heavy_atoms(smiles):
    numbers = features_of(featurize([smiles]))[:, 5]
    hydrogens = numbers == 1
    assert not np.any(hydrogens[:-1] & ~hydrogens[1:])
    mol = Chem.AddHs(Chem.MolFromSmiles(smiles))
    assert len(numbers) == mol.GetNumAtoms()


def test_num_hs_counts_written_hydrogens():
    x = features_of(featurize(["[2H]OC"]))
    np.testing.assert_array_equal(x[:, 5], [8, 6, 1, 1, 1, 1])
    np.testing.assert_array_equal(x[:2, 10], [1, 3])
    np.testing.assert_array_equal(features_of(featurize(["[H][H]"]))[:, 10], [1, 1])


HYDROGENS = [
    # SMILES, the same molecule without marks, its atoms under general and zinc (None: refused), and under qm9
    ("[2H]c1c([2H])c([2H])c([2H])c([2H])c1[2H]", "c1ccccc1", 6, 6, 12),
    ("[2H]O[2H]", "O", 1, 1, 3),
    ("[2H]OC", "OC", 2, 2, 6),
    ("[3H]C([2H])([H])[1H]", "C", 1, 1, 5),
    ("[H]OC([H])([H])[H]", "OC", 2, 2, 6),
    ("[2H]n1cccc1", "[nH]1cccc1", 5, 5, 10),
    ("[2H]/N=C/F", "N=CF", 3, 3, 5),
    ("[H]/N=C/F", "N=CF", 3, 3, 5),
    ("F[C@]([2H])(C)O", "F[C@H](C)O", 4, 4, 9),
    ("[13CH3]O", "CO", 2, 2, 6),
    ("[H][H]", "[H][H]", 2, None, 2),
    ("[2H][3H]", "[H][H]", 2, None, 2),
    ("[H+]", "[H+]", 1, None, 1),
    ("[2H+]", "[H+]", 1, None, 1),
    ("*[2H]", "*", 1, None, None),
]


def block(smiles):
    """Return a record of an SDF file."""
    mol = Chem.MolFromSmiles(smiles)
    AllChem.Compute2DCoords(mol)
    return Chem.MolToMolBlock(mol)


@pytest.mark.parametrize("features", FEATURIZERS)
@pytest.mark.parametrize(("marked", "plain", "general", "zinc", "qm9"), HYDROGENS, ids=[row[0] for row in HYDROGENS])
def test_a_hydrogen_of_any_isotope_is_a_hydrogen(marked, plain, general, zinc, qm9, features):
    """A hydrogen bound to another element is featurised as a hydrogen however it is written; others are separate atoms."""
    atoms = qm9 if FEATURIZERS[features].hydrogens == "explicit" else zinc if features.startswith("zinc") else general
    if atoms is None:
        with pytest.raises(UserError, match="is not one of"):
            featurize([marked], features=features)
        return
    ours, theirs = (graph_of(featurize([text], features=features)) for text in (marked, plain))
    assert len(ours[0]) == atoms
    assert ours == theirs
    if not features.startswith("zinc") and "*" not in marked:  # zinc's types count hydrogens as RDKit has stated them; SDF has none of *
        assert graph_of(featurize_items([block(marked)], features=features, kind="sdf", num_workers=0).packed) == theirs


@pytest.mark.parametrize("features", FEATURIZERS)
@pytest.mark.parametrize(
    ("mapped", "plain"), [("[cH:1]1[cH:2][cH:3][cH:4][cH:5][cH:6]1", "c1ccccc1"), ("[CH3:1][N:2]([CH3:3])[CH:4]=[O:5]", "CN(C)C=O")]
)
def test_atom_maps_change_no_feature(mapped, plain, features):
    assert graph_of(featurize([mapped], features=features)) == graph_of(featurize([plain], features=features))


def graph_of(molecules):
    """Return feature rows and bonds of the first molecule, each bond as the rows at its ends, independent of the atoms' order."""
    rows = [tuple(row) for row in features_of(molecules).tolist()]
    bonds = [(rows[source], rows[target]) for source, target in unpack_pyg(molecules)[0].edge_index.T.tolist()]
    return sorted(rows), sorted(bonds)


BEFORE = {
    # "general" in its first version, written down when it was the only one: atoms as the columns that are not 0
    "[2H]O[2H]": ([(0, 1), (1, 0), (1, 2), (2, 1)], [(0, 15, 23, 27, 33, 42), (4, 16, 23, 29, 36, 42), (0, 15, 23, 27, 33, 42)]),
    "[3H]C": ([(0, 1), (1, 0)], [(0, 15, 23, 27, 33, 42), (2, 15, 23, 31, 36, 42)]),
    "[H]/N=C/F": (
        [(0, 1), (1, 0), (1, 2), (2, 1), (2, 3), (3, 2)],
        [(0, 15, 23, 27, 33, 42), (3, 16, 23, 28, 35, 42), (2, 16, 23, 28, 35, 42), (5, 15, 23, 27, 36, 42)],
    ),
    "*[2H]": ([(0, 1), (1, 0)], [(13, 15, 23, 28, 39), (0, 15, 23, 27, 33, 42)]),
}


@pytest.mark.parametrize("smiles", BEFORE)
def test_the_first_version_of_general_stays_what_it_was(smiles):
    molecules = featurize([smiles], features="general:1")
    bonds, rows = BEFORE[smiles]
    assert sorted(tuple(bond) for bond in unpack_pyg(molecules)[0].edge_index.T.tolist()) == sorted(bonds)
    assert [tuple(np.flatnonzero(row).tolist()) for row in features_of(molecules)] == rows


def test_structures_keep_their_isotopes_in_the_smiles_written_of_them():
    result = featurize_items([block("[2H]OC")], features="general", kind="sdf", num_workers=0)
    assert (result.smiles, result.packed.num_nodes_per_graph.tolist()) == (["[2H]OC"], [2])


def test_only_qm9_charge_tells_an_anion_from_a_radical():
    anion, radical, cation = "[CH3-]", "[CH3]", "[NH4+]"
    assert graph_of(featurize([anion])) == graph_of(featurize([radical]))
    x = features_of(featurize([anion, radical, cation], features="qm9_charge"))
    assert x.shape == (4, 12)
    assert [features_of(featurize([text], features="qm9_charge"))[0, 11] for text in (anion, radical, cation)] == [
        -1,
        0,
        1,
    ]
    np.testing.assert_array_equal(x[:, :11], features_of(featurize([anion])))


def test_edges_are_rdkit_bonds_in_both_directions():
    molecules = featurize(["CC(C)O", "C1CC1"], features="general")
    np.testing.assert_array_equal(molecules.edge_ptr, [0, 6, 12])
    first = {tuple(edge) for edge in unpack_pyg(molecules)[0].edge_index.T.tolist()}
    assert first == {(0, 1), (1, 0), (1, 2), (2, 1), (1, 3), (3, 1)}


def test_zinc_types_and_the_kekule_form():
    x = features_of(featurize(["C[NH+](C)[C@H](C)c1c[nH]cc1"], features="zinc"))
    types = [TYPES[i] for i in x.argmax(axis=1)]
    assert x.sum() == len(types)
    assert types[:4] == [("C", 0, 0), ("N", 1, 1), ("C", 0, 0), ("C", 1, 0)]
    assert types[7] == ("N", 0, 0)  # [nH] is N in the Kekulé form, as in the benchmark's list, which has no "N H1"


def test_zinc_agrees_with_pyg_order_of_types():
    expected = (
        "C, O, N, F, C H1, S, Cl, O -, N H1 +, Br, N H3 +, N H2 +, N +, N -, S -, I, P, O H1 +, N H1 -, O +, S +, P H1, P H2, C H2 -, "
        "P +, S H1 +, C H1 -, P H1 +"
    )
    assert ", ".join(FEATURIZERS["zinc"].names) == expected


def test_one_text_is_no_list_of_its_letters():
    with pytest.raises(UserError, match=r"'CCO' is a single text\. Expected a list of SMILES, as in \['CCO'\]"):
        featurize("CCO")


@pytest.mark.parametrize(
    ("smiles", "features", "what"), [("CS", "qm9", "S is not one of"), ("C[SiH3]", "zinc", "Si H3"), ("*C", "qm9", "not one of")]
)
def test_atoms_outside_a_featuriser_are_never_silent(smiles, features, what):
    with pytest.raises(UserError, match=what):
        featurize(["C", smiles], features=features)
    molecules = featurize(["C", smiles], features=features, on_error="skip")
    assert [(row.row, row.smiles) for row in molecules.skipped] == [(1, smiles)]


def test_general_rows_are_one_hot_in_every_group():
    molecules = featurize(["C[N+](=O)[O-]", "OS(=O)(=O)c1ccccc1", "[Na+].[Cl-]", "[Pt]", "*C", "F[P-](F)(F)(F)(F)F"], features="general")
    for block in (slice(0, 14), slice(14, 21), slice(21, 27), slice(27, 33), slice(33, 40)):
        np.testing.assert_array_equal(molecules.table[:, block].sum(axis=1), 1)
    assert molecules.table.shape[1] == len(GENERAL.names) == 53
    platinum = features_of(molecules, 3)[0]
    assert platinum[GENERAL.names.index("other_element")] == 1
    assert platinum[GENERAL.names.index("mass")] == pytest.approx(1.95078, abs=1e-4)


BAD = [("CC(", "syntax"), ("", "empty"), ("   ", "empty"), (None, "empty"), (float("nan"), "empty"), ("CN(C)(C)C", "valence"),
       ("CC O", "syntax"), ("c1cccc1", "kekulize")]  # fmt: skip


@pytest.mark.parametrize(("bad", "reason"), BAD)
def test_bad_smiles_raise_with_row_and_text_or_are_listed(bad, reason):
    with pytest.raises(UserError, match=r"Row 2 ") as error:
        featurize(["C", "CC", bad, "CCC"])
    assert reason in str(error.value)
    assert str(bad if isinstance(bad, str) else "") in str(error.value)
    assert "on_error=skip" in str(error.value)
    molecules = featurize(["C", "CC", bad, "CCC"], on_error="skip")
    np.testing.assert_array_equal(molecules.rows, [0, 1, 3])
    assert [row.row for row in molecules.skipped] == [2]
    assert reason in molecules.skipped[0].reason
    assert len(molecules) == 3
    assert molecules.num_nodes_per_graph.min() > 0


def test_nothing_left_and_nothing_given_are_errors():
    with pytest.raises(UserError, match="None of the 2"):
        featurize(["(", ")"], on_error="skip")
    with pytest.raises(UserError, match="no molecules"):
        featurize([])


def test_unknown_options_name_the_known_ones():
    with pytest.raises(UserError, match="qm9, zinc, general"):
        featurize(["C"], features="qm8")
    with pytest.raises(UserError, match=r"features=general has no version '9' in this molgcn. There are: 1, 3"):
        featurize(["C"], features="general:9")
    with pytest.raises(UserError, match="raise or skip"):
        featurize(["C"], on_error="ignore")


def test_large_and_tiny_molecules():
    molecules = featurize(["C" * 200, "C", "[He]"], features="general")
    np.testing.assert_array_equal(molecules.num_nodes_per_graph, [200, 1, 1])
    np.testing.assert_array_equal(molecules.edge_ptr, [0, 398, 398, 398])
    packed = featurize(["C" * 200, "C"], features="qm9")
    assert packed.num_nodes == 602 + 5
    assert packed.neighbors.dtype == np.uint16


def test_workers_give_the_same_arrays_as_this_process():
    smiles = [SMILES[i % len(SMILES)] + "C" * (i % 7) for i in range(3000)]
    smiles[1500] = "C("
    here = featurize(smiles, features="general", on_error="skip", num_workers=0)
    there = featurize(smiles, features="general", on_error="skip", num_workers=2)
    assert here.content_hash() == there.content_hash()
    np.testing.assert_array_equal(here.rows, there.rows)
    assert here.skipped == there.skipped and list(here.smiles) == list(there.smiles)
    assert [row.row for row in there.skipped].count(1500) == 1


def test_chunks_join_to_what_one_chunk_gives():
    """Joined chunks are equal byte for byte, also if later chunks need wider types for more than 256 feature rows or atoms."""
    metals = [
        f"[{Chem.GetPeriodicTable().GetElementSymbol(number)}{charge}]" for number in range(21, 100) for charge in ("", "+", "+2", "-")
    ]
    smiles = ["CCO", "C("] * 600 + metals + [f"{'C' * 260}.[Na+]"] + ["c1ccccc1"] * 900
    whole = featurize_chunk(smiles, features="general", kind="smiles", label=None)
    joined = featurize_items(smiles, features="general", on_error="skip", num_workers=0)
    assert len(smiles) > 2 * CHUNK and joined.molecules.x.dtype == joined.molecules.neighbors.dtype == np.uint16
    for array in ARRAYS:
        ours, theirs = (getattr(one.molecules, array.name) for one in (joined, whole))
        assert (ours is None) == (theirs is None)
        if ours is not None and array.name != "rows":
            assert ours.dtype == theirs.dtype and np.array_equal(ours, theirs), array.name
    assert np.array_equal(joined.kept, whole.kept) and joined.failures == whole.failures


def test_row_numbers_come_from_the_source():
    with pytest.raises(UserError, match=r"Row 90 of some\.csv"):
        featurize_items(["C", "?"], features="qm9", rows=np.array([7, 90]), source="some.csv")


@settings(max_examples=60)
@given(st.lists(st.text(alphabet="CNOFcno()=#123[]+-H@. ", max_size=12), min_size=1, max_size=20))
def test_any_text_becomes_a_whole_molecule_or_a_named_reason(texts):
    try:
        packed = featurize(texts, features="general", on_error="skip")
    except UserError as error:
        assert "None of the" in str(error)  # noqa: PT017
        return
    assert sorted([*packed.rows.tolist(), *(row.row for row in packed.skipped)]) == list(range(len(texts)))
    assert packed.num_nodes_per_graph.min() >= 1
    for molecule, row in enumerate(packed.rows):
        mol = count_hydrogens(Chem.MolFromSmiles(texts[row].strip()))
        assert packed.node_ptr[molecule + 1] - packed.node_ptr[molecule] == mol.GetNumAtoms()
        assert packed.edge_ptr[molecule + 1] - packed.edge_ptr[molecule] == 2 * mol.GetNumBonds()


@pytest.mark.parametrize("kind", ["smiles", "sdf"])
@pytest.mark.parametrize("features", ["qm9", "general", "general:1", "zinc", "ogb", "chemprop"])
def test_the_atoms_of_a_graph_are_those_of_its_molecule(features, kind):
    """Atoms come in their order, and further ones in the graph are hydrogens."""
    for smiles in ("CC(=O)N", "[2H]OC", "[H]OC([H])F", "[H][H]", "[CH3:2][OH:1]"):
        item = smiles if kind == "smiles" else Chem.MolToMolBlock(Chem.MolFromSmiles(smiles))
        done = featurize_chunk([item], features=features, kind=kind, label=None)
        if done.molecules is None:
            continue
        featurizer = get_featurizer(features)
        elements = [featurizer.element(row) for row in done.molecules.node_features()]
        drawn = [atom.GetAtomicNum() for atom in sides_of_graph(item, features, kind)[0].mol.GetAtoms()]
        assert elements == drawn + [1] * (len(elements) - len(drawn))
