"""Faults that are planted in the kernels' C sources are caught: these checks can fail."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from nightingale.nn import native
from tests.backends.torch.t3 import test_quantized as packed
from tests.emulation import library as emulation
from tests.nn.test_amx_reference import CHECKS

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("c_compiler")]  # each is compiled

FLAGS = (*emulation.FLAGS[1:], *emulation.EMULATION, *emulation.NATIVE, *emulation.PORTABLE)
PACKED_CHECKS: dict[str, Callable[[], None]] = {
    "prompt": lambda: packed.test_a_prompt_is_the_same_in_any_parts_and_nearly_its_steps("nano", 8),
    "product": lambda: packed.check_product(8, 5),
    "slots": lambda: packed.test_slots_are_read_as_if_each_were_alone("nano", 8),
}


class Fault(NamedTuple):
    library: emulation.Kind
    check: str
    what: str
    file: str
    right: str
    wrong: str


FAULTS = [
    Fault(
        "amx",
        "attend",
        "keys are in plain order",
        "amx.c",
        "place / 8 * 4 + place % 4 + (place % 8 < 4 ? 0 : TILE)",
        "place",
    ),
    Fault(
        "amx",
        "attend",
        "the last value is dropped",
        "amx.c",
        "a + 1 < n ?",
        "a + 2 < n ?",
    ),
    Fault(
        "amx",
        "attend",
        "keys that are only padding are counted",
        "amx.c",
        "key_at(place) < n ? BF16_ONE : 0",
        "key_at(place) <= n ? BF16_ONE : 0",
    ),
    Fault(
        "amx",
        "attend",
        "the last query is dropped",
        "amx.c",
        "i < n_here; i++) memcpy(last",
        "i < n_here - 1; i++) memcpy(last",
    ),
    Fault(
        "amx",
        "attend",
        "halves of a key are swapped",
        "amx.c",
        "_tile_loadd(6, keys + 256 * half, 64)",
        "_tile_loadd(6, keys + 256 * (d / 32 - 1 - half), 64)",
    ),
    Fault(
        "amx",
        "attend",
        "weights are cut off instead of rounded",
        "amx.c",
        "_mm512_avg_epu16(n, _mm512_setzero_si512())",
        "_mm512_avg_epu16(_mm512_sub_epi16(n, _mm512_set1_epi16(1)), _mm512_setzero_si512())",
    ),
    Fault(
        "amx",
        "attend far",
        "weights are never measured again",
        "amx.c",
        "all_fit &= sums[i] < LARGEST_WEIGHT;",
        "",
    ),
    Fault(
        "amx",
        "add_norm",
        "bfloat16 is cut off instead of rounded",
        "amx.h",
        "_mm512_cvtneps_pbh(x)",
        "_mm512_cvtneps_pbh(_mm512_mul_ps(x, _mm512_set1_ps(1 - 0x1p-9f)))",
    ),
    Fault(
        "amx",
        "add_norm",
        "the stream does not keep what is added",
        "amx.c",
        "_mm512_storeu_ps(here + i, sum);",
        "if (i) _mm512_storeu_ps(here + i, sum);",
    ),
    Fault(
        "amx",
        "norm_mish",
        "the denominator of mish is off",
        "amx.c",
        "_mm512_add_ps(n, _mm512_set1_ps(2))",
        "_mm512_add_ps(n, _mm512_set1_ps(1.99f))",
    ),
    Fault(
        "amx",
        "norm_mish",
        "the residual is forgotten",
        "amx.c",
        "if (residual) y =",
        "if (0) y =",
    ),
    Fault(
        "amx",
        "convolve",
        "pairs of inputs are packed the other way round",
        "convolve.c",
        "2 * o + i % 2",
        "2 * o + 1 - i % 2",
    ),
    Fault(
        "amx",
        "convolve",
        "dilation is forgotten",
        "convolve.c",
        "tap * c->dilation * c->n_in",
        "tap * c->n_in",
    ),
    Fault(
        "amx",
        "convolve",
        "the last frame is dropped",
        "convolve.c",
        "(size_t)(n_here + reach)",
        "(size_t)(n_here + reach - 1)",
    ),
    Fault(
        "amx",
        "convolve",
        "the last outputs are dropped",
        "convolve.c",
        "out < end; out += 32",
        "out < end - 32 || out == 0; out += 32",
    ),
    Fault(
        "amx",
        "convolve",
        "weights are cut off instead of rounded",
        "convolve.c",
        "bits + 0x7fff + ((bits >> 16) & 1)",
        "bits",
    ),
    Fault(
        "amx",
        "gelu",
        "gelu comes before the residual",
        "convolve.c",
        "if (p->residual) y = _mm512_add_ps",
        "if (p->gelu) y = gelu(y);\n      if (p->residual) y = _mm512_add_ps",
    ),
    Fault(
        "amx",
        "gelu",
        "a coefficient of gelu is off by 0.15 %",
        "amx.h",
        "-6.65782019e-02f",
        "-6.66782019e-02f",
    ),
    Fault(
        "amx",
        "norm on the way in",
        "the second block is normed as the first",
        "convolve.c",
        "p->stream + (first + i) * c->n_in",
        "p->stream + (first % FRAMES + i) * c->n_in",
    ),
    Fault(
        "amx",
        "snake",
        "a coefficient of the sine is off by 0.1 %",
        "convolve.c",
        "-1.6666659712791443e-1f",
        "-1.6686659712791443e-1f",
    ),
    Fault(
        "amx",
        "snake",
        "the last row of padding is not zero",
        "convolve.c",
        "(int64_t)n_behind * width * 2",
        "(int64_t)(n_behind - 1) * width * 2",
    ),
    Fault(
        "stack_amx",
        "prompt",
        "operands of TDPBUSD are swapped",
        "prompt.h",
        "_tile_dpbusd(sums, 7, right)",
        "_tile_dpbusd(sums, right, 7)",
    ),
    Fault(
        "stack_amx",
        "prompt",
        "the fourth tile of positions is dropped",
        "prompt.h",
        "  DOT(3, 4)\n",
        "",
    ),
    Fault(
        "stack_amx",
        "prompt",
        "the zero point is forgotten",
        "prompt.h",
        "x[sums * apart].start, 0)",
        "(const int32_t[TILE]){0}, 0)",
    ),
    Fault(
        "stack_vnni",
        "prompt",
        "weights of the next output",
        "prompt.h",
        "weights + (o + i) * stride + 4 * k",
        "weights + (o + (i ^ 1)) * stride + 4 * k",
    ),
    Fault(
        "stack_vnni",
        "product",
        "the last group is dropped",
        "stack.c",
        "n_groups - part < LANES ? n_groups - part : LANES",
        "n_groups - part < LANES ? n_groups - part - 1 : LANES",
    ),
    Fault(
        "stack_avx512",
        "product",
        "the sign of a weight is forgotten",
        "stack.c",
        "_mm512_maddubs_epi16(w.sizes, signed_codes)",
        "_mm512_maddubs_epi16(w.sizes, codes)",
    ),
    Fault(
        "stack_vnni",
        "slots",
        "the keys of a neighbour",
        "stack.c",
        "while (own >= slot->n_rows) own -= slot++->n_rows;",
        "while (own >= slot->n_rows) own -= slot->n_rows;",
    ),
    Fault(
        "stack_avx512",
        "slots",
        "the activations of another row, among many",
        "stack.c",
        "const QuantBlock *block = x.blocks + r * stride + part + i;",
        "const QuantBlock *block = x.blocks + (r & 3) * stride + part + i;",
    ),
]


def use(kind: emulation.Kind, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sources in that folder, compiled, in place of the library that this processor has."""
    level = "-O1" if kind == "amx" else "-O0"  # compiling takes longer than running the others
    file = emulation.build((level, *FLAGS), emulation.ARGUMENTS[kind], folder)
    library = emulation.load(kind, file)
    monkeypatch.setattr(native, "amx" if kind == "amx" else "library", lambda: library)


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    for file in native.FOLDER.glob("*.[ch]"):
        shutil.copy(file, tmp_path)
    return tmp_path


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: f"{fault.check}: {fault.what}")
def test_a_fault_in_a_kernel_is_caught(
    fault: Fault, sources: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = sources / fault.file
    text = file.read_text()
    assert fault.right in text, "the source changed: plant the fault anew"
    file.write_text(text.replace(fault.right, fault.wrong))
    use(fault.library, sources, monkeypatch)
    with pytest.raises(AssertionError):
        (CHECKS | PACKED_CHECKS)[fault.check]()


@pytest.mark.parametrize("kind", ["amx", "stack_amx", "stack_vnni", "stack_avx512"])
def test_without_a_fault_nothing_is_caught(
    kind: emulation.Kind, sources: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(kind, sources, monkeypatch)
    for check in (CHECKS if kind == "amx" else PACKED_CHECKS).values():
        check()
