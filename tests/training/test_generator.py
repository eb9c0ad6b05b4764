"""Kokoro's generator with constant normalization is HiFT's block with other weights."""

from __future__ import annotations

import pytest
import torch

from nightingale.backends.torch.vocoder.model import Vocoder
from training import vocoder_distillation
from training.generator import DILATIONS, FLAT, Generator, Moments, Taught, Tensors, folded
from training.vocoder_distillation import Student, Targets, middle

N, D_STYLE, KERNEL = 6, 4, 7


def drawn() -> tuple[Tensors, torch.Tensor, Moments]:
    """Weights of one block, a style, and means and variances."""
    torch.manual_seed(0)
    weights: Tensors = {}
    moments: Moments = {}
    for half in (1, 2):
        for i in range(len(DILATIONS)):
            weights[f"block.convs{half}.{i}.weight"] = torch.randn(N, N, KERNEL) / 6
            weights[f"block.convs{half}.{i}.bias"] = torch.randn(N) / 3
            weights[f"block.alpha{half}.{i}"] = torch.rand(1, N, 1) + 0.5
            layer = f"block.adain{half}.{i}"
            weights[f"{layer}.fc.weight"] = torch.randn(2 * N, D_STYLE) / 8
            weights[f"{layer}.fc.bias"] = torch.randn(2 * N) / 8
            moments[layer] = torch.randn(N), torch.rand(N) + 0.5
    return weights, torch.randn(1, D_STYLE), moments


def test_folded_block_computes_what_the_generator_does() -> None:
    weights, style, moments = drawn()
    generator = Generator(weights, style, moments)
    block, offset = folded(generator, moments, "block", KERNEL)
    x = torch.randn(1, N, 50)
    with torch.no_grad():
        wanted, found = generator.block("block", x), block(x + offset[:, None])
    assert offset.abs().max() > 0.1
    assert torch.allclose(found, wanted, atol=1e-4)


def test_channel_that_hardly_moves_is_folded_as_a_line() -> None:
    weights, style, moments = drawn()
    layer = "block.adain1.1"
    weights[f"{layer}.fc.weight"][[2, N + 2]] = 0
    weights[f"{layer}.fc.bias"][2] = -0.999  # scale 0.001
    weights[f"{layer}.fc.bias"][N + 2] = 0.8  # offset
    generator = Generator(weights, style, moments)
    block, offset = folded(generator, moments, "block", KERNEL)
    scale = generator.affine(layer)
    assert scale[1][2].abs() > FLAT * scale[0][2].abs()
    x = torch.randn(1, N, 200)
    with torch.no_grad():
        wanted, found = generator.block("block", x), block(x + offset[:, None])
    inner = slice(40, -40)  # zeros beyond the ends stand for no constant
    assert torch.allclose(found[..., inner], wanted[..., inner], atol=2e-3)


def test_moments_are_those_of_all_utterances_together() -> None:
    weights, style, _ = drawn()
    generator = Generator(weights, style)
    short, long = torch.randn(1, N, 30) + 1, torch.randn(1, N, 90)
    with torch.no_grad():
        generator.block("block", short)
        generator.block("block", long)
    mean, spread = generator.moments()["block.adain1.0"]
    joined = torch.cat((short, long), dim=2)[0]
    assert torch.allclose(mean, joined.mean(1), atol=1e-5)
    assert torch.allclose(spread, joined.var(1, unbiased=False), atol=1e-4)


@pytest.mark.parametrize("kernel", [3, 7])
def test_middle_taps_are_centered(kernel: int) -> None:
    weight = torch.arange(7.0).expand(2, 2, 7)
    assert middle(weight, kernel)[0, 0].mean() == 3
    assert middle(torch.ones(4), kernel).shape == (4,)


@pytest.mark.slow
def test_distillation_learns_every_layer_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    n = vocoder_distillation.N_FRAMES + 3
    taught = Taught(
        torch.randn(80, n) - 5, torch.randn(480 * n) / 10, torch.randn(480 * n) / 10,
        torch.randn(256, 16 * n), torch.randn(256, 16 * n), torch.randn(128, 96 * n + 1),
        torch.randn(256, 16 * n),
    )  # fmt: skip
    weights = {"ups.1.weight": torch.randn(256, 128, 12) / 30, "ups.1.bias": torch.zeros(128)}
    monkeypatch.setattr(Generator, "stage", lambda _self, _stage, x: x.tanh())
    teacher, targets = Generator(weights, torch.zeros(1, D_STYLE)), Targets([taught])
    student = Student(Vocoder(vocoder_distillation.CONFIG), (torch.zeros(256), torch.zeros(128)))
    vocoder_distillation.normalize_inputs(student.vocoder, [taught])
    wanted, found = targets.draw(2, step=0), []
    optimizer = torch.optim.Adam(student.vocoder.parameters(), 1e-3)
    for _ in range(4):
        losses = vocoder_distillation.losses(student, teacher, targets, wanted)
        found.append({name: float(loss.detach()) for name, loss in losses.items()})
        optimizer.zero_grad()
        torch.autograd.backward(losses["loss"])
        optimizer.step()
    assert all(found[-1][name] < found[0][name] for name in found[0] if name != "sound")
    for i in range(2):  # each part has a teacher of its own
        gradients = student.vocoder.resblocks[i], student.vocoder.source_resblocks[i]
        assert all(p.grad is not None for part in gradients for p in part.parameters())
