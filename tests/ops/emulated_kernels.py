"""Compile kernels of `cuda/` for the CPU, under tests/cuda/emulator.h, and keep them in the user's cache for later runs."""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from compiler import COMPILER, with_declared_headers
from filelock import FileLock

from molgcn.resources import resource

HEADERS = Path(__file__).parents[1] / "cuda"
OPTIONS = ("-std=c++17", "-Og", "-fPIC", "-w", "-ffp-contract=off", "-U_FORTIFY_SOURCE")
PROGRAM = """#include "{source}"
template <class P> void call(void (*kernel)(P), const void* p) {{ kernel(*static_cast<const P*>(p)); }}
extern "C" void run(const void* p) {{ call({name}, p); }}
"""
INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.MULTILINE)
DAYS = 14  # that a file is kept after its last use
# Found before tests are given a cache of their own.
KEPT = Path(os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser()) / "molgcn" / "emulated"
_scratch = tempfile.TemporaryDirectory()


class EmulatedKernel:
    """A kernel that was compiled for the CPU.

    Args:
        source: The kernel's file in `cuda/`.
        name: The kernel's name.
        defines: The macros that specialise it.
        find_races: Look for races in shared memory, with races.cpp.
    """

    def __init__(self, source: str, name: str, defines: Mapping[str, int], find_races: bool) -> None:
        self._find_races, self._cluster = find_races, defines.get("CLUSTER", 1)
        runtime = _runtime(find_races)
        self._runtime = ctypes.CDLL(str(runtime))  # before the kernel, which takes its functions from there
        folders = _folders()
        program, macros = PROGRAM.format(source=source, name=name), [f"-D{macro}={value}" for macro, value in sorted(defines.items())]
        options = ["-DMOLGCN_EMULATOR=1", *macros, "-shared", *(["-g", "-fsanitize=thread", "-nodefaultlibs"] if find_races else [])]
        places = [*([] if find_races else ["-include", str(_header())]), *(f"-I{folder}" for folder in folders)]
        self._path = compiled(f"{Path(source).stem}.so", program, folders, options, [*places, str(runtime)])
        self._kernel = ctypes.CDLL(str(self._path)).run

    def run(self, parameters: ctypes.Structure, grid: int, block: int, shared: int, slice_of_warps: int, hopper: bool) -> None:
        """Run the kernel; see `launch` of emulator.cpp."""
        self._runtime.launch(self._kernel, ctypes.byref(parameters), grid, block, shared, self._cluster, slice_of_warps, hopper)
        if self._find_races:
            self._check_races()

    def _check_races(self) -> None:
        places = (ctypes.c_uint32 * 40)()
        count = self._runtime.races_found(places, len(places) // 2)
        if count:
            addresses = [f"{place:#x}" for place in places[: 2 * count]]
            if shutil.which("addr2line"):
                found = subprocess.run(["addr2line", "-e", str(self._path), *addresses], capture_output=True, text=True, check=True)
                addresses = [Path(line.split(" ")[0]).name for line in found.stdout.splitlines()]
            pairs = sorted(set(zip(addresses[::2], addresses[1::2], strict=True)))
            raise AssertionError(f"{count} pairs of accesses to shared memory that nothing orders, of lines {pairs}")


@functools.cache
def _folders() -> list[Path]:
    """Return where the files are that kernels include."""
    return [HEADERS, resource("cuda"), with_declared_headers(Path(_scratch.name))]


@functools.cache
def _header() -> Path:
    """Return a header that includes emulator.h and lies beside its precompiled form, which compilers take where they can."""
    program = '#include "emulator.h"\n'
    header = compiled("emulator.h.gch", program, [HEADERS], [], [f"-I{HEADERS}"]).with_suffix("")
    header.write_text(program)
    return header


@functools.cache
def _runtime(find_races: bool) -> Path:
    name, sources = ("races.so", ["emulator.cpp", "races.cpp"]) if find_races else ("emulator.so", ["emulator.cpp"])
    program = "\n".join(f'#include "{source}"' for source in sources)
    return compiled(
        name, program, [HEADERS], ["-O2", "-shared", f"-Wl,-soname,{name}", *(["-DRACES"] if find_races else [])], [f"-I{HEADERS}"]
    )


def compiled(name: str, program: str, folders: Sequence[Path], options: Sequence[str], places: Sequence[str]) -> Path:
    """Compile a program, or return what was kept: it is found by everything that affects it but where files are.

    Args:
        name: The end of the file's name.
        program: The program's text.
        folders: Where the files are that it includes.
        options: The compiler's options beside `OPTIONS`.
        places: More options, which name files.
    """
    options = [*OPTIONS, *options]

    def compile_to(path: Path) -> None:
        file = Path(_scratch.name) / f"program{'.h' if name.endswith('.gch') else '.cpp'}"
        file.write_text(program)
        command = [str(COMPILER), *options, str(file), *places, "-o", str(path)]
        subprocess.run(command, check=True, env={**os.environ, "LC_ALL": "C"})

    return kept(name, [*options, program, *included(program, folders)], compile_to)


def kept(name: str, made_of: Sequence[str], make: Callable[[Path], None]) -> Path:
    """Return a file that the compiler makes, from the folder of those that are kept if it is there.

    Args:
        name: The end of the file's name.
        made_of: The texts that affect what is in it.
        make: Makes the file at a path.
    """
    key = hashlib.sha256("\0".join([_version(), name, *made_of]).encode()).hexdigest()[:32]
    path = kept_folder() / f"{key}-{name}"
    with _lock(path):
        if not path.exists():
            part = path.with_name(f"{key}.part")
            make(part)
            part.replace(path)
        os.utime(path)
    return path


@functools.cache
def _version() -> str:
    return subprocess.run([str(COMPILER), "--version"], capture_output=True, text=True, check=True).stdout


@functools.cache
def kept_folder() -> Path:
    """Return the folder of compiled files, after removing those that nobody used lately."""
    KEPT.mkdir(parents=True, exist_ok=True)
    for entry in os.scandir(KEPT):
        if not entry.name.endswith(".lock") and _unused(path := Path(entry)):
            with _lock(path):
                if _unused(path):
                    path.unlink()
    return KEPT


def _unused(path: Path) -> bool:
    """Return whether nobody used a file lately; one that is gone was somebody else's to remove."""
    try:
        return time.time() - os.stat(path).st_mtime > DAYS * 24 * 60 * 60
    except FileNotFoundError:
        return False


def _lock(path: Path) -> FileLock:
    """Return the lock of a file, which is also that of some others: locks remain, so there are 256."""
    return FileLock(path.with_name(f"{path.name[:2]}.lock"))


def included(program: str, folders: Sequence[Path]) -> list[str]:
    """Return the texts of all files that a program includes, and of those that these include."""
    texts: dict[str, str] = {}
    todo = INCLUDE.findall(program)
    while todo:
        if (name := todo.pop()) not in texts:
            texts[name], names = _file(name, tuple(folders))
            todo += names
    return [text for _, text in sorted(texts.items())]


@functools.cache
def _file(name: str, folders: tuple[Path, ...]) -> tuple[str, list[str]]:
    """Return the text of a file, empty where it is in no folder, and the names of those that it includes."""
    text = next(((folder / name).read_text() for folder in folders if (folder / name).exists()), "")
    return text, INCLUDE.findall(text)
