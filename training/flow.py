"""A small flow-matching decoder from tokens and speaker to mel frames, and its mean-flow student.

Batches are segments of one length out of each voice's concatenated speech, so nothing is padded.
Half of them have full attention, half that of streaming windows.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, replace
from typing import cast

import numpy as np
import torch
import torch.nn.functional as F
import typer
from numpy.typing import NDArray
from safetensors import safe_open
from safetensors.torch import load_file
from torch import Tensor, nn

from nightingale.backends.torch.flow.conv import CausalConv
from nightingale.backends.torch.flow.encoder import EncoderConfig, frame_mask
from nightingale.backends.torch.flow.estimator import Estimator, EstimatorConfig, Transformer
from nightingale.backends.torch.flow.model import Flow, FlowConfig
from nightingale.weights.manifest import BUNDLE
from training import codes, corpus, speakers
from training.corpus import FLOW_MEL
from training.loop import Losses, Schedule, compile_blocks, load_ema, train
from training.speech_tokenizer import WARPED_TOKENS, tokens_by_voice
from training.work import work

ENCODER = EncoderConfig(d_model=128, n_heads=2, d_ffn=384, n_layers=2, n_up_layers=1)
# Wide enough for two channels to each band: see `init_noise_path`.
ESTIMATOR = EstimatorConfig(
    d_model=192, n_heads=4, d_head=32, d_ffn=384, d_time=128, n_mid_blocks=2, n_transformers=1
)
MEANFLOW = replace(ESTIMATOR, meanflow=True)
FOLDER = work() / "flow"
MEANFLOW_FOLDER = work() / "meanflow"
LENGTHS = (48, 96, 160, 256)  # tokens
UNCONDITIONAL = 0.2  # of the rows, for classifier-free guidance
MAIN_VOICE = "heart"  # that comes along
MAIN_VOICE_SHARE = 0.6  # of the rows; the others share the rest
PREFIX = "flow."


def config(estimator: EstimatorConfig = ESTIMATOR) -> FlowConfig:
    return FlowConfig(ENCODER, estimator, d_xvector=speakers.D_XVECTOR)


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    tokens: Tensor  # (B, T)
    mel: Tensor  # (B, 2 T, 80)
    xvector: Tensor  # (B, 192)
    n_prompt: int  # tokens at the beginning whose mel is known
    mask: Tensor | None  # (T, T)


class FlowDataset:
    """Each voice's tokens and frames, concatenated in random order."""

    def __init__(
        self, main_voice_share: float = MAIN_VOICE_SHARE, warped_share: float = 0.0
    ) -> None:
        """Of a share of rows the tokens behind the prompt are another speaker's: T3's keep less of
        the voice than those of its own speech."""
        self._main_voice_share, self._warped_share = main_voice_share, warped_share
        tokens = tokens_by_voice()
        warped = tokens_by_voice(WARPED_TOKENS) if warped_share else tokens
        self._tokens: dict[str, NDArray[np.int64]] = {}
        self._warped: dict[str, NDArray[np.int64]] = {}
        self._mel: dict[str, NDArray[np.float16]] = {}
        random = np.random.default_rng(5)
        by_voice: dict[str, list[corpus.Utterance]] = {}
        for utterance in corpus.training_set(FLOW_MEL):
            by_voice.setdefault(utterance.voice, []).append(utterance)
        for voice, utterances in by_voice.items():
            known = [u for u in utterances if u.id in tokens.get(voice, {})]
            order = [known[i] for i in random.permutation(len(known))][:4000]
            if order:
                self._tokens[voice] = np.concatenate([tokens[voice][u.id] for u in order])
                self._warped[voice] = np.concatenate([warped[voice][u.id] for u in order])
                self._mel[voice] = np.concatenate([FLOW_MEL.of(u) for u in order])
        self._xvectors = speakers.targets_by_voice()
        self._rest = sorted(set(self._tokens) - {MAIN_VOICE})

    def batch(self, step: int, n_tokens: int) -> Batch:
        random = np.random.default_rng((7, step))
        length = int(random.choice(LENGTHS))
        n_prompt = 0 if random.random() < 0.25 else int(length * random.uniform(0.1, 0.6))
        rows = []
        for _ in range(max(1, n_tokens // length)):
            voice = (
                MAIN_VOICE
                if random.random() < self._main_voice_share or not self._rest
                else random.choice(self._rest)
            )
            vectors = self._xvectors[voice]
            at = int(random.integers(len(self._tokens[voice]) - length))
            tokens = self._tokens[voice][at : at + length]
            if random.random() < self._warped_share:
                warped = self._warped[voice][at + n_prompt : at + length]
                tokens = np.concatenate((tokens[:n_prompt], warped))
            mel = self._mel[voice][2 * at : 2 * (at + length)]
            rows.append((tokens, mel, vectors[random.integers(len(vectors))]))
        mask = None if random.random() < 0.5 else window_mask(length, n_prompt, random)
        columns = [torch.from_numpy(np.stack(column)) for column in zip(*rows, strict=True)]
        return Batch(columns[0].long(), columns[1].float(), columns[2].float(), n_prompt, mask)


def window_mask(n_tokens: int, n_prompt: int, random: np.random.Generator) -> Tensor:
    """The prompt sees itself; a window sees the prompt, itself and the windows before it."""
    size = int(random.integers(6, 26))
    number = torch.arange(n_tokens).sub(n_prompt).div(size, rounding_mode="floor").clamp(min=-1)
    number[:n_prompt] = -1
    mask = number[None, :] <= number[:, None]
    if random.random() < 0.5:  # what is far behind is out of sight
        reach = int(random.integers(1, 4))
        mask &= (number[None, :] >= number[:, None] - reach) | (number[None, :] == -1)
    return mask


def bias_of(conv: nn.Conv1d) -> Tensor:
    assert conv.bias is not None
    return conv.bias


@torch.no_grad()
def init_noise_path(estimator: Estimator) -> None:
    """Let noise through the network from the first step on: the velocity is the mel less the noise.

    By itself it does not find that out: after 9,500 steps it guessed almost without looking at x.
    Two channels carry each band, one of them upside down, since mish lets one side through; and the
    last norm, which would divide every frame by its own size, gets a few channels that are large
    and constant, so that it divides all by nearly the same.
    """
    n_mel, width = estimator.config.n_mel, estimator.config.d_model
    pair = torch.cat((torch.eye(n_mel), -torch.eye(n_mel)))  # (160, 80)
    first, *_, last = estimator.blocks()
    for block in estimator.blocks():
        block.unit.block2.norm.weight.mul_(0.3)
        residual = block.unit.res_conv
        residual.weight.mul_(0.3)
        residual.weight[:, : 2 * n_mel, 0] = torch.eye(width)[:, : 2 * n_mel]
        bias_of(residual).zero_()
    inputs = first.unit.res_conv.weight
    inputs[:, :n_mel, 0] = 0
    inputs[: 2 * n_mel, :n_mel, 0] = pair
    inputs[:, n_mel : 2 * n_mel].normal_(std=0.05)
    final = estimator.final_block.conv
    for conv in (cast(CausalConv, first[2]), cast(CausalConv, last[2]), final):
        conv.weight.mul_(0.3)
        conv.weight[: 2 * n_mel] = 0
        conv.weight[: 2 * n_mel, :, -1] = torch.eye(width)[: 2 * n_mel]
        bias_of(conv).zero_()
    n_large, large = 8, 60.0
    final.weight[-n_large:] = 0
    bias_of(final)[-n_large:] = large * torch.tensor([1.0, -1.0]).repeat(n_large // 2)
    size = large * (n_large / width) ** 0.5
    estimator.final_block.norm.weight.fill_(size)
    estimator.final_block.norm.weight[-n_large:] = 0
    estimator.final_proj.weight.mul_(0.3)
    estimator.final_proj.weight[:, : 2 * n_mel, 0] -= pair.T / 1.1  # mish's slope


def velocity(
    estimator: Estimator, x: Tensor, known: Tensor, start: Tensor, end: Tensor, mask: Tensor | None
) -> Tensor:
    """What `Estimator.forward` computes, for rows with times of their own; known is (B, M, 240)."""
    shifts = estimator.shifts(start, end).unsqueeze(2).unbind(1)  # (B, 1, D) each
    first, *middle, last = estimator.blocks()
    skip = first(torch.cat((x, known), dim=-1), shifts[0], mask)
    h = first.end(skip)
    for block, shift in zip(middle, shifts[1:-1], strict=True):
        h = block(h, shift, mask)
    h = last.end(last(torch.cat((h, skip), dim=-1), shifts[-1], mask))
    final = estimator.final_proj
    return F.linear(estimator.final_block(h), final.weight[..., 0], final.bias)


def conditioning(flow: Flow, batch: Batch) -> tuple[Tensor, Tensor]:
    """mu, (B, M, 80), and all that conditions the estimator, (B, M, 240)."""
    mu = flow.encoder_proj(flow.encoder(flow.input_embedding(batch.tokens), batch.mask))
    speaker = flow.spk_embed_affine_layer(F.normalize(batch.xvector, dim=1))
    cond = batch.mel.clone()
    cond[:, 2 * batch.n_prompt :] = 0
    return mu, torch.cat((mu, speaker[:, None].expand_as(mu), cond), dim=-1)


def losses(flow: Flow, batch: Batch) -> Losses:
    mu, known = conditioning(flow, batch)
    n = len(mu)
    known = known * (torch.rand(n) >= UNCONDITIONAL)[:, None, None]
    time = 1 - torch.cos(torch.rand(n) * math.pi / 2)
    noise = torch.randn_like(batch.mel)
    x = torch.lerp(noise, batch.mel, time[:, None, None])
    mask = None if batch.mask is None else frame_mask(batch.mask)
    guess = velocity(flow.estimator, x, known, time, time, mask)
    flow_loss = F.mse_loss(guess, batch.mel - noise)
    prior = F.l1_loss(mu, batch.mel)
    return {"loss": flow_loss + 0.3 * prior, "flow": flow_loss, "prior": prior}


def main(
    n_steps: int = 10_000,
    minutes: float | None = None,
    n_tokens: int = 1000,
    ship: bool = False,
    main_voice_share: float = MAIN_VOICE_SHARE,
    warped_share: float = 0.0,
    bf16: bool = False,
) -> None:
    """Train the flow; --ship: go on with that of the package, at half the learning rate."""
    torch.set_num_threads(1)
    speech = FlowDataset(main_voice_share, warped_share)
    if ship:
        flow = shipped()
    else:
        flow = Flow(config())
        init_noise_path(flow.estimator)
        codes.add_digit_embedding(flow.input_embedding, 1.0)
    compile_blocks(transformers(flow))
    schedule = Schedule(n_steps, lr=5e-4 if ship else 1e-3, bf16=bf16)
    train(flow, lambda step: losses(flow, speech.batch(step, n_tokens)), schedule, FOLDER, minutes)


def transformers(flow: Flow) -> list[Transformer]:
    """What is worth compiling; units, compiled in bfloat16, give gradients that are no numbers."""
    return [module for module in flow.estimator.modules() if isinstance(module, Transformer)]


def load(folder: str = "flow") -> Flow:
    """What was learned: of random weights with factorized embeddings, of --ship without."""
    is_student = folder == "meanflow"
    flow = Flow(config(MEANFLOW if is_student else ESTIMATOR))
    with safe_open(work() / folder / "mean.safetensors", "pt") as opened:
        is_factorized = any("parametrizations" in name for name in opened.keys())  # noqa: SIM118
    if is_factorized:
        codes.add_digit_embedding(flow.input_embedding, 1.0)
    load_ema(flow, work() / folder)
    if is_factorized:
        codes.merge_digit_embedding(flow.input_embedding)
    return flow


def shipped(*, meanflow: bool = False) -> Flow:
    """That of the package, or its mean-flow student."""
    flow = Flow(config(MEANFLOW if meanflow else ESTIMATOR))
    tensors = load_file(BUNDLE / "s3gen.safetensors")
    if meanflow:
        tensors |= load_file(BUNDLE / "s3gen_meanflow.safetensors")
    known = {k.removeprefix(PREFIX): v.float() for k, v in tensors.items() if k.startswith(PREFIX)}
    flow.load_state_dict(known)
    return flow


@torch.no_grad()
def first_student(teacher: Flow) -> Flow:
    """It begins as if there were only the start of a step."""
    student = Flow(config(MEANFLOW))
    student.load_state_dict(teacher.state_dict(), strict=False)
    mixer = student.estimator.time_embed_mixer
    assert mixer is not None
    mixer.weight.copy_(torch.eye(*mixer.weight.shape))
    return student


def shipped_student(teacher: Flow) -> Flow:
    """That of the package, moved by what its teacher has learned since."""
    student, before, now = shipped(meanflow=True), shipped().state_dict(), teacher.state_dict()
    moved = {
        name: tensor + now[name] - before[name] if name in now else tensor
        for name, tensor in student.state_dict().items()
    }
    student.load_state_dict(moved)
    return student


def distill_meanflow(
    n_steps: int = 700,
    minutes: float | None = None,
    threads: int = 1,
    n_tokens: int = 300,
    ship: bool = False,
    bf16: bool = False,
) -> None:
    """Distill ten guided steps of the flow into two of the student; --ship: of the package's."""
    torch.set_num_threads(threads)
    teacher, speech = load(), FlowDataset()
    student = shipped_student(teacher) if ship else first_student(teacher)
    for part in (student.input_embedding, student.encoder, student.encoder_proj):
        part.requires_grad_(False)  # shared with the teacher
    student.spk_embed_affine_layer.requires_grad_(False)
    compile_blocks([*transformers(teacher), *transformers(student)])

    def losses_of(step: int) -> Losses:
        batch = speech.batch(step, n_tokens)
        mask = None if batch.mask is None else frame_mask(batch.mask)
        with torch.no_grad():
            _, known = conditioning(teacher, batch)
            points = guided_trajectory(teacher.estimator, torch.randn_like(batch.mel), known, mask)
        half = torch.full((len(known),), 0.5)
        zero, one = torch.zeros_like(half), torch.ones_like(half)
        first = velocity(student.estimator, points[0], known, zero, half, mask)
        x = points[0] + 0.5 * first if step % 2 else points[1]  # its own halfway point, or his
        second = velocity(student.estimator, x.detach(), known, half, one, mask)
        a = F.mse_loss(first, 2 * (points[1] - points[0]))
        b = F.mse_loss(x.detach() + 0.5 * second, points[2])
        return {"loss": a + 4 * b, "first": a, "second": b}

    train(student, losses_of, Schedule(n_steps, lr=5e-4, bf16=bf16), MEANFLOW_FOLDER, minutes)


def guided_trajectory(
    estimator: Estimator, x: Tensor, known: Tensor, mask: Tensor | None, n_half: int = 5
) -> list[Tensor]:
    """Guided steps from noise to speech: their beginning, middle and end, (B, M, 80) each."""
    points, guidance, rows = [x], 0.7, len(x)
    both = torch.cat((known, torch.zeros_like(known)))
    # Halfway in time, which the cosine's steps would pass by: half of them on either side.
    first = 1 - torch.cos(torch.linspace(0, math.pi / 3, n_half + 1))
    second = 1 - torch.cos(torch.linspace(math.pi / 3, math.pi / 2, n_half + 1))
    for times in (first, second):
        for now, then in itertools.pairwise(times):
            when = now.expand(2 * rows)
            cond, uncond = velocity(estimator, torch.cat((x, x)), both, when, when, mask).chunk(2)
            x = x + (then - now) * ((1 + guidance) * cond - guidance * uncond)
        points.append(x)
    return points


if __name__ == "__main__":
    app = typer.Typer()
    app.command("train")(main)
    app.command("meanflow")(distill_meanflow)
    app()
