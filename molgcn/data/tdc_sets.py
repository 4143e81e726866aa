"""The 22 sets of TDC's ADMET group: their metrics and units, and published results (tdcommons.ai/benchmark/admet_group)."""

from __future__ import annotations

from typing import NamedTuple


class TdcSet(NamedTuple):
    """A set of the benchmark.

    Attributes:
        metric: the benchmark's metric of it, by its name here.
        unit: the unit of its values, "" for none and for classes.
        chemprop_rdkit: the published result of Chemprop-RDKit, an ensemble, or None.
        maplight: the published result of MapLight (Notwell and Wood, arXiv:2310.00174), or None.
    """

    metric: str
    unit: str = ""
    chemprop_rdkit: float | None = None
    maplight: float | None = None


SEEDS = (1, 2, 3, 4, 5)  # of the benchmark's splits into training and validation
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
