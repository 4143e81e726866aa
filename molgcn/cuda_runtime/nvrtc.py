"""Compile CUDA sources to machine code by NVRTC, through NVIDIA's `cuda.bindings`, and cache it on disk. This needs no GPU."""

from __future__ import annotations

import hashlib
import os
import re
import stat
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from molgcn.cuda_runtime.structs import declared_headers
from molgcn.errors import UserError
from molgcn.resources import resource

_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]+"([^"]+)"', re.MULTILINE)
_HASH_BYTES = hashlib.sha256().digest_size
_importing = threading.Lock()
_OPTIONS = ("std=c++17", "no device headers")  # part of the cache key; changes with the options below


def cubin(source: str, defines: Mapping[str, int], arch: str, folder: Path | None = None) -> bytes:
    """Return the machine code of one file of `cuda/`, from the cache if it is there and intact.

    Args:
        source: The file's name.
        defines: The macros that specialise the kernels, in place of template arguments.
        arch: The architecture, such as "sm_90".
        folder: The folder of the file and of those that it includes; None means `cuda/`.

    Raises:
        UserError: If the CUDA tool chain is not installed, or is older than the architecture.
        RuntimeError: If the source does not compile. The message has the compiler's log.
    """
    folder = folder or resource("cuda")
    path = _cache_file(source, defines, arch, folder)
    code = _read(path) if path is not None else None
    if code is None:
        code = compile_source(source, defines, arch, folder)
        if path is not None:
            _write(path, code)
    return code


def compile_source(source: str, defines: Mapping[str, int], arch: str, folder: Path | None = None) -> bytes:
    """Compile one file of `cuda/` without the cache; see :func:`cubin` for arguments and errors."""
    _check_knows(arch)
    from cuda.bindings import nvrtc

    folder = folder or resource("cuda")
    own = "a" if defines.get("WARPGROUPS") else ""  # the instructions that no other architecture has
    options = [f"--gpu-architecture={arch}{own}", "--std=c++17", f"--include-path={folder}"]
    options += [f"--define-macro={name}={value}" for name, value in sorted(defines.items())]
    if defines.get("LARGE_MOLECULES"):
        options.append("--split-compile=0")  # the code for large molecules is a function of its own, compiled on another core
    headers = {name: text for name, text in _texts(source, folder).items() if name in declared_headers()}
    names, texts = [name.encode() for name in headers], [text.encode() for text in headers.values()]
    _, program = nvrtc.nvrtcCreateProgram((folder / source).read_bytes(), source.encode(), len(headers), texts, names)
    try:
        (error,) = nvrtc.nvrtcCompileProgram(program, len(options), [option.encode() for option in options])
        if error != nvrtc.nvrtcResult.NVRTC_SUCCESS:
            log = _bytes(nvrtc.nvrtcGetProgramLogSize, nvrtc.nvrtcGetProgramLog, program).decode(errors="replace").rstrip("\0")
            raise RuntimeError(f"cuda/{source} does not compile for {arch} with {dict(defines)} ({error.name}):\n{log}")
        return _bytes(nvrtc.nvrtcGetCUBINSize, nvrtc.nvrtcGetCUBIN, program)
    finally:
        nvrtc.nvrtcDestroyProgram(program)


def _bytes(size: Callable[..., Any], get: Callable[..., Any], program: Any) -> bytes:
    _, count = size(program)
    content = bytes(count)  # filled in place
    get(program, content)
    return content


def _cache_file(source: str, defines: Mapping[str, int], arch: str, folder: Path) -> Path | None:
    cache = _cache_folder()
    if cache is None:
        return None
    macros, texts = (f"{name}={value}" for name, value in sorted(defines.items())), _texts(source, folder).values()
    key = hashlib.sha256("\0".join([_compiler(), arch, *_OPTIONS, *macros, *texts]).encode()).hexdigest()
    return cache / f"{Path(source).stem}-{arch}-{key[:32]}.cubin"


@lru_cache(maxsize=1)
def _compiler() -> str:
    """Return the compiler's version for the cache key: its package's, or else the library's, which takes 10 to 25 ms to load."""
    try:
        return version("nvidia-cuda-nvrtc")
    except PackageNotFoundError:
        return nvrtc_version()


@lru_cache(maxsize=1)
def nvrtc_version() -> str:
    """Return the compiler's version, such as "13.0".

    Raises:
        UserError: If the CUDA tool chain is not installed.
        RuntimeError: If the library does not tell its version.
    """
    with tool_chain():
        from cuda.bindings import nvrtc

        error, major, minor = nvrtc.nvrtcVersion()  # loads the library, which may be missing although the package is there
    if error != nvrtc.nvrtcResult.NVRTC_SUCCESS:
        raise RuntimeError(f"NVRTC gives no version: {error}")
    return f"{major}.{minor}"


def _check_knows(arch: str) -> None:
    version = nvrtc_version()
    from cuda.bindings import nvrtc

    _, count = nvrtc.nvrtcGetNumSupportedArchs()
    _, known = nvrtc.nvrtcGetSupportedArchs()
    if int(arch.removeprefix("sm_")) not in known[:count]:
        raise UserError(
            f"NVRTC {version} does not compile for {arch}, the architecture of this GPU. If the GPU is newer than NVRTC, run "
            "`pip install --upgrade nvidia-cuda-nvrtc nvidia-cuda-runtime`, or use backend=pyg."
        )


@contextmanager
def tool_chain() -> Iterator[None]:
    """Guard imports of `cuda`: one thread at a time, since a second one may see a half-imported package.

    Raises:
        UserError: If the CUDA tool chain is not installed completely.
    """
    try:
        with _importing:
            yield
    except (ImportError, RuntimeError, OSError) as error:
        raise UserError(
            f"backend=fused on a CUDA device needs the CUDA tool chain, which is not installed completely ({error}). "
            "Run `pip install molgcn[cuda]` (from a checkout: `pip install -e .[cuda]`), or use backend=pyg."
        ) from error


def _texts(source: str, folder: Path) -> dict[str, str]:
    """Return the source, every file of the folder and every declared header that it includes, directly or not, by name."""
    declared, waiting = declared_headers(), [source]
    texts: dict[str, str] = {}
    while waiting:
        name = waiting.pop()
        if name in declared:
            texts[name] = declared[name]
        elif name not in texts and (path := folder / name).is_file():
            texts[name], included = _text(path, path.stat().st_mtime_ns)
            waiting += included
    return texts


@lru_cache(maxsize=64)
def _text(path: Path, changed: int) -> tuple[str, list[str]]:
    """Return a file's text and the names that it includes, remembered since most files are part of several kernels."""
    text = path.read_text()
    return text, _INCLUDE.findall(text)


def _cache_folder() -> Path | None:
    """Return the user's folder of kernels, or None if another user may write to it, since its files are executed."""
    base = os.environ.get("XDG_CACHE_HOME")
    try:
        folder = (Path(base) if base else Path.home() / ".cache") / "molgcn" / "kernels"
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        state = folder.stat()
    except (OSError, RuntimeError):  # no folder, or no home
        return None
    others_write = bool(state.st_mode & (stat.S_IWGRP | stat.S_IWOTH))
    foreign = hasattr(os, "getuid") and state.st_uid != os.getuid()
    return None if foreign or others_write else folder


def _read(path: Path) -> bytes | None:
    try:
        content = path.read_bytes()
    except OSError:
        return None
    code = content[_HASH_BYTES:]
    return code if hashlib.sha256(code).digest() == content[:_HASH_BYTES] else None


def _write(path: Path, code: bytes) -> None:
    """Write a file in one step, so that another process sees all of it or nothing. If the disk is full, nothing is cached."""
    try:
        handle, name = tempfile.mkstemp(dir=path.parent, suffix=".part")
    except OSError:
        return
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(hashlib.sha256(code).digest() + code)
        os.replace(name, path)
    except OSError:
        Path(name).unlink(missing_ok=True)
