"""Public functions say what they do, unless their name and one return statement say it already."""

import ast
from collections.abc import Iterator
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "molgcn"


def public_functions(node: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Yield the public functions and methods of a module, without those within functions."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.ClassDef) and not child.name.startswith("_"):
            yield from public_functions(child)
        elif isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef) and not child.name.startswith("_"):
            yield child


def overrides_or_overloads(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    return any(ast.unparse(decorator).rpartition(".")[2] in ("override", "overload") for decorator in function.decorator_list)


def test_public_functions_of_several_statements_have_docstrings():
    silent = [
        f"{path.relative_to(PACKAGE)}:{function.lineno} {function.name}"
        for path in sorted(PACKAGE.rglob("*.py"))
        for function in public_functions(ast.parse(path.read_text("utf-8")))
        if ast.get_docstring(function) is None and not overrides_or_overloads(function)
        if len(function.body) > 1 or not isinstance(function.body[0], ast.Return | ast.Expr)
    ]
    assert silent == []
