"""The tool chain compiles a small source in place of the kernels, also on machines without a GPU."""

import hashlib
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from molgcn.cuda_runtime import nvrtc
from molgcn.cuda_runtime.structs import Header
from molgcn.errors import UserError

SOURCE = '#include "part.cuh"\nextern "C" __global__ void fill(float* out) { out[threadIdx.x] = VALUE + part(); }\n'
ELF = b"\x7fELF"


@pytest.fixture
def sources(tmp_path, monkeypatch):
    folder = tmp_path / "cuda"
    folder.mkdir()
    (folder / "fill.cu").write_text(SOURCE)
    (folder / "part.cuh").write_text("__device__ inline float part() { return 1.0f; }\n")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return folder


def run(program, *arguments):
    """Run a program in another process, from the checkout, and return its output."""
    command = [sys.executable, "-c", program, *map(str, arguments)]
    return subprocess.run(command, check=True, cwd=Path(__file__).parents[2], capture_output=True, text=True).stdout.strip()


def fill(folder, arch="sm_80", value=2):
    return nvrtc.cubin("fill.cu", {"VALUE": value}, arch, folder)


FILL = (
    "from pathlib import Path; from molgcn.cuda_runtime import nvrtc; "
    "code = nvrtc.cubin('fill.cu', {'VALUE': 2}, 'sm_80', Path(sys.argv[1]))"
)


def cached(tmp_path):
    return sorted((tmp_path / "cache" / "molgcn" / "kernels").iterdir())


@pytest.mark.parametrize("arch", ["sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120"])
def test_compiles_for_every_architecture_without_a_gpu(sources, arch):
    assert fill(sources, arch).startswith(ELF)


def test_second_use_reads_the_cache_and_the_operators_need_no_tool_chain(sources, tmp_path):
    code = fill(sources)
    program = f"import hashlib, sys; sys.modules['cuda'] = None; import molgcn.ops, molgcn.cuda_runtime.launch, molgcn.nn; {FILL}"
    printed = run(f"{program}; print(hashlib.sha256(code).hexdigest())", sources)
    assert printed == hashlib.sha256(code).hexdigest()
    assert len(cached(tmp_path)) == 1


def test_a_compiler_that_is_no_package_says_its_version_itself(sources, tmp_path):
    """No package is found on an empty path; the compiler's own version then counts, and gives another file."""
    fill(sources)
    run(f"import sys; from molgcn.cuda_runtime import nvrtc; nvrtc.nvrtc_version(); sys.path[:] = []; {FILL}", sources)
    assert len(cached(tmp_path)) == 2


def test_source_include_macro_and_architecture_are_in_the_key(sources, tmp_path):
    fill(sources)
    fill(sources, value=3)
    fill(sources, "sm_90")
    (sources / "part.cuh").write_text("__device__ inline float part() { return 2.0f; }\n")
    fill(sources)
    (sources / "fill.cu").write_text(SOURCE + "// changed\n")
    fill(sources)
    assert len(cached(tmp_path)) == 5


def test_a_declared_header_is_found_and_in_the_key(sources, tmp_path):
    (sources / "part.cuh").write_text('#include "fill_structs.h"\n')
    kernel = 'extern "C" __global__ void fill(const __grid_constant__ Parameters p) { *p.out = p.value; }\n'
    (sources / "fill.cu").write_text('#include "part.cuh"\n' + kernel)
    for kind in ("int", "float"):
        Header("fill_structs.h", Parameters=[("float*", "out"), (kind, "value")])
        assert nvrtc.cubin("fill.cu", {}, "sm_80", sources).startswith(ELF)
    assert len(cached(tmp_path)) == 2


@pytest.mark.parametrize("damage", [lambda content: content[:-1], lambda content: content[:40] + b"x" + content[41:], lambda content: b""])
def test_damaged_file_is_rebuilt(sources, tmp_path, damage):
    code = fill(sources)
    (path,) = cached(tmp_path)
    whole = path.read_bytes()
    path.write_bytes(damage(whole))
    assert fill(sources) == code
    assert path.read_bytes() == whole


def test_folder_is_the_users_alone(sources, tmp_path):
    fill(sources)
    folder = tmp_path / "cache" / "molgcn" / "kernels"
    assert folder.stat().st_mode & 0o077 == 0
    assert all(path.stat().st_mode & 0o077 == 0 for path in cached(tmp_path))


def test_folder_that_others_can_write_is_not_trusted(sources, tmp_path):
    folder = tmp_path / "cache" / "molgcn" / "kernels"
    folder.mkdir(parents=True)
    folder.chmod(0o777)
    assert fill(sources).startswith(ELF)
    assert cached(tmp_path) == []


def test_processes_that_compile_at_once_leave_one_whole_file(sources, tmp_path):
    with ThreadPoolExecutor(2) as threads:
        list(threads.map(lambda _: run(f"import sys; {FILL}", sources), range(2)))
    (path,) = cached(tmp_path)
    written = path.stat().st_mtime_ns
    assert fill(sources).startswith(ELF)
    assert path.stat().st_mtime_ns == written  # otherwise it would have been rebuilt


def test_threads_may_load_the_tool_chain_at_once(sources):
    """A step compiles forward and backward at the same time."""
    run(
        "import sys, threading; from concurrent.futures import ThreadPoolExecutor; from pathlib import Path; "
        "from molgcn.cuda_runtime import nvrtc; start = threading.Barrier(4); "
        "compiled = lambda value: (start.wait(), nvrtc.compile_source('fill.cu', {'VALUE': value}, 'sm_80', Path(sys.argv[1])))[1]; "
        "assert len(set(ThreadPoolExecutor(4).map(compiled, range(4)))) == 4",
        sources,
    )


def test_error_in_the_source_shows_the_compilers_log(sources):
    (sources / "fill.cu").write_text('extern "C" __global__ void fill(float* out) { out = undefined_name; }\n')
    with pytest.raises(RuntimeError, match=r"fill.cu does not compile for sm_80(.|\n)*undefined_name"):
        nvrtc.cubin("fill.cu", {}, "sm_80", sources)


def test_a_gpu_newer_than_the_compiler_is_said_in_words(sources):
    with pytest.raises(UserError, match=r"does not compile for sm_999, the architecture of this GPU\..*--upgrade nvidia-cuda-nvrtc"):
        fill(sources, "sm_999")


def test_without_a_home_kernels_are_compiled_in_every_process(sources, monkeypatch):
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", "~")  # this is its value where the user's is unknown
    with pytest.raises(RuntimeError, match="home directory"):
        Path.home()
    assert fill(sources).startswith(ELF)


def test_missing_tool_chain_names_the_extra(sources, monkeypatch):
    nvrtc.nvrtc_version.cache_clear()
    monkeypatch.setitem(sys.modules, "cuda.bindings", None)
    with pytest.raises(UserError, match=r"pip install molgcn\[cuda\]"):
        nvrtc.compile_source("fill.cu", {"VALUE": 2}, "sm_80", sources)


def test_nvidias_package_is_not_hidden_by_the_folder_of_sources():
    run("import cuda.bindings.nvrtc")
