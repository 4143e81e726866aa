"""The table of featurisers, each of which has a file of its own."""

from functools import cache

from molgcn.data.featurizers.base import HYDROGENS, NO_STEREO, Featurizer
from molgcn.data.featurizers.chemprop import CHEMPROP
from molgcn.data.featurizers.general import GENERAL, GENERAL_1
from molgcn.data.featurizers.ogb import OGB
from molgcn.data.featurizers.qm9 import QM9, QM9_CHARGE
from molgcn.data.featurizers.reactions import MODES, ReactionFeaturizer
from molgcn.data.featurizers.zinc import ZINC, ZINC_12K
from molgcn.errors import UserError

__all__ = ["FEATURIZERS", "Featurizer", "ReactionFeaturizer", "get_featurizer"]

_VERSIONS = (QM9, ZINC, GENERAL_1, GENERAL, QM9_CHARGE, ZINC_12K, OGB, CHEMPROP)
FEATURIZERS = {featurizer.name: featurizer for featurizer in _VERSIONS if not featurizer.superseded}
"""The newest version of each featuriser, by name."""


@cache
def get_featurizer(features: str) -> Featurizer:
    """Return the featuriser of a name: the newest version, or the one that the name states, as in "general:1".

    A part "no_stereo" turns stereochemistry off, as in "general:no_stereo". A part "explicit_hydrogens" before it makes hydrogens atoms. A
    last part that is one of :data:`~molgcn.data.featurizers.reactions.MODES` is for reactions, as in "general:reac_diff", with "@1" or
    "@0+1" where the components of a row that are reactions are not the first one.
    """
    name, *rest = features.split(":")
    mode, _, places = rest[-1].partition("@") if rest else ("", "", "")
    if mode in MODES and all(map(str.isdecimal, places.split("+") if places else [])):
        base = get_featurizer(":".join([name, *rest[:-1]]))
        return ReactionFeaturizer.of(base, mode, tuple(map(int, places.split("+"))) if places else (0,))
    if name not in FEATURIZERS:
        raise UserError(f"There are no features named '{features}'. Use one of: {', '.join(FEATURIZERS)}.")
    flags = []
    for flag in (NO_STEREO, HYDROGENS):
        if rest[-1:] == [flag]:
            flags.append(rest.pop())
    version = ":".join(rest)
    versions = {str(featurizer.version): featurizer for featurizer in _VERSIONS if featurizer.name == name}
    if rest and version not in versions:
        raise UserError(f"features={name} has no version '{version}' in this molgcn. There are: {', '.join(versions)}.")
    featurizer = versions[version] if rest else FEATURIZERS[name]
    featurizer = featurizer.with_hydrogens() if HYDROGENS in flags else featurizer
    return featurizer.without_stereo() if NO_STEREO in flags else featurizer
