"""The kernels on ARM: cross-compiled here, and run under qemu. Without Apple's headers, too."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from nightingale.backends.torch.resolve import kernel_states, resolve
from nightingale.core import CPU, PLANS
from nightingale.nn import native
from nightingale.nn.device import choose
from tests.nn.test_native import flags

HERE = Path(__file__).parent
CROSS, QEMU, CLANG = "aarch64-linux-gnu-gcc", "qemu-aarch64", "clang"
FLAGS = ("-O1", "-fno-math-errno", "-ffp-contract=off", "-I", str(native.FOLDER))
DOTPROD = "-march=armv8.2-a+dotprod"
EM_AARCH64 = 183  # of ELF
pytestmark = pytest.mark.slow


def needs(*programs: str) -> pytest.MarkDecorator:
    missing = [program for program in programs if not shutil.which(program)]
    return pytest.mark.skipif(bool(missing), reason=f"scripts/programs: {', '.join(missing)}")


def built(to: Path, compiler: str, *more: str, source: str = "products.c") -> Path:
    command = [compiler, *FLAGS, *more, str(HERE / source), "-lm", "-o", str(to)]
    subprocess.run(command, check=True, capture_output=True)
    return to


def run(program: Path, *before: str) -> tuple[int, list[str]]:
    done = subprocess.run([*before, str(program)], capture_output=True, text=True, check=False)
    return done.returncode, done.stdout.splitlines()


@needs(CROSS, QEMU)
@pytest.mark.skipif("avx2" not in flags(), reason="the other processor is one with AVX2")
def test_neon_products_have_the_bits_of_avx2(tmp_path: Path) -> None:
    arm = built(tmp_path / "arm", CROSS, "-static", DOTPROD, "-O3")
    x86 = built(tmp_path / "x86", "cc", "-march=x86-64-v3", "-O3", "-fopenmp")
    status, lines = run(arm, QEMU, "-cpu", "max")
    wanted = run(x86)[1]
    whole = [line for line in lines if line.startswith("whole")]
    assert status == 0 and len(whole) == 56, lines
    assert all(": 0 wrong of" in line for line in whole)
    scaled = [line for line in lines if line.startswith("scaled")]
    assert len(scaled) == 56
    assert scaled == [line for line in wanted if line.startswith("scaled")]
    for made, other in zip(lines[-4:], wanted[-4:], strict=True):  # a small stack of layers
        numbers, theirs = (list(map(float, re.findall(r"-?\d+\.\d+", it))) for it in (made, other))
        assert len(numbers) == 37
        assert numbers == pytest.approx(theirs, abs=1e-4)


@needs(CROSS, QEMU)
@pytest.mark.skipif("avx2" not in flags(), reason="the other processor is one with AVX2")
def test_neon_convolutions_in_8_bits_have_the_bits_of_avx2(tmp_path: Path) -> None:
    source = "int8_products.c"
    x86 = built(tmp_path / "x86", "cc", "-march=x86-64-v3", "-fopenmp", source=source)
    arm = built(tmp_path / "arm", CROSS, "-static", DOTPROD, source=source)
    broken = built(tmp_path / "broken", CROSS, "-static", DOTPROD, "-DPLANT", source=source)
    wanted = run(x86)
    assert len(wanted[1]) == 4
    assert run(arm, QEMU, "-cpu", "max") == wanted
    wrong = run(broken, QEMU, "-cpu", "max")[1]
    assert all(a != b for a, b in zip(wrong, wanted[1], strict=True))


@needs(CROSS, QEMU)
def test_plain_c_on_arm_sums_exactly(tmp_path: Path) -> None:
    status, lines = run(built(tmp_path / "arm", CROSS, "-static"), QEMU, "-cpu", "cortex-a53")
    assert status == 0, lines


@needs(CROSS, QEMU)
@pytest.mark.parametrize(("plant", "n_found"), [("PLANT_8", 56), ("PLANT_4", 28)])
def test_planted_errors_in_neon_products_are_found(
    tmp_path: Path, plant: str, n_found: int
) -> None:
    broken = built(tmp_path / "arm", CROSS, "-static", DOTPROD, f"-D{plant}")
    status, lines = run(broken, QEMU, "-cpu", "max")
    assert status == 1
    wrong = [line for line in lines if line.startswith("whole") and ": 0 wrong" not in line]
    assert len(wrong) == n_found


@needs(CROSS, QEMU)
def test_a_processor_without_dot_products_is_not_used(tmp_path: Path) -> None:
    arm = built(tmp_path / "arm", CROSS, "-static", DOTPROD)
    assert run(arm, QEMU, "-cpu", "cortex-a53") == (3, ["not for this processor"])


@needs(CROSS)
@pytest.mark.parametrize("instructions", [(), (DOTPROD,)], ids=["stack", "stack_dotprod"])
def test_libraries_for_arm_are_built(tmp_path: Path, instructions: tuple[str, ...]) -> None:
    """As hatch_build.py does it."""
    made, source = tmp_path / "stack.so", str(native.FOLDER / "stack.c")
    command = [
        CROSS,
        *FLAGS,
        "-fopenmp",
        "-fPIC",
        "-shared",
        *instructions,
        source,
        "-o",
        str(made),
    ]
    subprocess.run(command, check=True, capture_output=True)
    header = made.read_bytes()[:20]
    assert int.from_bytes(header[18:20], "little") == EM_AARCH64


@needs(CLANG)
def test_clang_compiles_without_openmp(tmp_path: Path) -> None:
    """Of Debian for this processor, which runs; and for macOS, with what is used of its headers."""
    status, lines = run(built(tmp_path / "here", CLANG, "-fno-openmp"))
    assert status == 0, lines
    made = tmp_path / "stack.o"
    target = ("--target=arm64-apple-macos14", "-ffreestanding", "-isystem", str(HERE / "apple"))
    compiled = [CLANG, *target, "-O3", "-fno-math-errno", "-fPIC", DOTPROD, "-c"]
    source = str(native.FOLDER / "stack.c")
    subprocess.run([*compiled, source, "-o", str(made)], check=True, capture_output=True)
    assert made.read_bytes()[:4] == b"\xcf\xfa\xed\xfe"  # Mach-O, 64 bits
    assert b"nightingale_read" in made.read_bytes()


def test_doctor_says_what_runs_without_compiled_kernels(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What `doctor` prints of this backend."""
    monkeypatch.setattr(native, "FOLDER", tmp_path)
    monkeypatch.setattr(native, "library", lambda: None)
    resolved = str(resolve(PLANS["auto"], choose(CPU)))
    assert "t3=fp32 (no compiled kernels: install a C compiler" in resolved
    assert "not compiled: " in kernel_states()
