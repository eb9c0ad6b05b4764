"""Compiles the C files of nn/native while the package is built, for each kind of processor.

Where a library cannot be compiled the package is built without it, and works, but for packed
weights; what is missing is said loudly, and is an error with NIGHTINGALE_REQUIRE_KERNELS=1.

OpenMP's calls stay unresolved in the libraries: no libgomp is linked. torch brings one along and
loads it for everybody; a second one, of the system or of the wheel, would be a second set of
threads, and a system without any could not load the libraries at all.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

FOLDER = Path("src/nightingale/nn/native")
# Apple's compiler has no OpenMP: there, compiled code has one thread, and MLX has the GPU.
OPENMP = () if sys.platform == "darwin" else ("-fopenmp",)
FLAGS = ("-O3", *OPENMP, "-fno-math-errno", "-fPIC", "-c")
ANYWHERE: dict[str, tuple[str, ...]] = {"stack": ("stack.c",)}  # by name: sources and flags
X86 = ANYWHERE | {
    "stack_avx2": ("stack.c", "-march=x86-64-v3"),
    "stack_avx512": ("stack.c", "-march=x86-64-v4"),
    "stack_vnni": ("stack.c", "-march=x86-64-v4", "-mavx512vnni"),
    "stack_amx": ("stack.c", "-march=sapphirerapids"),
    "amx": ("amx.c", "convolve.c", "-march=sapphirerapids"),
    "int8_avx2": ("int8.c", "-march=x86-64-v3"),
    "int8_vnni": ("int8.c", "-march=x86-64-v4", "-mavx512vnni"),
}
ARM = ANYWHERE | {
    "stack_dotprod": ("stack.c", "-march=armv8.2-a+dotprod"),
    "int8_dotprod": ("int8.c", "-march=armv8.2-a+dotprod"),
}


class CompileStack(BuildHookInterface[Any]):
    """Asked by hatchling before it packs a wheel or links an editable install."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:  # noqa: ARG002
        folder = Path(self.root) / FOLDER
        libraries = libraries_for(platform.machine())
        for name, arguments in libraries.items():
            fault = compile_library(folder, name, arguments)
            if fault:
                self.app.display_warning(f"NOT COMPILED: {name}: {fault}")
            else:
                build_data["artifacts"].append(f"{FOLDER / name}.so")
        for old in folder.glob("*.so"):
            if f"{FOLDER / old.name}" not in build_data["artifacts"]:
                old.unlink()
        made = len(build_data["artifacts"])
        if made < len(libraries):
            effect = "packed weights (plan auto) need them; the rest works without"
            self.app.display_warning(f"{made} of {len(libraries)} kernels were compiled: {effect}")
            if os.environ.get("NIGHTINGALE_REQUIRE_KERNELS") == "1":
                raise SystemExit("NIGHTINGALE_REQUIRE_KERNELS=1 and not all kernels were compiled")
        if made or "CIBUILDWHEEL" in os.environ:  # which takes wheels of a platform only
            build_data["pure_python"] = False
            build_data["tag"] = f"py3-none-{platform_tag()}"


def libraries_for(machine: str) -> dict[str, tuple[str, ...]]:
    """What can run on a kind of processor."""
    if machine in ("x86_64", "AMD64"):
        return X86
    return ARM if machine in ("arm64", "aarch64") else ANYWHERE


def compile_library(folder: Path, name: str, arguments: tuple[str, ...]) -> str:
    """Sources and flags -> name.so; what went wrong, or ''."""
    compiler = os.environ.get("CC") or shutil.which("cc")
    if not compiler:
        return "there is no C compiler (cc, or the variable CC)"
    sources = [folder / argument for argument in arguments if argument.endswith(".c")]
    flags = [*FLAGS, *(argument for argument in arguments if not argument.endswith(".c"))]
    with tempfile.TemporaryDirectory() as space:
        objects = [f"{space}/{source.stem}.o" for source in sources]
        made = folder / f"{name}.{os.getpid()}.tmp"  # which git and an sdist ignore
        steps = [
            [compiler, *flags, str(source), "-o", to]
            for source, to in zip(sources, objects, strict=True)
        ]
        link = [compiler, "-shared", *objects, "-o", str(made), "-lm"]
        for command in [*steps, link]:
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                lines = done.stderr.strip().splitlines() or [f"status {done.returncode}"]
                return next((line for line in lines if "error" in line), lines[0])
        made.replace(folder / f"{name}.so")  # at once: who loads it meanwhile gets a whole one
    return ""


def platform_tag() -> str:
    system = sysconfig.get_platform().replace("-", "_").replace(".", "_")
    return system.replace("universal2", platform.machine())  # one architecture is compiled
