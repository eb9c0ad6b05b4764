"""Compiles the C files of nn/native while the package is built, for each kind of processor.

Where there is no compiler the package is built without it, and works, but for packed weights.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

FOLDER = Path("src/nightingale/nn/native")
FLAGS = ("-O3", "-fopenmp", "-fno-math-errno", "-fPIC", "-shared")
ANYWHERE = {"stack": ("stack.c",)}  # name of the library -> sources and flags
X86 = ANYWHERE | {
    "stack_avx2": ("stack.c", "-march=x86-64-v3"),
    "stack_avx512": ("stack.c", "-march=x86-64-v4"),
    "stack_vnni": ("stack.c", "-march=x86-64-v4", "-mavx512vnni"),
    "stack_amx": ("stack.c", "-march=sapphirerapids"),
    "amx": ("amx.c", "convolve.c", "-march=sapphirerapids"),
}


class CompileStack(BuildHookInterface[Any]):
    """Asked by hatchling before it packs a wheel or links an editable install."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:  # noqa: ARG002
        folder = Path(self.root) / FOLDER
        compiler = os.environ.get("CC") or shutil.which("cc")
        libraries = X86 if platform.machine() in ("x86_64", "AMD64") else ANYWHERE
        for name, arguments in libraries.items() if compiler else ():
            library, made = folder / f"{name}.so", folder / f"{name}.{os.getpid()}"
            command = [str(compiler), *FLAGS, *arguments, "-o", made.name, "-lm"]
            if subprocess.run(command, cwd=folder, check=False).returncode == 0:
                made.replace(library)  # at once: a process that loads it meanwhile gets a whole one
                build_data["artifacts"].append(f"{FOLDER / library.name}")
        for old in folder.glob("*.so"):
            if f"{FOLDER / old.name}" not in build_data["artifacts"]:
                old.unlink()
        if not build_data["artifacts"]:
            self.app.display_warning("nothing was compiled: there will be no packed weights")
            return
        build_data["pure_python"] = False
        system = sysconfig.get_platform().replace("-", "_").replace(".", "_")
        build_data["tag"] = f"py3-none-{system}"
