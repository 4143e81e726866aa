from compiler import needs_extension

from molgcn.ops import HAS_CPU_EXTENSION


@needs_extension
def test_a_machine_with_a_compiler_has_the_extension():
    assert HAS_CPU_EXTENSION, "a C++ compiler, but no extension: run `pip install -e .` again and see why its build failed"
