"""The mutations are those of today's code: each changes one place, and the test that must find it is in the default tier."""

import ast

import pytest
from mutations import MUTATIONS, ROOT


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: f"{mutation.file}: {mutation.after}")
def test_it_can_be_made(mutation):
    assert (ROOT / mutation.file).read_text().count(mutation.before) == 1
    path, _, name = mutation.test.partition("::")
    tests = [node for node in ast.parse((ROOT / path).read_text()).body if isinstance(node, ast.FunctionDef) and node.name == name]
    assert tests and not any(ast.unparse(mark) == "pytest.mark.slow" for mark in tests[0].decorator_list)
