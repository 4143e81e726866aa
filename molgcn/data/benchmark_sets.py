"""The sets that `dataset.set` names: their metrics, units and published results.

TDC's ADMET group has 22 sets (tdcommons.ai/benchmark/admet_group), and OGB twelve of MoleculeNet (Hu et al., NeurIPS 2020).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class TdcSet(NamedTuple):
    """A set of the benchmark."""

    metric: str  # the benchmark's metric of it, by its name here
    unit: str = ""  # the unit of its values, "" for none and for classes
    chemprop_rdkit: float | None = None  # the published result of Chemprop-RDKit, an ensemble, or None
    maplight: float | None = None  # the published result of MapLight (Notwell and Wood, arXiv:2310.00174), or None


SEEDS = (1, 2, 3, 4, 5)  # of TDC's splits into training and validation
TDC_SETS = {
    "caco2_wang": TdcSet("mae", "log cm/s", 0.330, 0.276),
    "bioavailability_ma": TdcSet("roc_auc"),  # the published column is another set's
    "lipophilicity_astrazeneca": TdcSet("mae", "", 0.467, 0.539),
    "solubility_aqsoldb": TdcSet("mae", "log mol/L", 0.761, 0.792),
    "hia_hou": TdcSet("roc_auc", "", 0.981, 0.986),
    "pgp_broccatelli": TdcSet("roc_auc", "", 0.886, 0.930),
    "bbb_martins": TdcSet("roc_auc", "", 0.869, 0.916),
    "ppbr_az": TdcSet("mae", "%", 8.29, 7.66),
    "vdss_lombardo": TdcSet("spearman", "L/kg", 0.389, 0.707),
    "cyp2c9_veith": TdcSet("pr_auc", "", 0.777, 0.783),
    "cyp2d6_veith": TdcSet("pr_auc", "", 0.673, 0.723),
    "cyp3a4_veith": TdcSet("pr_auc", "", 0.876, 0.881),
    "cyp2c9_substrate_carbonmangels": TdcSet("pr_auc", "", 0.400, 0.415),
    "cyp2d6_substrate_carbonmangels": TdcSet("pr_auc", "", 0.686, 0.713),
    "cyp3a4_substrate_carbonmangels": TdcSet("roc_auc", "", 0.619, 0.650),
    "half_life_obach": TdcSet("spearman", "h", 0.239, 0.562),
    "clearance_hepatocyte_az": TdcSet("spearman", "uL/min/10^6 cells", 0.430, 0.466),
    "clearance_microsome_az": TdcSet("spearman", "mL/min/g", 0.599, 0.626),
    "ld50_zhu": TdcSet("mae", "log kg/mol", 0.625, 0.621),
    "herg": TdcSet("roc_auc", "", 0.840, 0.871),
    "ames": TdcSet("roc_auc", "", 0.850, 0.868),
    "dili": TdcSet("roc_auc", "", 0.887, 0.887),
}


class OgbSet(NamedTuple):
    """A set of the benchmark, which OGB calls ogbg-<name>."""

    archive: str  # the name of its archive without the ending
    num_targets: int  # the number of its targets
    metric: str  # the metric of OGB's evaluator, by its name here. Its mean over the targets for which it is defined is the result
    unit: str = ""  # the unit of its values, "" for none and for classes


OGB_SETS = {
    "molhiv": OgbSet("hiv", 1, "roc_auc"),
    "molpcba": OgbSet("pcba", 128, "pr_auc"),
    "molesol": OgbSet("esol", 1, "rmse", "log mol/L"),
    "molfreesolv": OgbSet("freesolv", 1, "rmse", "kcal/mol"),
    "mollipo": OgbSet("lipophilicity", 1, "rmse"),
    "molbace": OgbSet("bace", 1, "roc_auc"),
    "molbbbp": OgbSet("bbbp", 1, "roc_auc"),
    "molclintox": OgbSet("clintox", 2, "roc_auc"),
    "molmuv": OgbSet("muv", 17, "pr_auc"),
    "molsider": OgbSet("sider", 27, "roc_auc"),
    "moltox21": OgbSet("tox21", 12, "roc_auc"),
    "moltoxcast": OgbSet("toxcast", 617, "roc_auc"),
}

BENCHMARK_SETS: dict[str, Mapping[str, TdcSet | OgbSet]] = {"tdc": TDC_SETS, "ogb": OGB_SETS}
