"""Packed weights and the compiled code that reads them, against plain arithmetic."""

from __future__ import annotations

import copy
import ctypes
import dataclasses
import functools
import itertools

import pytest
import torch
from torch import Tensor

from nightingale.backends.torch.t3.attention import Alignment
from nightingale.backends.torch.t3.cache import KVCache
from nightingale.backends.torch.t3.model import T3, Utterance
from nightingale.backends.torch.t3.quantized import (
    QuantizedLinear,
    QuantizedStack,
    empty_quantized,
    quantize,
)
from nightingale.core import Family, Options
from nightingale.errors import LayoutError, MissingPackageError
from nightingale.families import FAMILIES
from nightingale.nn import native
from nightingale.nn.packing import GROUP, Bits, pack, unpack
from tests.emulation import library as emulation
from tests.random_weights import randomize
from tests.tiny import TINY, tiny_text, tiny_voice

BITS: tuple[Bits, ...] = (8, 4)
EMULATED: dict[str, emulation.Kind] = {
    "stack_amx": "stack_amx",
    "stack_vnni": "stack_vnni",
    "stack_avx512": "stack_avx512",
}
NAMES: tuple[Family, ...] = ("english", "nano")


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def as_bytes(x: Tensor) -> Tensor:
    """What the compiled code makes of activations: signed bytes, a scale for every group."""
    groups = x.view(*x.shape[:-1], -1, GROUP)
    scale = groups.abs().amax(-1, keepdim=True) / 127
    return (torch.round(groups / scale) * scale).flatten(-2)


@functools.cache
def plain(family: Family) -> T3:
    model = T3(TINY[family]).eval().requires_grad_(False)
    randomize(model, 3, 1.0)
    return model


@functools.cache
def packed(family: Family, bits: Bits) -> T3:
    return quantize(copy.deepcopy(plain(family)), bits)


@pytest.fixture(params=native.KINDS)
def kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Every compiled file that runs here, by emulated instructions if need be."""
    library = load(request.param)
    if library is None:
        pytest.skip(f"{request.param} does not run here")
    monkeypatch.setattr(native, "library", lambda: library)
    return str(request.param)


def load(kind: str) -> ctypes.CDLL | None:
    library = native.load(kind)
    if library is None and kind in EMULATED and emulation.compiler():
        return emulation.emulated(EMULATED[kind])
    return library


@pytest.mark.parametrize(("bits", "most"), [(8, 0.007), (4, 0.1)])
def test_what_is_packed_comes_back_nearly_as_it_was(bits: Bits, most: float) -> None:
    weight = drawn(96, 256)
    codes, scales = pack(weight, bits)
    assert codes.shape == (96, 256 * bits // 8)
    assert scales.shape == (96, 4)
    back = unpack(codes, scales, bits)
    assert (back - weight).norm() / weight.norm() < most


@pytest.mark.parametrize("bits", BITS)
def test_what_has_few_values_comes_back_exactly(bits: Bits) -> None:
    largest = 1 << (bits - 1)
    whole = torch.randint(-largest, largest, (8, 128), generator=torch.Generator().manual_seed(1))
    whole[:, ::GROUP] = 1 - largest if bits == 8 else -largest  # each group has its largest
    weight = whole.clamp(min=1 - largest if bits == 8 else -largest) * 0.125
    assert torch.equal(unpack(*pack(weight, bits), bits), weight)


def test_zeros_stay_zeros() -> None:
    for bits in BITS:
        assert unpack(*pack(torch.zeros(2, 64), bits), bits).abs().max() == 0


def test_rows_of_an_odd_length_are_refused() -> None:
    with pytest.raises(LayoutError, match="100 weights"):
        pack(torch.zeros(4, 100), 8)


def check_product(bits: Bits, n_rows: int) -> None:
    weight, bias, x = drawn(70, 192), drawn(70, seed=1), drawn(n_rows, 192, seed=2)
    layer = QuantizedLinear.of(weight, bias, bits)
    wanted = as_bytes(x).double() @ unpack(layer.codes, layer.scales, bits).double().T + bias
    assert (layer(x) - wanted).abs().max() < 2e-5, (bits, n_rows)


@pytest.mark.usefixtures("kind")
def test_a_quantized_product_is_the_product_of_what_was_packed() -> None:
    for bits, n_rows in itertools.product(BITS, (1, 2, 3, 4, 5, 11)):
        check_product(bits, n_rows)


@pytest.mark.parametrize("bits", BITS)
def test_compiled_files_agree(bits: Bits, monkeypatch: pytest.MonkeyPatch) -> None:
    layer, x, made = QuantizedLinear.of(drawn(64, 1024), None, bits), drawn(3, 1024, seed=1), []
    for name in native.KINDS:
        library = load(name)
        if library is not None:
            monkeypatch.setattr(native, "library", lambda library=library: library)
            made.append(layer(x))
    assert made
    for other in made[1:]:
        assert (other - made[0]).abs().max() < 1e-4


@pytest.mark.parametrize("bits", BITS)
def test_avx2_and_avx512_have_the_same_bits(bits: Bits, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stream can go on with a worker on another processor: its fingerprint names no kernel."""
    libraries = [native.load(kind) for kind in ("stack_avx2", "stack_avx512")]
    if None in libraries:
        pytest.skip("this processor has no AVX-512")
    stack, made = packed("english", bits).tfmr, list[tuple[Tensor, Tensor]]()
    assert isinstance(stack, QuantizedStack)
    for library in libraries:
        monkeypatch.setattr(native, "library", lambda library=library: library)
        prompt, steps = drawn(2, 37, 128), drawn(9, 3, 128, seed=1)
        made.append((stack(prompt), stack(steps)))
    for one, other in zip(*made, strict=True):
        assert torch.equal(one, other)


@pytest.mark.usefixtures("kind")
def test_the_largest_products_do_not_overflow() -> None:
    for bits, n_rows in itertools.product(BITS, (1, 2)):
        layer = QuantizedLinear.of(drawn(8, 128), None, bits)
        layer.codes[:4], layer.codes[4:] = 0, 255  # -128 and 127, or -8 and 7
        x = torch.ones(n_rows, 128)
        x[-1, 64:] = -1
        wanted = x.double() @ unpack(layer.codes, layer.scales, bits).double().T
        assert torch.allclose(layer(x).double(), wanted, rtol=1e-5, atol=1e-4), (bits, n_rows)


def run(t3: T3, n_threads: int = 1, tokens: tuple[int, ...] = (5, 900, 17)) -> list[Tensor]:
    """The logits of a short utterance."""
    before = torch.get_num_threads()
    torch.set_num_threads(n_threads)
    try:
        options = FAMILIES[t3.config.family].options
        prefix = t3.prefix(tiny_voice(n_tokens=20), options.exaggeration)
        utterance = Utterance(t3, tiny_text(n_tokens=12), prefix, options, None)
        made = [utterance.first()]
        made += [utterance.next(torch.tensor(token), i) for i, token in enumerate(tokens)]
    finally:
        torch.set_num_threads(before)
    return made


@pytest.mark.slow
@pytest.mark.usefixtures("kind")
@pytest.mark.parametrize(("bits", "most"), [(8, 0.05), (4, 0.25)])
@pytest.mark.parametrize("family", NAMES)
def test_the_packed_model_says_nearly_the_same(family: Family, bits: Bits, most: float) -> None:
    for near, exact in zip(run(packed(family, bits)), run(plain(family)), strict=True):
        assert 1e-4 < (near - exact).norm() / exact.norm() < most


@pytest.mark.usefixtures("kind")
@pytest.mark.parametrize("family", NAMES)
def test_threads_leave_no_trace(family: Family) -> None:
    for one, two in zip(run(packed(family, 8), 1), run(packed(family, 8), 2), strict=True):
        assert torch.equal(one, two)


def empty_cache(stack: QuantizedStack, n_rows: int) -> KVCache:
    config = stack.config
    like = torch.empty(0, dtype=stack.cache_dtype)
    return KVCache.empty(config.n_layers, (n_rows, config.n_heads, 4, GROUP), like)


@pytest.mark.usefixtures("kind")
@pytest.mark.parametrize("family", NAMES)
def test_read_at_once_or_bit_by_bit_is_the_same_to_the_bit(family: Family) -> None:
    stack = packed(family, 4).tfmr
    assert isinstance(stack, QuantizedStack)
    x = drawn(2, 11, stack.config.d_model)
    whole = stack(x, empty_cache(stack, 2))
    cache = empty_cache(stack, 2)
    parts = torch.cat([stack(x[:, at : at + n], cache) for at, n in ((0, 6), (6, 1), (7, 4))], 1)
    assert torch.equal(whole, parts)
    assert torch.equal(whole, stack(x))


@pytest.mark.slow
@pytest.mark.usefixtures("kind")
@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("family", NAMES)
def test_a_prompt_is_the_same_in_any_parts_and_nearly_its_steps(family: Family, bits: Bits) -> None:
    """From 16 positions on, sums are made in another order, which is always the same."""
    stack = packed(family, bits).tfmr
    assert isinstance(stack, QuantizedStack)
    x = drawn(2, 53, stack.config.d_model)

    def read(*sizes: int) -> Tensor:
        cache = empty_cache(stack, 2)
        return torch.cat([stack(part, cache) for part in torch.split(x, sizes, dim=1)], 1)

    whole = read(53)
    assert torch.equal(whole, read(16, 37))
    assert torch.equal(whole, read(17, 19, 17))
    steps = read(*[1] * 53)
    assert 0 < (whole - steps).norm() / steps.norm() < 0.03


@pytest.mark.parametrize("bits", [4, 8])
def test_amx_and_vectors_read_a_prompt_to_the_same_bit(
    bits: Bits, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    libraries = [native.load(kind) for kind in EMULATED]
    if None in libraries:  # then both: flags of the compiler change bits as well
        request.getfixturevalue("c_compiler")
        libraries = [emulation.emulated(kind) for kind in EMULATED.values()]
    stack = packed("english", bits).tfmr
    assert isinstance(stack, QuantizedStack)
    x, made = drawn(1, 40, stack.config.d_model), []
    for library in libraries:
        monkeypatch.setattr(native, "library", lambda library=library: library)
        made.append(stack(x))
    assert all(torch.equal(made[0], other) for other in made)


@pytest.mark.usefixtures("kind")
def test_a_row_of_a_batch_is_the_row_alone() -> None:
    stack = packed("english", 8).tfmr
    assert isinstance(stack, QuantizedStack)
    for n_positions in (5, 21):
        x = drawn(3, n_positions, stack.config.d_model)
        together = stack(x, empty_cache(stack, 3))
        for row in range(3):
            alone = stack(x[row : row + 1], empty_cache(stack, 1))
            assert torch.equal(together[row], alone[0]), (n_positions, row)


@pytest.mark.usefixtures("kind")
@pytest.mark.parametrize("bits", BITS)
@pytest.mark.parametrize("family", NAMES)
def test_slots_are_read_as_if_each_were_alone(family: Family, bits: Bits) -> None:
    """Rows, lengths and watched heads differ; 13 rows are more than meet a weight at a time."""
    stack = packed(family, bits).tfmr
    assert isinstance(stack, QuantizedStack)
    shapes = [(2, 5), (1, 17), (2, 3), (3, 1), (1, 2), (2, 40), (2, 9)]
    width = stack.config.d_model
    prompts = [drawn(*shape, width, seed=i) for i, shape in enumerate(shapes)]
    inputs = [drawn(rows, 1, width, seed=-1 - i) for i, (rows, _) in enumerate(shapes)]

    def begun() -> list[tuple[KVCache, Alignment | None]]:
        slots = []
        for i, prompt in enumerate(prompts):
            cache = empty_cache(stack, len(prompt))
            stack(prompt, cache)
            heads = Alignment(((i % 2, 0),), (0, cache.length)) if i % 3 else None
            slots.append((cache, heads))
        return slots

    together, alone = begun(), begun()
    made = stack.read_slots(inputs, together)
    for x, slot, mate, out in zip(inputs, alone, together, made, strict=True):
        assert torch.equal(out, stack(x, *slot))
        assert slot[0].length == mate[0].length
        for ours, theirs in ((slot[0].keys, mate[0].keys), (slot[0].values, mate[0].values)):
            for a, b in zip(ours, theirs, strict=True):
                assert torch.equal(a[:, :, : slot[0].length], b[:, :, : slot[0].length])
        if slot[1] and mate[1]:
            slot[1].close_row()
            mate[1].close_row()
            assert torch.equal(slot[1].rows[0], mate[1].rows[0])


def test_alignment_heads_are_seen() -> None:
    rows = []
    for t3 in (plain("english"), packed("english", 8)):
        alignment = Alignment(heads=((1, 0), (2, 1)))
        prefix = t3.prefix(tiny_voice(n_tokens=20), 0.5)
        utterance = Utterance(t3, tiny_text(n_tokens=12), prefix, Options(), alignment)
        utterance.first()
        utterance.next(torch.tensor(7), 0)
        rows.append(torch.stack(alignment.rows))
    assert rows[0].shape == (2, 2, 14)  # start and end of text included
    assert (rows[0] - rows[1]).abs().max() < 0.05
    assert rows[1].sum(-1).min() > 0.01


@pytest.mark.parametrize("family", NAMES)
def test_packed_layers_are_loaded_into_a_frame(family: Family) -> None:
    made = packed(family, 4)
    with torch.device("meta"):
        empty = empty_quantized(T3(TINY[family]), 4)
    assert {n: t.shape for n, t in empty.state_dict().items()} == {
        n: t.shape for n, t in made.state_dict().items()
    }
    empty.load_state_dict(made.state_dict(), assign=True)
    for a, b in zip(run(made), run(empty), strict=True):
        assert torch.equal(a, b)


def test_without_compiled_code_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "library", lambda: None)
    with pytest.raises(MissingPackageError, match="C compiler"):
        packed("english", 8).speech_head(drawn(1, TINY["english"].d_model))


def test_structures_are_as_large_as_the_compiled_ones() -> None:
    """A field forgotten on one side would move all behind it."""
    library = native.library()
    assert library is not None, "stack.c was not compiled; is there a C compiler?"
    assert library.nightingale_quant_block_bytes() == GROUP + 4 * 16
    assert ctypes.sizeof(native.Layer) == 4 * ctypes.sizeof(native.Linear) + 4 * 8


def test_a_longer_text_than_one_piece_is_read() -> None:
    config = dataclasses.replace(TINY["english"], n_layers=1)
    stack = QuantizedStack(config, 8, 1000)
    for tensor in stack.state_dict().values():
        tensor.copy_(torch.ones_like(tensor) * 0.01)
    assert stack(drawn(1, 600, config.d_model)).isfinite().all()
