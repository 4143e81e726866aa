import importlib
from importlib.util import module_from_spec, spec_from_file_location

import pytest
from compiler import needs_extension

from molgcn import ops
from molgcn.cuda_runtime import kernel
from molgcn.errors import UserError
from molgcn.extension import FORMAT
from molgcn.ops import HAS_CPU_EXTENSION


@needs_extension
def test_a_machine_with_a_compiler_has_the_extension():
    assert HAS_CPU_EXTENSION, "a C++ compiler, but no extension: run `pip install -e .` again and see why its build failed"


@needs_extension
@pytest.mark.parametrize(("name", "importer"), [("molgcn._cpu", ops), ("molgcn._launch", kernel)])
def test_an_extension_that_was_built_from_other_sources_is_refused(name, importer, monkeypatch):
    extension = importlib.import_module(name)
    assert extension.FORMAT == FORMAT
    monkeypatch.setattr(extension, "FORMAT", FORMAT + 1)
    spec = spec_from_file_location("imported_again", importer.__file__)
    with pytest.raises(UserError, match=rf"format {FORMAT + 1}, expected {FORMAT}\)\. Build it again with `pip install -e \.`"):
        spec.loader.exec_module(module_from_spec(spec))
    monkeypatch.delattr(extension, "FORMAT")
    with pytest.raises(UserError, match="format None"):
        spec.loader.exec_module(module_from_spec(spec))
