"""dataset=qm9: 130,831 small organic molecules with DFT properties.

R. Ramakrishnan, P. O. Dral, M. Rupp and O. A. von Lilienfeld, "Quantum chemistry structures and properties of 134 kilo
molecules", Scientific Data 1, 140022 (2014), CC0. Units and order of the targets are those of torch_geometric.datasets.QM9.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

from molgcn.data.archive import WrongContentError
from molgcn.data.cache import cache_folder, file_hash
from molgcn.data.config import DatasetConfig
from molgcn.data.download import RemoteFile, download, download_archive, recorded_hash
from molgcn.data.rows import SkippedRow
from molgcn.data.sources.base import RawMolecules, Source
from molgcn.data.tables import check_columns, column_names, read_columns
from molgcn.errors import UserError, nearest, shown

log = logging.getLogger(__name__)

ROWS = 133_885  # including the 3,054 uncharacterised molecules that are left out
UNCHARACTERIZED = 3_054

HARTREE = 27.211386246  # eV, CODATA 2018
KCAL_MOL = 0.04336414  # eV

# name, which is also MoleculeNet's column: (unit of the target, factor from the unit of the files)
TARGETS = {
    "mu": ("D", 1.0),  # dipole moment
    "alpha": ("a0^3", 1.0),  # isotropic polarisability
    "homo": ("eV", HARTREE),  # orbital energies
    "lumo": ("eV", HARTREE),
    "gap": ("eV", HARTREE),
    "r2": ("a0^2", 1.0),  # electronic spatial extent
    "zpve": ("eV", HARTREE),  # zero-point vibrational energy
    "u0": ("eV", HARTREE),  # internal energy at 0 K
    "u298": ("eV", HARTREE),  # internal energy at 298.15 K
    "h298": ("eV", HARTREE),  # enthalpy at 298.15 K
    "g298": ("eV", HARTREE),  # free energy at 298.15 K
    "cv": ("cal/(mol K)", 1.0),  # heat capacity at 298.15 K
    "u0_atom": ("eV", KCAL_MOL),  # the four energies above relative to the free atoms
    "u298_atom": ("eV", KCAL_MOL),
    "h298_atom": ("eV", KCAL_MOL),
    "g298_atom": ("eV", KCAL_MOL),
    "A": ("GHz", 1.0),  # rotational constants
    "B": ("GHz", 1.0),
    "C": ("GHz", 1.0),
}
SDF, SDF_TABLE, UNCHARACTERIZED_LIST = "gdb9.sdf", "gdb9.sdf.csv", "uncharacterized.txt"
SDF_HEADER = ["mol_id", "A", "B", "C", *[name for name in TARGETS if name not in "ABC"]]
UNCHARACTERIZED_REASON = "uncharacterised: the published list says that its geometry and SMILES disagree"


def _check_sdf(path: Path) -> None:
    with open(path, "rb") as file:
        count = sum(line.startswith(b"$$$$") for line in file)
    if count != ROWS:
        raise WrongContentError(f"{SDF} has {count:,} molecules where {ROWS:,} are published")


def _check_table(path: Path) -> None:
    with open(path) as file:
        header = file.readline().strip().split(",")
        count = sum(1 for line in file if line.strip())
    if header != SDF_HEADER or count != ROWS:
        raise WrongContentError(f"{SDF_TABLE} has {count:,} rows and the columns {','.join(header[:4])},...; {ROWS:,} rows are published")


def _check_list(path: Path) -> None:
    count = len(read_uncharacterized(path))
    if count != UNCHARACTERIZED:
        raise WrongContentError(f"{UNCHARACTERIZED_LIST} names {count:,} molecules where {UNCHARACTERIZED:,} are published")


# The addresses of the files. No checksum is published with them, so that they are checked by header and row count, and their sha256 is
# recorded at the first download.
# MoleculeNet's copy of the geometries as SDF with the properties as CSV (Wu et al., arXiv:1703.00564), which
# torch_geometric.datasets.QM9 and DeepChem use; three addresses, the last a tar of the same two files.
ARCHIVE = RemoteFile(
    "gdb9.archive",
    (
        "https://deepchemdata.s3-us-west-1.amazonaws.com/datasets/molnet_publish/qm9.zip",
        "https://s3-us-west-1.amazonaws.com/deepchem.io/datasets/molnet_publish/qm9.zip",
        "https://deepchemdata.s3-us-west-1.amazonaws.com/datasets/gdb9.tar.gz",
    ),
)
# The authors' list of molecules whose geometry and SMILES disagree, at figshare (collection 978904, file 3195404).
LIST = RemoteFile(
    UNCHARACTERIZED_LIST,
    (
        "https://ndownloader.figshare.com/files/3195404",
        "https://figshare.com/ndownloader/files/3195404",
        "https://springernature.figshare.com/ndownloader/files/3195404",
    ),
    check=_check_list,
)


@dataclass(frozen=True)
class Files:
    """The files of QM9: a CSV, or an SDF and its table, and the list of uncharacterised molecules if there is one."""

    table: Path
    sdf: Path | None
    uncharacterized: Path | None


def open_qm9(config: DatasetConfig) -> Source:
    """Open QM9, downloaded or at `dataset.path`.

    The path is a CSV with MoleculeNet's columns, gdb9.sdf beside gdb9.sdf.csv, or a folder that holds one of these.
    """
    targets = tuple(config.targets or ("gap",))
    for target in targets:
        if target not in TARGETS:
            raise UserError(f"QM9 has no target '{target}'.{nearest(target, list(TARGETS))}")
    downloaded = cache_folder(config.cache_dir) / "qm9"
    if config.path is None:
        sdf, table = download_archive(ARCHIVE, {SDF: _check_sdf, SDF_TABLE: _check_table}, downloaded)
        files = Files(table, sdf, download(LIST, downloaded))
        hashes = [recorded_hash(path) for path in (sdf, table, downloaded / UNCHARACTERIZED_LIST)]
    else:
        files = _find(Path(config.path).expanduser(), downloaded)
        hashes = ["" if path is None else file_hash(path) for path in (files.sdf, files.table, files.uncharacterized)]
    smiles = [] if files.sdf else [config.smiles_columns[0]]
    check_columns(files.table, smiles=smiles, targets=targets)
    return Source(
        title=str(files.sdf or files.table),
        features=config.features or "qm9",
        target_names=targets,
        target_units=tuple(TARGETS[name][0] for name in targets),
        identity={"files": hashes, "smiles": smiles},
        read=partial(_read, files, config.smiles_columns[0], targets),
        column=lambda name: read_columns(files.table, [name], key="split_column")[name],
    )


def _find(path: Path, downloaded: Path) -> Files:
    if path.is_dir():
        known = [path / name for name in (SDF, "qm9.csv", "qm9.csv.gz") if (path / name).is_file()]
        if not known:
            raise UserError(f"The folder {path} has no {SDF}, qm9.csv or qm9.csv.gz. Give the file itself as dataset.path.")
        path = known[0]
    if not path.is_file():
        raise UserError(
            f"dataset.path={path.absolute()} does not exist. Give QM9 as a CSV with MoleculeNet's columns, or {SDF} beside {SDF_TABLE}."
        )
    beside = [folder / UNCHARACTERIZED_LIST for folder in (path.parent, downloaded)]
    listed = next((file for file in beside if file.is_file()), None)
    if path.suffix != ".sdf":
        return Files(path, None, listed)
    table = path.with_name(f"{path.name}.csv")
    if not table.is_file():
        raise UserError(
            f"{path} needs its table of properties beside it, and {table.name} is not there. Both are in MoleculeNet's qm9.zip."
        )
    return Files(table, path, listed)


def read_uncharacterized(path: Path) -> set[int]:
    """Return the numbers of the uncharacterised molecules, counted from 1 as in mol_id.

    They are the first words of all lines of five columns.
    """
    lines = path.read_text(errors="replace").splitlines()
    return {int(match[1]) for match in (re.match(r"\s*(\d+)\s+\S+\s+\S+\s+\S+\s+[\d.]+\s*$", line) for line in lines) if match}


def _read(files: Files, smiles: str, targets: tuple[str, ...]) -> RawMolecules:
    has_ids = "mol_id" in column_names(files.table)
    columns = read_columns(files.table, [*targets, *([] if files.sdf else [smiles]), *(["mol_id"] if has_ids else [])])
    count = len(columns[targets[0]])
    raw = RawMolecules(
        items=columns[smiles] if files.sdf is None else _mol_blocks(files.sdf, count),
        rows=np.arange(count),
        targets=np.stack([columns.numbers(name) * TARGETS[name][1] for name in targets], axis=1),
        kind="smiles" if files.sdf is None else "molblock",
    )
    if files.uncharacterized is None or not (has_ids or count == ROWS):
        log.warning(
            "%s: QM9's list of uncharacterised molecules is not applied, because %s. All %s rows are used.",
            files.table,
            f"there is no {UNCHARACTERIZED_LIST} beside the file" if files.uncharacterized is None else "the file has no column mol_id",
            f"{count:,}",
        )
        return raw
    numbered = _molecule_numbers(columns["mol_id"], files.table) if has_ids else np.arange(1, count + 1)
    drop = np.isin(numbered, list(read_uncharacterized(files.uncharacterized)))
    text = raw.items if raw.kind == "smiles" else [""] * count
    left_out = [SkippedRow(row, text[row], UNCHARACTERIZED_REASON) for row in np.flatnonzero(drop).tolist()]
    return replace(raw.take(np.flatnonzero(~drop)), left_out=left_out)


def _mol_blocks(path: Path, expected: int) -> list[str]:
    blocks = re.split(r"^\$\$\$\$\r?\n?", path.read_text("utf-8", errors="replace"), flags=re.MULTILINE)
    if blocks and not blocks[-1].strip():
        blocks.pop()
    if len(blocks) != expected:
        raise UserError(f"{path} has {len(blocks):,} molecules but its table {expected:,} rows. Fetch both again; they belong together.")
    return blocks


def _molecule_numbers(ids: Sequence[str], path: Path) -> np.ndarray:
    matches = [re.fullmatch(r"gdb_(\d+)", text.strip()) for text in ids]
    for row, match in enumerate(matches):
        if match is None:
            raise UserError(f"{path}, column 'mol_id', row {row}: '{shown(ids[row])}' is not of the form gdb_123.")
    return np.array([int(match[1]) for match in matches if match], np.int64)
