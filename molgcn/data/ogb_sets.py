"""OGB's twelve sets of molecules from MoleculeNet (Hu et al., NeurIPS 2020): their archives, metrics and units."""

from __future__ import annotations

from typing import NamedTuple


class OgbSet(NamedTuple):
    """A set of the benchmark, which OGB calls ogbg-<name>.

    Attributes:
        archive: the name of its archive without the ending.
        num_targets: the number of its targets.
        metric: the metric of OGB's evaluator, by its name here. Its mean over the targets for which it is defined is the result.
        unit: the unit of its values, "" for none and for classes.
    """

    archive: str
    num_targets: int
    metric: str
    unit: str = ""


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
