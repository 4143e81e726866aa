"""Import torchmetrics, which Lightning imports, without what only its metrics of sounds, images and texts need.

torchmetrics imports SciPy's signal processing, Matplotlib, torchvision and transformers wherever they are installed. The first two take 1.4
of the 6 seconds that `train.py` imports for, and transformers takes several more. As torchmetrics asks for each of them with a requirement
of lightning_utilities, those are unmet while it is imported, whatever comes of it. Such metrics are then missing within this process, so
only the command line and the tests import this module, and nothing happens where torchmetrics was imported before.
"""

from unittest.mock import patch

from lightning_utilities.core import imports

_is_met, _is_installed = imports.RequirementCache.__bool__, imports.package_available


def _is_met_and_needed(self: imports.RequirementCache) -> bool:
    return str(self.requirement).startswith(("torch>", "torch<")) and _is_met(self)


def _is_installed_and_needed(name: str) -> bool:
    return name != "scipy" and _is_installed(name)


with (
    patch.object(imports.RequirementCache, "__bool__", _is_met_and_needed),
    patch.object(imports, "package_available", _is_installed_and_needed),
):
    import torchmetrics  # noqa: F401
