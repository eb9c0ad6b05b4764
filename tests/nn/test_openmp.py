"""The compiled libraries use torch's OpenMP, whatever its file is called, and bring none along."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from nightingale.backends.torch.resolve import kernel_states
from nightingale.nn import native
from tests.emulation.library import FLAGS, compiler

LOADED = """
from pathlib import Path
from nightingale.nn import native
assert native.library()
maps = Path("/proc/self/maps").read_text().splitlines()
print("\\n".join({line.split()[-1] for line in maps if "libgomp" in line or "libomp" in line}))
"""
needs_libraries = pytest.mark.skipif(not native.library(), reason="nothing was compiled")
needs_compiler = pytest.mark.skipif(compiler() is None, reason="no compiler for the kernels")


def asks_for_libgomp(file: Path) -> bool:
    return b"libgomp" in file.read_bytes()


@needs_libraries
def test_no_compiled_library_asks_for_libgomp() -> None:
    files = list(native.FOLDER.glob("*.so"))
    assert files
    assert not [file.name for file in files if asks_for_libgomp(file)]


@needs_compiler
def test_a_library_that_is_linked_with_libgomp_is_noticed(tmp_path: Path) -> None:
    source, linked = tmp_path / "a.c", tmp_path / "a.so"
    source.write_text("void f(int *n) {\n#pragma omp parallel\n  (*n)++;\n}\n")
    subprocess.run([str(compiler()), *FLAGS, str(source), "-o", str(linked)], check=True)
    assert asks_for_libgomp(linked)


@pytest.mark.slow
@needs_libraries
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells what is loaded")
def test_there_is_one_openmp_runtime_beside_torch() -> None:
    done = subprocess.run(
        [sys.executable, "-c", LOADED], capture_output=True, text=True, check=True
    )
    assert len(done.stdout.split()) == 1, done.stdout
    assert "torch" in done.stdout


def test_kernel_states_say_why_a_library_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(native, "FOLDER", tmp_path)
    (tmp_path / "stack.so").write_bytes(b"no library")
    states = native.states()
    assert states["stack_avx2"] == "not compiled"
    assert states["stack"].startswith("does not load: ")
    assert "not compiled: stack_amx, stack_vnni, stack_avx512, stack_avx2, amx" in kernel_states()
