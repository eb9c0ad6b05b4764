"""Flow: speech tokens and a voice in, mel frames out.

One class for both decoders of the family; the config says which. Parameter names are those of the
released files behind `flow.`. Knows nothing of text, files or samples.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal, cast

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nightingale.backends.torch.flow.encoder import Encoder, EncoderConfig
from nightingale.backends.torch.flow.estimator import Estimator, EstimatorConfig
from nightingale.backends.torch.flow.solver import MEANFLOW, STANDARD, Schedule, solve, solve_chunk
from nightingale.backends.torch.flow.window import (
    AnyWindow,
    FlowState,
    LayerCaches,
    StepCaches,
    Window,
    joint,
)
from nightingale.core import FRAMES_PER_TOKEN, N_SPEECH_CODES, FlowPrompt
from nightingale.errors import OptionError
from nightingale.nn.deterministic import Linear
from nightingale.nn.sizes import n_bytes
from nightingale.noise import NoiseStream, normal

Decoder = Literal["standard", "meanflow"]


@dataclass(frozen=True, slots=True)
class FlowConfig:
    """The sizes of one flow; the two released ones are in CONFIGS."""

    encoder: EncoderConfig = field(default_factory=EncoderConfig)
    estimator: EstimatorConfig = field(default_factory=EstimatorConfig)
    n_codes: int = N_SPEECH_CODES
    d_xvector: int = 192

    @property
    def meanflow(self) -> bool:
        """Whether the estimator was distilled to take a few long steps without guidance."""
        return self.estimator.meanflow

    @property
    def schedule(self) -> Schedule:
        """The steps that this decoder was made for."""
        return MEANFLOW if self.meanflow else STANDARD


CONFIGS: dict[Decoder, FlowConfig] = {
    "standard": FlowConfig(),
    "meanflow": FlowConfig(estimator=EstimatorConfig(meanflow=True)),
}


@dataclass(frozen=True, slots=True, eq=False)
class FlowChunk:
    """The next tokens of an utterance, and where its rendering stands."""

    tokens: Tensor  # (N,)
    prompt: FlowPrompt
    state: FlowState
    seed: int


# In the released files, but without influence: see `encoder.RelativeAttention`.
DEAD_TENSORS = ("encoder.*.self_attn.linear_k.bias",)


class Flow(nn.Module):
    """Speech tokens -> mel frames. Holds weights and nothing of any request."""

    def __init__(self, config: FlowConfig) -> None:
        super().__init__()
        self.config = config
        width, n_mel = config.encoder.d_model, config.estimator.n_mel
        self.input_embedding = nn.Embedding(config.n_codes, width)
        self.spk_embed_affine_layer = Linear(config.d_xvector, n_mel)
        self.encoder = Encoder(config.encoder)
        self.encoder_proj = Linear(width, n_mel)
        self.decoder = nn.ModuleDict({"estimator": Estimator(config.estimator)})

    @property
    def estimator(self) -> Estimator:
        return cast(Estimator, self.decoder["estimator"])

    @torch.inference_mode()
    def render(
        self,
        tokens: Tensor,
        prompt: FlowPrompt,
        seed: int,
        *,
        noise: Tensor | None = None,
        schedule: Schedule | None = None,
    ) -> Tensor:
        """The whole utterance at once: (N,) -> (80, 2 N), one frame less if the prompt's is odd.

        Noise for all frames, prompt and new, (M, 80), comes from the seed unless it is given.
        """
        mu = self.encode(tokens, prompt)
        n_frames, n_prompt = mu.shape[0], prompt.mel.shape[0]
        if noise is None:
            noise = frame_noise(seed, n_prompt, n_frames - n_prompt, mu.shape[1])
        elif noise.shape != mu.shape:
            raise OptionError(f"noise is {list(noise.shape)}, but must be {list(mu.shape)}")
        speaker, cond = self.speaker(prompt), self.condition(prompt, n_frames)
        mel = self._solved(mu, speaker, cond, noise, self._schedule(schedule))
        return mel[n_prompt:].T.contiguous()

    @torch.inference_mode()
    def prefill(self, prompt: FlowPrompt) -> FlowState:
        """Render a voice's recording alone: what every utterance in this voice goes on from.

        Its noise is always the same, so that it can be kept.
        """
        tokens = torch.tensor(prompt.tokens)
        self._check(tokens, prompt)
        caches = LayerCaches()
        mu = self._mu(tokens[None], 0, Window((), caches))
        noise = torch.from_numpy(normal(0, NoiseStream.PROMPT_FRAMES, 0, *mu.shape[1:]))[None]
        cond = torch.tensor(prompt.mel[None, : mu.shape[1]]).to(mu)
        _, (steps,) = self._solve_chunk(mu, [prompt], cond, noise, [()])
        return FlowState((caches,), (steps,))

    def prompt_bytes(self, n_tokens: int) -> int:
        """What `prefill` keeps of a recording of so many tokens, but for the little of
        convolutions: keys and values of every step in the estimator, and those of the encoder."""
        encoder, estimator = self.config.encoder, self.config.estimator
        n_frames, schedule = FRAMES_PER_TOKEN * n_tokens, self.config.schedule
        n_rows = schedule.n_steps * (2 if schedule.guidance else 1)
        n_attentions = (estimator.n_mid_blocks + 2) * estimator.n_transformers
        width = estimator.n_heads * estimator.d_head
        n_rendered, n_encoded = self._itemsizes
        rendered = n_rows * n_attentions * n_frames * width * n_rendered
        positions = encoder.n_layers * n_tokens + encoder.n_up_layers * n_frames
        encoded = positions * encoder.d_model * n_encoded
        return 2 * (rendered + encoded)

    @property
    def _itemsizes(self) -> tuple[int, int]:
        """Bytes of a number in the caches of the estimator, and in those of the encoder."""
        return self.estimator.dtype.itemsize, self.encoder_proj.weight.element_size()

    @property
    def dtype(self) -> torch.dtype:
        """Of most products."""
        return self.estimator.dtype

    @property
    def window_bytes(self) -> int:
        """Of the weights that a window reads: the estimator's in every step."""
        return n_bytes(self.encoder) + self.config.schedule.n_steps * n_bytes(self.estimator)

    def place_state(self, state: FlowState) -> FlowState:
        """A state that was read on the host -> where it is computed."""
        device = self.encoder_proj.weight.device
        return state.mapped(lambda tensor: tensor.to(device))

    @torch.inference_mode()
    def render_chunk(
        self,
        tokens: Tensor,
        prompt: FlowPrompt,
        flow_state: FlowState,
        seed: int,
        *,
        n_ahead: int = 0,
        n_kept: int = 2,
    ) -> tuple[Tensor, FlowState]:
        """The next window of an utterance: (N,) -> (80, 2 N), and where that leads.

        A window sees the recording, the last `n_kept` windows and itself; nothing sees what comes
        later, but for the three tokens `n_ahead` at its end, which are looked at and not rendered.
        """
        chunk = FlowChunk(tokens, prompt, flow_state, seed)
        (rendered,) = self.render_chunks([chunk], n_ahead=n_ahead, n_kept=n_kept)
        return rendered

    @torch.inference_mode()
    def render_chunks(
        self, chunks: Sequence[FlowChunk], *, n_ahead: int = 0, n_kept: int = 2, n_rows: int = 0
    ) -> list[tuple[Tensor, FlowState]]:
        """`render_chunk` for equally many tokens of several utterances, in one pass.

        With `n_rows`, the pass has the shape of so many utterances, however few there are.
        """
        for chunk in chunks:
            self._check(chunk.tokens, chunk.prompt)
        n, states = max(n_rows, len(chunks)), [chunk.state for chunk in chunks]
        caches = [LayerCaches() for _ in chunks]
        windows = [Window(at.encoded, left) for at, left in zip(states, caches, strict=True)]
        tokens = padded(torch.stack([chunk.tokens for chunk in chunks]), n)
        mu = self._mu(tokens, n_ahead, joint(windows, n))
        shape = mu.shape[1:]
        drawn = [normal(c.seed, NoiseStream.FRAMES, c.state.n_frames, *shape) for c in chunks]
        noise = padded(torch.from_numpy(np.stack(drawn)), n)
        before, prompts = [at.rendered for at in states], [chunk.prompt for chunk in chunks]
        mel, steps = self._solve_chunk(mu, prompts, torch.zeros_like(mu), noise, before)
        return [
            (frames.T.contiguous(), at.followed_by(left, step, len(frames), n_kept))
            for frames, at, left, step in zip(mel, states, caches, steps, strict=False)
        ]

    def _mu(self, tokens: Tensor, n_ahead: int, window: AnyWindow | None) -> Tensor:
        """(R, N) -> (R, M, 80)"""
        embedded = self.input_embedding(tokens.to(self.input_embedding.weight.device))
        return self.encoder_proj(self.encoder(embedded, n_ahead=n_ahead, window=window))

    def _solve_chunk(
        self,
        mu: Tensor,
        prompts: Sequence[FlowPrompt],
        cond: Tensor,
        noise: Tensor,
        before: Sequence[Sequence[StepCaches]],
    ) -> tuple[Tensor, list[StepCaches]]:
        speaker = padded(torch.stack([self.speaker(prompt) for prompt in prompts]), len(mu))
        schedule = self.config.schedule
        return solve_chunk(self.estimator, mu, speaker, cond, noise, schedule, before)

    def _schedule(self, wanted: Schedule | None) -> Schedule:
        return wanted or self.config.schedule

    @torch.inference_mode()
    def encode(self, tokens: Tensor, prompt: FlowPrompt) -> Tensor:
        """mu, (M, 80): what the tokens of the prompt, then the new ones, ask of every frame."""
        self._check(tokens, prompt)
        ids = torch.cat((torch.tensor(prompt.tokens), tokens.cpu()))
        return self._mu(ids[None], 0, None)[0]

    @torch.inference_mode()
    def speaker(self, prompt: FlowPrompt) -> Tensor:
        """(80,)"""
        xvector = torch.tensor(prompt.xvector).to(self.spk_embed_affine_layer.weight)
        return self.spk_embed_affine_layer(F.normalize(xvector, dim=0))

    @torch.inference_mode()
    def condition(self, prompt: FlowPrompt, n_frames: int) -> Tensor:
        """(M, 80): the mel of the recording, zeros behind it."""
        mel = torch.tensor(prompt.mel).to(self.encoder_proj.weight)
        return F.pad(mel, (0, 0, 0, n_frames - mel.shape[0]))

    def solve(
        self,
        mu: Tensor,
        speaker: Tensor,
        cond: Tensor,
        noise: Tensor,
        schedule: Schedule | None = None,
    ) -> Iterator[Tensor]:
        """x after every step, (M, 80), as in `solver.solve`."""
        return solve(self.estimator, mu, speaker, cond, noise, self._schedule(schedule))

    def _solved(
        self, mu: Tensor, speaker: Tensor, cond: Tensor, noise: Tensor, schedule: Schedule
    ) -> Tensor:
        """x after the last step, (M, 80)"""
        *_, mel = self.solve(mu, speaker, cond, noise, schedule)
        return mel

    def _check(self, tokens: Tensor, prompt: FlowPrompt) -> None:
        config, n_mel = self.config, self.config.estimator.n_mel
        for ids, whose in ((torch.tensor(prompt.tokens), "the voice's"), (tokens, "the")):
            if ids.dim() != 1 or ids.dtype not in (torch.int64, torch.int32):
                raise OptionError(
                    f"{whose} speech tokens are {ids.dtype} {list(ids.shape)}, "
                    "but must be a row of whole numbers (int64 or int32)"
                )
            if ids.numel() and not 0 <= int(ids.min()) <= int(ids.max()) < config.n_codes:
                raise OptionError(
                    f"{whose} speech tokens lie in {int(ids.min())}..{int(ids.max())}, but only "
                    f"0..{config.n_codes - 1} stand for sound: drop control tokens first"
                )
        if not tokens.numel():
            raise OptionError("there are no speech tokens to render: give one or more")
        n_tokens, mel, xvector = prompt.tokens.size, prompt.mel.shape, prompt.xvector.shape
        n_even = FRAMES_PER_TOKEN * n_tokens
        if mel not in ((n_even, n_mel), (n_even + 1, n_mel)) or xvector != (config.d_xvector,):
            raise OptionError(
                f"this voice has {n_tokens} prompt tokens, mel {list(mel)} and x-vector "
                f"{list(xvector)}, but needs mel [{n_even} or {n_even + 1}, {n_mel}] and x-vector "
                f"[{config.d_xvector}]: make it anew"
            )


def padded(x: Tensor, n_rows: int) -> Tensor:
    """(R, ...) -> (n_rows, ...): zeros behind the rows that there are"""
    missing = n_rows - len(x)
    return torch.cat((x, x.new_zeros(missing, *x.shape[1:]))) if missing else x


def frame_noise(seed: int, n_prompt: int, n_new: int, n_mel: int) -> Tensor:
    """(M, 80): each frame's own draw, whatever stands before or behind it."""
    recorded = normal(seed, NoiseStream.PROMPT_FRAMES, 0, n_prompt, n_mel)
    new = normal(seed, NoiseStream.FRAMES, 0, n_new, n_mel)
    return torch.from_numpy(np.concatenate((recorded, new)))
