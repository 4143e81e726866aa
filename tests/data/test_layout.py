"""What the data layer may know: batches are laid out as a model wishes, whatever the model and its kernels are."""

import ast
from pathlib import Path

import molgcn.data

ABOVE = ("molgcn.config", "molgcn.ops", "molgcn.nn", "molgcn.training")


def imported(path):
    """Every module that a file imports, also within functions and for type checkers."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module


def test_data_imports_neither_models_nor_kernels():
    files = list(Path(molgcn.data.__file__).parent.rglob("*.py"))
    assert len(files) > 40
    assert {(path.name, name) for path in files for name in imported(path) if name.startswith(ABOVE)} == set()
