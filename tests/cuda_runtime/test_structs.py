"""C++ lays out the header of a declared struct in memory as ctypes does its fields."""

import ctypes
import subprocess

import pytest
import torch
from compiler import COMPILER, needs_compiler, with_declared_headers

from molgcn.cuda_runtime.structs import Header, declared_headers, fill
from molgcn.resources import resource

HEADER = Header(
    "test_structs.h",
    Layer=[("const float*", "weight bias"), ("int", "width")],
    Parameters=[
        ("int", "count"),
        ("const unsigned char*", "bytes"),  # behind a gap
        ("long long", "first"),
        ("float", "eps"),
        ("double", "momentum"),
        ("Layer", "in out"),
        ("uint32", "threshold"),
        ("Layer", "layers[MAX_LAYERS]"),
        ("float*", "table[MAX_LAYERS]"),
    ],
)


def test_the_header_is_the_fields_in_their_order():
    text = declared_headers()["test_structs.h"]
    assert text.startswith("#pragma once\nstruct Layer {\n    const float* weight;\n    const float* bias;\n    int width;\n};\n")
    assert "    Layer in;\n    Layer out;\n    uint32 threshold;\n    Layer layers[MAX_LAYERS];\n" in text


@needs_compiler
@pytest.mark.parametrize("length", [1, 32])
def test_cpp_lays_it_out_as_ctypes_does(tmp_path, length):
    found = HEADER.ctype(MAX_LAYERS=length)
    names = [name for name, _ in found._fields_]
    program = '#include <cstddef>\nusing uint32 = unsigned int;\n#include "test_structs.h"\nextern "C" size_t offsets[] = {'
    program += ", ".join(f"offsetof(Parameters, {name.rstrip('_')})" for name in names) + ", sizeof(Parameters)};"
    library = tmp_path / "offsets.so"
    options = ["-std=c++17", "-shared", "-fPIC", f"-DMAX_LAYERS={length}", f"-I{with_declared_headers(tmp_path)}"]
    subprocess.run([COMPILER, *options, "-x", "c++", "-", "-o", str(library)], input=program, text=True, check=True)
    expected = list((ctypes.c_size_t * (len(names) + 1)).in_dll(ctypes.CDLL(str(library)), "offsets"))
    assert [getattr(found, name).offset for name in names] + [ctypes.sizeof(found)] == expected


def test_fields_are_set_by_name_and_no_others():
    tensor = torch.zeros(3)
    it = fill(HEADER.ctype(MAX_LAYERS=2)(), {"count": 3, "bytes": tensor, "eps": 0.5})
    assert (it.count, it.bytes, it.eps, it.first) == (3, tensor.data_ptr(), 0.5, 0)
    it.in_ = HEADER.ctype("Layer")(width=5)
    it.layers[1].weight = 7
    assert (it.in_.width, it.out.width, it.layers[1].weight) == (5, 0, 7)
    with pytest.raises(AttributeError):
        fill(it, {"counts": 1})


def test_kernels_declare_no_argument_of_their_own():
    for path in resource("cuda").iterdir():
        assert "struct Parameters" not in path.read_text(), path.name
