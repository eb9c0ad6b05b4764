"""Compiles t3/native/stack.c while the package is built: once for each kind of processor.

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

FOLDER = Path("src/nightingale/t3/native")
FLAGS = ("-O3", "-fopenmp", "-fno-math-errno", "-fPIC", "-shared")
KINDS = {  # name of the library -> flags; best first, as the loader has them
    "stack_vnni": ("-march=x86-64-v4", "-mavx512vnni"),
    "stack_avx2": ("-march=x86-64-v3",),
    "stack": (),
}


class CompileStack(BuildHookInterface[Any]):
    """Asked by hatchling before it packs a wheel or links an editable install."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:  # noqa: ARG002
        folder = Path(self.root) / FOLDER
        for old in folder.glob("*.so"):
            old.unlink()
        compiler = os.environ.get("CC") or shutil.which("cc")
        kinds = KINDS if platform.machine() in ("x86_64", "AMD64") else {"stack": ()}
        for name, flags in kinds.items() if compiler else ():
            source, library = folder / "stack.c", folder / f"{name}.so"
            command = [str(compiler), *FLAGS, *flags, str(source), "-o", str(library), "-lm"]
            if subprocess.run(command, check=False).returncode == 0:
                build_data["artifacts"].append(f"{FOLDER / library.name}")
        if not build_data["artifacts"]:
            self.app.display_warning("stack.c was not compiled: there will be no packed weights")
            return
        build_data["pure_python"] = False
        system = sysconfig.get_platform().replace("-", "_").replace(".", "_")
        build_data["tag"] = f"py3-none-{system}"
