"""Labels that are computed from a molecule, in the same worker pass as its features."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable
from functools import cache
from types import ModuleType
from typing import Any

from molgcn.errors import UserError

VERSION = 2  # of penalized_logp, which goes up when values change


def penalized_logp(mol: Any) -> float:
    r"""Return the penalised logP as "Benchmarking Graph Neural Networks" normalises it for ZINC.

    .. math::
        y = \frac{\log P - 2.457}{1.434} + \frac{-\mathrm{SA} + 3.053}{0.834} + \frac{c + 0.049}{0.286}, \quad
        c = -\max(0, \text{largest ring} - 6)

    Here log P is Crippen's, SA is the synthetic accessibility score of Ertl and Schuffenhauer (J. Cheminform. 1, 8, 2009; RDKit's
    Contrib/SA_Score), and the largest ring is that of a cycle basis. The constants are the means and standard deviations over ZINC-250k
    that the benchmark uses (Jin et al., arXiv:1802.04364). They are rounded here and in full in the code.

    Args:
        mol: `rdkit.Chem.Mol` of heavy atoms only.

    Raises:
        UserError: when RDKit's Contrib/SA_Score is not installed.
    """
    from rdkit.Chem import rdMolDescriptors

    log_p = rdMolDescriptors.CalcCrippenDescriptors(mol)[0]
    accessibility = _sascorer().calculateScore(mol)
    cycle = -max(0, largest_cycle(mol) - 6)
    return float(
        (log_p - 2.4570953396190123) / 1.434324401111988
        + (-accessibility + 3.0525811293166134) / 0.8335207024513095
        + (cycle + 0.0485696876403053) / 0.2860212110245455
    )


def largest_cycle(mol: Any) -> int:
    """Return the size of the largest ring of `networkx.cycle_basis`, 0 for a molecule without rings.

    In fused and bridged systems it may exceed the size of RDKit's smallest rings, and it depends on the order of RDKit's bonds.
    """
    import networkx

    graph = networkx.Graph()
    graph.add_nodes_from(range(mol.GetNumAtoms()))
    graph.add_edges_from((bond.GetBeginAtomIdx(), bond.GetEndAtomIdx()) for bond in mol.GetBonds())
    return max((len(cycle) for cycle in networkx.cycle_basis(graph)), default=0)


@cache
def _sascorer() -> ModuleType:
    from rdkit import RDConfig

    path = os.path.join(RDConfig.RDContribDir, "SA_Score", "sascorer.py")
    if not os.path.isfile(path):
        raise UserError(
            f"RDKit's synthetic accessibility score is missing ({path}), and the ZINC label needs it. Install RDKit with "
            "`pip install rdkit`, whose package brings it."
        )
    spec = importlib.util.spec_from_file_location("sascorer", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


LABELS: dict[str, Callable[[Any], float]] = {"penalized_logp": penalized_logp}
