"""What was compiled runs wherever the processor can run it: else other tests are only skipped."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from nightingale.nn import amx, native

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
    assert amx.is_available() == may
