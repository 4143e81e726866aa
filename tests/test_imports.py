"""Imports go one way: there are no cycles among modules, and no package imports one above it. What is slow is imported where it is used."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from importlib.util import resolve_name
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from compiler import needs_extension

PACKAGE = Path(__file__).parents[1] / "molgcn"

# From the lowest to the highest; all may import modules that are not named here, such as molgcn.errors.
LAYERS = [
    "files process",
    "cuda_runtime",
    "data",
    "domain",
    "config",
    "ops",
    "nn",
    "metrics",
    "report",
    "tasks",
    "comparison",
    "blending",
    "calibration",
    "training",
    "screening",
    "replicates",
    "search",
    "cli",
    "evaluation conversion",
    "evaluate calibrate export onnx_inputs predict convert compare",
    "explain fingerprint model",
    "estimators",
]
RANK = {f"molgcn.{name}": rank for rank, names in enumerate(LAYERS) for name in names.split()}

# Imports within functions still close cycles here.
CIRCLES = {"molgcn.ops"}

FUSED = """
import numpy as np
from molgcn.data import PackedMolecules
from molgcn.nn import GCN

count, bond = np.array([2]), np.array([[0, 1], [1, 0]])
packed = PackedMolecules.from_arrays(count, count, bond, x=np.ones((2, 3), np.float32))
GCN(3, 8, 2, 1, backend="fused")(packed.batch(slice(None))).sum().backward()
"""
TRAINING = "import molgcn.training.torchmetrics_import, molgcn.replicates.run"  # what train.py imports before it trains


@cache
def modules() -> dict[str, ast.Module]:
    """Return every module's syntax tree by the module's name."""
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = ast.parse(path.read_text("utf-8"))
    return found


def statements(node: ast.AST, within_functions: bool) -> Iterator[ast.Import | ast.ImportFrom]:
    """Yield the imports that run, without those for type checkers, and with those within functions if wanted."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import | ast.ImportFrom):
            yield child
        elif isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
            continue
        elif within_functions or not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            yield from statements(child, within_functions)


@cache
def imported(module: str, within_functions: bool) -> set[str]:
    """Return the modules of this package that a module imports."""
    names: set[str] = set()
    for statement in statements(modules()[module], within_functions):
        if isinstance(statement, ast.Import):
            names |= {alias.name for alias in statement.names}
            continue
        base = resolve_name("." * statement.level + (statement.module or ""), module)
        members = {f"{base}.{alias.name}" for alias in statement.names}
        names |= {name if name in modules() else base for name in members}
    return names & modules().keys() - {module}


def package_of(module: str) -> str:
    return ".".join(module.split(".")[:2])


def circle(names: Iterable[str], within_functions: bool) -> list[str]:
    """Return a cycle of modules, in which each imports the next and the last is the first; empty if there is none."""
    names = set(names)
    order = TopologicalSorter({module: imported(module, within_functions) & names for module in names})
    try:
        order.prepare()
    except CycleError as error:
        return error.args[1][::-1]
    return []


@cache
def imported_by(*steps: str) -> list[set[str]]:
    """Return what a new process has imported after each of the steps, which are Python code.

    The process fails where it imports one of LARGE, which seem to be installed.
    """
    after_each = "\nprint(*sys.modules)\n"
    program = f"import sys\n{after_each.join([*steps, ''])}"
    with TemporaryDirectory() as folder:
        for name in LARGE:
            Path(folder, f"{name}.py").write_text(f"raise AssertionError('{name} is imported')")
            Path(folder, f"{name}-99.0.dist-info").mkdir()
            Path(folder, f"{name}-99.0.dist-info", "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 99.0\n")
        environment = {**os.environ, "PYTHONPATH": folder}
        done = subprocess.run([sys.executable, "-c", program], env=environment, stdout=subprocess.PIPE, text=True, check=True)
    return [{*line.split()} for line in done.stdout.splitlines()]


def test_no_module_imports_itself_by_way_of_others():
    assert circle(modules(), within_functions=False) == []


def test_imports_within_functions_close_no_circle_either():
    assert circle((module for module in modules() if package_of(module) not in CIRCLES), within_functions=True) == []


def test_scikit_learn_is_imported_where_it_is_used():
    """The import takes a second, for which regression runs do not wait. Its estimators are classes of it, which nothing else imports."""
    imports = [(name, statement) for name, tree in modules().items() for statement in statements(tree, within_functions=False)]
    others = [(name, statement) for name, statement in imports if package_of(name) != "molgcn.estimators"]
    assert [name for name, statement in others if re.search(r"sklearn|molgcn\.estimators", ast.unparse(statement))] == []


def test_packages_import_only_what_stands_below():
    upwards = {
        (module, package_of(other))
        for module in modules()
        for other in imported(module, within_functions=True)
        if RANK.get(package_of(other), -1) > RANK.get(package_of(module), sys.maxsize)
    }
    assert upwards == set()


def test_documented_names_are_where_they_are_documented():
    from molgcn.data import PackedMolecules
    from molgcn.nn import GCN
    from molgcn.training import MoleculeModule, MoleculeRegressor

    packages = [package_of(kind.__module__) for kind in (PackedMolecules, GCN, MoleculeModule)]
    assert packages == ["molgcn.data", "molgcn.nn", "molgcn.training"]
    assert MoleculeRegressor is MoleculeModule  # its earlier name


def test_what_starts_often_imports_no_torch():
    """This concerns a command that only checks its arguments or starts other jobs, and worker processes that read molecules."""
    modules = ["molgcn.config.run", "molgcn.cli", "molgcn.data.load", "molgcn.screening.ready", "molgcn.search.sweep"]
    after = imported_by(*(f"import {module}" for module in modules))
    slow = {"torch", "lightning", "matplotlib", "pandas"}
    assert {module: found & slow for module, found in zip(modules, after, strict=True) if found & slow} == {}


CAN_FUSE = not needs_extension.args[0]
# Each step goes on from the one before, so that the first that imports a package in vain is the one to blame.
LARGE = {"torchvision", "transformers"}  # torchmetrics imports them where they are installed
REPORTS = {"matplotlib", "pandas", "jinja2"}
TRAINERS = {"lightning", "torchmetrics", "torch._dynamo", "torch_geometric"}
STEPS = {
    "molgcn": ("import molgcn", {"torch", "numpy", "lightning", "hydra"}),
    "fused operators": (FUSED if CAN_FUSE else "", {"torch._dynamo", "torch_geometric", "lightning", "hydra", "pandas", "scipy", "rdkit"}),
    "prediction": ("import molgcn.model, molgcn.screening.run", {*TRAINERS, "scipy", "sklearn", "rdkit.Chem.Draw", *REPORTS}),  # needs X11
    "evaluation": ("import molgcn.evaluation.run", {*TRAINERS, "sklearn", "scipy", *REPORTS}),
    "training": (TRAINING, {"torch_geometric", "sklearn", "scipy", "rdkit", "wandb", "optuna", "joblib", "tensorboard", *REPORTS}),
    "reports": ("import molgcn.report.plots, molgcn.report.page, molgcn.report.numbers", {"pandas", "sklearn"}),
}


@pytest.mark.parametrize("step", [pytest.param(name, marks=needs_extension if name == "fused operators" else ()) for name in STEPS])
def test_only_what_is_used_is_imported(step):
    """Each of these packages takes a tenth of a second or more to import; torch._dynamo, torch.compile's, takes one."""
    after = imported_by(*(code for code, _ in STEPS.values()))[list(STEPS).index(step)]
    assert after & STEPS[step][1] == set()
