"""Launches in C++ hand the driver what launches in Python do. A library that notes its calls stands in for the driver."""

from __future__ import annotations

import ctypes
import subprocess

import pytest
import torch
from compiler import COMPILER, needs_compiler

from molgcn.cuda_runtime.plan import Launch, Place, Plan, recording
from molgcn.cuda_runtime.structs import Header

if COMPILER is not None:
    import molgcn._launch as launch  # built at installation: `pip install -e .`

pytestmark = needs_compiler

ARGUMENTS = Header(
    "native_test_structs.h",
    Row=[("const float*", "rows"), ("int", "num_rows")],
    Parameters=[("const float*", "x"), ("Row", "rows[TWO]"), ("int", "num_atoms num_rows"), ("float*", "out")],
).ctype(TWO=2)
DRIVER = """
#include <cstring>
struct Attribute { unsigned id, unused, value[16]; };
struct Config { unsigned grid[3], block[3], shared; void* stream; Attribute* attributes; unsigned num_attributes; };
extern "C" {
int depth = 0, calls = 0, fails = 0;
unsigned noted[16][16];
unsigned char arguments[16][64];
int cuCtxPushCurrent_v2(void* context) { depth += context == (void*)7; return 0; }
int cuCtxPopCurrent_v2(void**) { depth--; return 0; }
int cuGetErrorName(int, const char** name) { *name = "CUDA_ERROR_TEST"; return 0; }
int cuLaunchKernelEx(const Config* it, void* function, void** parameters, void**) {
    if (fails) return 1;
    unsigned* to = noted[calls];
    to[0] = (unsigned)(unsigned long)function, to[1] = it->grid[0], to[2] = it->block[0], to[3] = it->shared;
    to[4] = (unsigned)(unsigned long)it->stream, to[5] = it->num_attributes, to[6] = depth;
    for (unsigned i = 0; i < it->num_attributes; i++) to[7 + 2 * i] = it->attributes[i].id, to[8 + 2 * i] = it->attributes[i].value[0];
    std::memcpy(arguments[calls++], parameters[0], 64);
    return 0;
}
}
"""
GRAPHS = """
struct Node { unsigned attributes[16]; unsigned char arguments[64]; };
struct Parameters { void* function; unsigned shape[7]; void **arguments, **extra; void *kernel, *context; };
Node nodes[16];
void* handles[16];
extern "C" {
int capturing = 0, refuses = 0, made = 0, set = 0, first = 0, alive = 0;
int cuStreamIsCapturing(void*, int* status) { *status = capturing; return 0; }
int cuThreadExchangeStreamCaptureMode(int* mode) { depth += *mode == 2 ? 100 : -100; *mode = 2 - *mode; return 0; }
int cuStreamCreate(void** stream, unsigned) { alive++; *stream = (void*)77; return refuses; }
int cuStreamDestroy_v2(void*) { alive--; return 0; }
int cuStreamBeginCapture_v2(void*, int) { first = calls; return 0; }
int cuStreamGetCaptureInfo_v3(void*, int*, unsigned long*, void**, void* const** found, const void**, unsigned long* count) {
    handles[calls - 1] = &nodes[calls - 1], *found = &handles[calls - 1], *count = 1;
    return 0;
}
int cuStreamEndCapture(void*, void** graph) {
    for (int i = first; i < calls; i++) std::memcpy(nodes[i].attributes, noted[i], 64), std::memcpy(nodes[i].arguments, arguments[i], 64);
    made = calls - first, calls = first, *graph = &nodes, alive++;
    return 0;
}
int cuGraphKernelNodeGetParams_v2(void* node, Parameters* to) { *to = {}; to->kernel = node; return 0; }
int cuGraphInstantiateWithFlags(void** to, void* graph, unsigned long long) { *to = graph, alive++; return 0; }
int cuGraphExecKernelNodeSetParams_v2(void*, void* node, const Parameters* it) {
    set++;
    std::memcpy(((Node*)node)->arguments, it->arguments[0], 64);
    return it->kernel != node;
}
int cuGraphLaunch(void*, void* stream) {
    for (int i = first; i < first + made; i++, calls++) {
        std::memcpy(noted[calls], nodes[i].attributes, 64), std::memcpy(arguments[calls], nodes[i].arguments, 64);
        noted[calls][4] = (unsigned)(unsigned long)stream;
    }
    return 0;
}
int cuGraphDestroy(void*) { alive--; return 0; }
int cuGraphExecDestroy(void*) { alive--; return 0; }
}
"""
assert ctypes.sizeof(ARGUMENTS) <= 64


def compiled(source, folder):
    path = folder / "driver.so"
    subprocess.run([str(COMPILER), "-shared", "-fPIC", "-x", "c++", "-", "-o", str(path)], input=source, text=True, check=True)
    return launch.Driver(str(path)), ctypes.CDLL(str(path))


@pytest.fixture
def driver(tmp_path):
    return compiled(DRIVER, tmp_path)


@pytest.fixture
def driver_with_graphs(tmp_path):
    return compiled(DRIVER + GRAPHS, tmp_path)


def noted(library: ctypes.CDLL, call: int) -> list[int]:
    return list((ctypes.c_uint * 16 * 16).in_dll(library, "noted")[call])


def arguments(library: ctypes.CDLL, call: int) -> ctypes.Structure:
    return ARGUMENTS.from_buffer_copy((ctypes.c_ubyte * 64 * 16).in_dll(library, "arguments")[call])


def test_a_launch_has_its_attributes_and_context(driver):
    native, library = driver
    given = ARGUMENTS(x=123)
    native.launch(7, 9, (5, 4, 64, 1024, 2, True, True, "kernel"), ctypes.addressof(given))
    native.launch(7, 0, (6, 1, 32, 0, 1, False, False, "other"), ctypes.addressof(given))
    assert noted(library, 0)[:13] == [5, 4, 64, 1024, 9, 3, 1, 4, 2, 2, 1, 6, 1]
    assert noted(library, 1)[:7] == [6, 1, 32, 0, 0, 0, 1]
    assert arguments(library, 0).x == 123
    assert ctypes.c_int.in_dll(library, "depth").value == 0


def test_an_error_names_the_kernel_and_leaves_no_context(driver):
    native, library = driver
    ctypes.c_int.in_dll(library, "fails").value = 1
    with pytest.raises(RuntimeError, match="CUDA kernel rows on cuda:0: CUDA_ERROR_TEST"):
        native.launch(7, 0, (5, 1, 32, 0, 1, False, False, "rows on cuda:0"), ctypes.addressof(ARGUMENTS()))
    assert ctypes.c_int.in_dll(library, "depth").value == 0


def test_a_library_that_is_no_driver_is_refused():
    with pytest.raises(RuntimeError, match="cannot be opened"):
        launch.Driver("no such driver.so")


def test_a_plan_fills_addresses_and_counts(driver):
    native, library = driver
    blob = bytes(ARGUMENTS(num_atoms=1, num_rows=2))
    offsets = {name: getattr(ARGUMENTS, name).offset for name in ("x", "out", "num_atoms")}
    holes = [(offsets["x"], 0, 16), (offsets["out"], 1, 0)]
    plan = launch.Plan(native, [((5, 4, 64, 0, 1, False, True, "k"), blob, holes, [(offsets["num_atoms"], 0)])] * 2, 2, 1)
    plan.run(7, 0, [1000, 2**40], [77])
    for call in range(2):
        found = arguments(library, call)
        assert (found.x, found.out, found.num_atoms, found.num_rows) == (1016, 2**40, 77, 2)
    with pytest.raises(ValueError, match="expected 2 addresses and 1 counts"):
        plan.run(7, 0, [1000], [77])
    with pytest.raises(ValueError, match="outside"):
        launch.Plan(native, [((5, 4, 64, 0, 1, False, True, "k"), blob, [(len(blob) - 4, 0, 0)], [])], 1, 0)


OFFSETS = {name: getattr(ARGUMENTS, name).offset for name in ("x", "out", "num_atoms")}


def plan_of_two(native):
    """Return a plan of two launches: the first has an address and a count, the second an address of another buffer."""
    blob, kernels = bytes(ARGUMENTS(num_rows=2)), [(5, 4, 64, 1024, 2, True, True, "first"), (6, 1, 32, 0, 1, False, True, "second")]
    first, second = ([(OFFSETS["x"], 0, 16)], [(OFFSETS["num_atoms"], 0)]), ([(OFFSETS["out"], 1, 0)], [])
    return launch.Plan(native, [(kernels[0], blob, *first), (kernels[1], blob, *second)], 2, 1)


def test_a_plan_that_runs_again_is_a_graph_which_launches_the_same(driver_with_graphs):
    native, library = driver_with_graphs
    value, plan = lambda name: ctypes.c_int.in_dll(library, name).value, plan_of_two(native)
    given = [((1000, 2000), 3), ((1000, 2000), 3), ((1000, 4000), 3), ((1000, 4000), 5)]
    changed = [0, 2, 3, 4]  # arguments set anew since the beginning: a graph is made of a plan's own, and keeps the last ones after that
    for run, (addresses, count) in enumerate(given):
        plan.run(7, 9, addresses, [count])
        first, second = (arguments(library, 2 * run + index) for index in range(2))
        assert (first.x, first.num_atoms, first.out, first.num_rows) == (addresses[0] + 16, count, 0, 2)
        assert (second.x, second.num_atoms, second.out) == (0, 0, addresses[1])
        assert noted(library, 2 * run)[:6] == [5, 4, 64, 1024, 9, 3]
        assert noted(library, 2 * run + 1)[:6] == [6, 1, 32, 0, 9, 1]
        assert value("set") == changed[run]
    assert value("depth") == 0
    assert value("alive") == 2  # the graph and what it was made into
    del plan
    assert value("alive") == 0


@pytest.mark.parametrize("reason", ["capturing", "refuses"])
def test_a_plan_launches_one_by_one_within_a_capture_or_without_memory_for_a_graph(driver_with_graphs, reason):
    native, library = driver_with_graphs
    plan = plan_of_two(native)
    ctypes.c_int.in_dll(library, reason).value = 1
    for run in range(3):
        plan.run(7, 9, [1000 + run, 2000], [run])
        assert (arguments(library, 2 * run).x, arguments(library, 2 * run).num_atoms) == (1016 + run, run)
        assert [noted(library, 2 * run + index)[4] for index in range(2)] == [9, 9]
    assert ctypes.c_int.in_dll(library, "made").value == 0
    assert ctypes.c_int.in_dll(library, "depth").value == 0


class Noting:
    """A kernel that keeps the arguments of its launches."""

    def __init__(self):
        self.launched = []

    def launch(self, grid, block, shared, parameters, **options):
        self.launched.append((grid, parameters, options))


def test_python_replays_what_was_recorded():
    """Nested pointers and counts among the fields of the struct itself are filled in; the rest stays as it was."""
    x, rows = torch.empty(8), torch.empty(8)
    it = ARGUMENTS(x=x.data_ptr() + 4, num_atoms=8, num_rows=3, out=x[4:].data_ptr())
    it.rows[1].rows, it.rows[1].num_rows = rows.data_ptr(), 8
    kernel = Noting()
    with recording() as made:
        pass
    made.launches.append(Launch(kernel, (1, 32, 0), {"overlap": True}, it))
    plan = Plan(made.launches, [(x, Place(0)), (x[4:], Place(1)), (rows, Place(2))], 3, 1, {"num_atoms": {8: 0}, "num_rows": {8: 0}})
    plan.run([1000, 2000, 3000], [5])
    (_, found, options) = kernel.launched[0]
    assert (found.x, found.out, found.rows[0].rows, found.rows[1].rows) == (1004, 2000, 0, 3000)
    assert (found.num_atoms, found.num_rows, found.rows[1].num_rows, options) == (5, 3, 8, {"overlap": True})
    with pytest.raises(RuntimeError, match="memory that a plan does not know"):
        Plan(made.launches, [(rows, Place(2))], 3)
