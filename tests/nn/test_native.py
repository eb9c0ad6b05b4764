"""What was compiled runs wherever the processor can run it: else other tests are only skipped."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
import torch

from nightingale.nn import fused, native

INFO = Path("/proc/cpuinfo")


def flags() -> set[str]:
    lines = INFO.read_text().splitlines() if INFO.is_file() else []
    return {flag for line in lines if line.startswith("flags") for flag in line.split()}


def test_there_is_compiled_code() -> None:
    assert native.library() is not None, "no C compiler when the package was built?"
    assert native.load("stack") is not None


@pytest.mark.parametrize(
    ("kind", "needed"),
    [("stack_avx2", "avx2"), ("stack_avx512", "avx512bw"), ("stack_vnni", "avx512_vnni")],
)
def test_what_the_processor_has_is_used(kind: str, needed: str) -> None:
    assert (native.load(kind) is not None) == (needed in flags())


@pytest.mark.parametrize(("kind", "needed"), [("int8_avx2", "avx2"), ("int8_vnni", "avx512_vnni")])
def test_products_in_8_bits_are_there(kind: str, needed: str) -> None:
    assert (native.states().get(kind) == "runs") == (needed in flags())


def test_tiles_are_used_where_there_are_tiles() -> None:
    may = {"amx_bf16", "avx512_bf16"} <= flags() and torch.cpu._init_amx()
    assert fused.has_amx() == may


def prompt_products(folder: Path, *faults: tuple[str, str]) -> int:
    """products.c for AVX2, with faults planted in prompt.h: how many sums are wrong."""
    for file in native.FOLDER.glob("*.[ch]"):
        text = file.read_text()
        for right, wrong in faults if file.name == "prompt.h" else ():
            assert right in text, "the fault has no place any more"
            text = text.replace(right, wrong)
        (folder / file.name).write_text(text)
    source, made = Path(__file__).parent / "products.c", folder / "products"
    flags = ["-O1", "-march=x86-64-v3", "-fopenmp", f"-I{folder}"]
    command = ["cc", *flags, str(source), "-lm", "-o", str(made)]
    subprocess.run(command, check=True, capture_output=True)
    done = subprocess.run([made], capture_output=True, text=True, check=False)
    counts = [int(n) for n in re.findall(r": (\d+) wrong of", done.stdout)]
    assert len(counts) == 58, done.stdout
    return sum(counts)


@pytest.mark.slow
@pytest.mark.skipif("avx2" not in flags() or not shutil.which("cc"), reason="needs AVX2 and cc")
@pytest.mark.parametrize(
    "fault",
    [
        (),
        (("k < GROUP / 4; k += 8", "k < GROUP / 4; k += 16"), ("at < k + 8", "at < k + 16")),
        (("stride + i] - 128", "stride + i] - 127"),),
    ],
    ids=["none", "16 bits overflow", "a wrong zero"],
)
def test_prompt_products_of_avx2_are_exact(
    fault: tuple[tuple[str, str], ...], tmp_path: Path
) -> None:
    assert (prompt_products(tmp_path, *fault) > 0) == bool(fault)
