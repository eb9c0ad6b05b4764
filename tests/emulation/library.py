"""Compiles the kernels for AMX, VNNI and AVX-512 so that any processor runs them, for tests alone.

The C sources are those of the package, untouched. `immintrin.h` beside this file comes before the
compiler's own and replaces the instructions. Nothing of it is in the package, so nobody speaks by
emulated instructions without knowing.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import torch  # noqa: F401 - before the libraries, so that they share its threads

from nightingale.nn import native

Kind = Literal["amx", "int8_vnni", "stack_avx512", "stack_vnni", "stack_amx", "instructions"]

HEADERS = Path(__file__).parent
KEPT = HEADERS.parents[1] / ".cache" / "emulation"  # compiled once for every change of a source
ARGUMENTS: dict[Kind, tuple[str, ...]] = {
    "amx": ("amx.c", "convolve.c"),
    "int8_vnni": ("int8.c", "-DEMULATE_VNNI"),
    "stack_avx512": ("stack.c", "-DEMULATE_BW"),
    "stack_vnni": ("stack.c", "-DEMULATE_VNNI"),
    "stack_amx": ("stack.c", "-DEMULATE_AMX"),
    "instructions": (str(HEADERS / "instructions.c"),),
}
# Products and sums are fused only where a source says so: else compilers would disagree on bits.
FLAGS = ("-O2", "-fopenmp", "-fno-math-errno", "-ffp-contract=off", "-fPIC", "-shared")
EMULATION = ("-w", f"-I{HEADERS}", "-include", "immintrin.h")
NATIVE = ("-march=native",) if platform.machine() in ("x86_64", "AMD64") else ()
PORTABLE = ("-DEMULATE_AVX512",)  # vectors as well, whatever the processor has
DECLARE: dict[Kind, Callable[[ctypes.CDLL], ctypes.CDLL]] = {
    "amx": native.declare_fused,
    "int8_vnni": native.declare_fused,
    "stack_avx512": native.declare_stack,
    "stack_vnni": native.declare_stack,
    "stack_amx": native.declare_stack,
}


def compiler() -> str | None:
    """What compiles the kernels; they are written for Linux."""
    if platform.system() != "Linux":
        return None
    return os.environ.get("CC") or shutil.which("cc")


@functools.cache
def emulated(kind: Kind, *, portable: bool = False) -> ctypes.CDLL:
    """A library whose AMX and VNNI instructions are plain C; `portable`: vectors too."""
    flags = (*FLAGS, *EMULATION, *NATIVE, *(PORTABLE if portable else ()))
    return load(kind, build(flags, ARGUMENTS[kind], native.FOLDER))


def load(kind: Kind, file: Path) -> ctypes.CDLL:
    library = ctypes.CDLL(str(file))
    return DECLARE[kind](library) if kind in DECLARE else library


def build(flags: tuple[str, ...], arguments: tuple[str, ...], folder: Path) -> Path:
    """Compiles sources in a folder, unless that was done before, or is being done right now."""
    import fcntl  # there is none on Windows, nor a compiler for this

    file = KEPT / f"{_fingerprint(flags, arguments, folder)}.so"
    KEPT.mkdir(parents=True, exist_ok=True)
    with file.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if file.exists():
            return file
        with tempfile.TemporaryDirectory(dir=KEPT) as space:
            made = Path(space) / file.name
            command = [str(compiler()), *flags, *arguments, "-o", str(made), "-lm"]
            done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stderr
            made.replace(file)
    return file


def _fingerprint(flags: tuple[str, ...], arguments: tuple[str, ...], folder: Path) -> str:
    """Of sources, flags, and what the compiler knows about itself and the processor."""
    command = [str(compiler()), *NATIVE, "-dM", "-E", "-x", "c", os.devnull]
    whole = hashlib.sha256(subprocess.run(command, capture_output=True, check=True).stdout)
    whole.update(repr((flags, arguments)).encode())
    for file in sorted((*folder.glob("*.[ch]"), *HEADERS.glob("*.[ch]"))):
        whole.update(file.read_bytes())
    return whole.hexdigest()[:24]
