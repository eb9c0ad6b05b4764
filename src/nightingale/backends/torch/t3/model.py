"""T3: text tokens and a voice in, speech tokens out.

One class for the whole family; the config says which backbone and which of its quirks. Parameter
names are those of the released files. Knows nothing of strings, files or sound.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from nightingale.backends.torch.t3.attention import Alignment, Heads
from nightingale.backends.torch.t3.cache import KVCache
from nightingale.backends.torch.t3.conditioning import N_QUERIES, SPEAKER_DIM, Conditioner
from nightingale.backends.torch.t3.decode import Noise, SequenceSampler, decode
from nightingale.backends.torch.t3.gpt2 import Gpt2
from nightingale.backends.torch.t3.guard import Guard
from nightingale.backends.torch.t3.llama import Llama
from nightingale.backends.torch.t3.prefix import GRID, Prefix
from nightingale.backends.torch.t3.sampling import Sampler, gpt2_sampler, guide, llama_sampler
from nightingale.core import START_OF_SPEECH, Family, Options, T3Prompt
from nightingale.errors import OptionError, TextError
from nightingale.nn.deterministic import Linear
from nightingale.nn.sizes import n_bytes
from nightingale.noise import NoiseStream, exponential

RESERVE = 256  # positions of room for speech at the start: ten seconds


@dataclass(frozen=True, slots=True)
class T3Config:
    """The sizes of one T3; the released ones and our small one are in CONFIGS."""

    family: Family
    n_layers: int
    d_model: int
    n_heads: int
    d_ffn: int
    n_text: int  # text vocabulary
    n_speech: int  # speech vocabulary
    max_prompt: int  # speech tokens of the voice's recording
    max_text: int = 2048
    max_speech: int = 4096
    alignment_heads: Heads = ()  # heads that follow the text

    @property
    def is_llama(self) -> bool:
        """Llama variants have guidance, a perceiver, an emotion and positions of their own."""
        return self.family not in ("turbo", "nano")


CONFIGS: dict[Family, T3Config] = {
    "english": T3Config("english", 30, 1024, 16, 4096, 704, 8194, 150),
    "multilingual": T3Config(
        "multilingual", 30, 1024, 16, 4096, 2454, 8194, 150,
        alignment_heads=((12, 15), (13, 11), (9, 2)),
    ),
    "turbo": T3Config("turbo", 24, 1024, 16, 4096, 50276, 6563, 375),
    "nano": T3Config("nano", 12, 768, 12, 3072, 50276, 6563, 375),
    "fledgling": T3Config(
        "fledgling", 6, 192, 3, 512, 256, 6563, 150, max_text=400, max_speech=1000,
        alignment_heads=((2, 0), (3, 1)),
    ),
}  # fmt: skip

# In the released files, but of no use for speaking.
DEAD_TENSORS = ("text_head.*", "tfmr.embed_tokens.weight", "tfmr.wte.weight")


@runtime_checkable
class ReadsSlots(Protocol):
    """A backbone that computes several requests in one pass, each as if it were alone."""

    def read_slots(
        self, inputs: Sequence[Tensor], slots: Sequence[tuple[KVCache, Alignment | None]]
    ) -> list[Tensor]: ...


class T3(nn.Module):
    """Text tokens -> speech tokens. Holds weights and nothing of any request."""

    def __init__(self, config: T3Config) -> None:
        super().__init__()
        self.config = config
        width = config.d_model
        backbone = Llama if config.is_llama else Gpt2
        self.tfmr = backbone(config.n_layers, width, config.n_heads, config.d_ffn, _n_pos(config))
        self.cond_enc = Conditioner(width, digests=config.is_llama)
        self.text_emb = nn.Embedding(config.n_text, width)
        self.speech_emb = nn.Embedding(config.n_speech, width)
        self.speech_head = Linear(width, config.n_speech, bias=not config.is_llama)
        if config.is_llama:
            self.text_pos_emb = _Positions(config.max_text + 2, width)
            self.speech_pos_emb = _Positions(config.max_speech + 4, width)

    def decode(
        self,
        text: Sequence[int],
        prefix: Prefix,
        options: Options,
        *,
        noise: Noise | None = None,
        alignment: Alignment | None = None,
        guard: Guard | None = None,
        forced: Sequence[int] = (),
    ) -> Iterator[int]:
        """Speech tokens, one at a time, as in `decode.decode`; noise comes from the seed."""
        utterance, sample, draw = self._prepare(text, prefix, options, noise, alignment, guard)
        return decode(utterance, sample, draw, options.max_tokens, forced)

    def begin(
        self,
        text: Sequence[int],
        prefix: Prefix,
        options: Options,
        *,
        guard: Guard | None = None,
        forced: Sequence[int] = (),
    ) -> tuple[Utterance, SequenceSampler]:
        """The two halves of `decode`, for who computes several utterances together."""
        utterance, _, _ = self._prepare(text, prefix, options, None, None, guard)
        return utterance, self.sequence_sampler(options, guard, forced)

    def sequence_sampler(
        self, options: Options, guard: Guard | None, forced: Sequence[int] = ()
    ) -> SequenceSampler:
        """Draws the tokens of one utterance, whoever computes their logits."""
        return SequenceSampler(
            self._sampler(options, guard),
            self._noise(options.seed),
            options.max_tokens,
            forced,
            penalizes_start=self.config.is_llama,
        )

    @property
    def is_batchable(self) -> bool:
        """Packed layers are. Others take their products from libraries, whose sums depend on how
        many rows there are."""
        return isinstance(self.tfmr, ReadsSlots)

    @torch.inference_mode()
    def next_together(
        self, utterances: Sequence[Utterance], tokens: Sequence[tuple[Tensor, int]]
    ) -> list[Tensor]:
        """`Utterance.next` of each, with its token and index: the same bits, in one pass.

        If `is_batchable`. What cannot be read is refused before anything is computed.
        """
        assert isinstance(self.tfmr, ReadsSlots)
        inputs = [
            one.expand(self.embed_speech(*token))
            for one, token in zip(utterances, tokens, strict=True)
        ]
        hidden = self.tfmr.read_slots(inputs, [one.slot for one in utterances])
        logits = self.speech_head(torch.cat([x[:, -1] for x in hidden]))  # (B, V)
        rows = torch.split(logits, [len(x) for x in inputs])
        return [one.close(own) for one, own in zip(utterances, rows, strict=True)]

    def _prepare(
        self,
        text: Sequence[int],
        prefix: Prefix,
        options: Options,
        noise: Noise | None,
        alignment: Alignment | None,
        guard: Guard | None,
    ) -> tuple[Utterance, Sampler, Noise]:
        self.check(text, options)
        alignment = guard.alignment if guard is not None else alignment
        utterance = Utterance(self, text, prefix, options, alignment)
        return utterance, self._sampler(options, guard), noise or self._noise(options.seed)

    def _sampler(self, options: Options, guard: Guard | None) -> Sampler:
        sample = llama_sampler(options) if self.config.is_llama else gpt2_sampler(options)
        return sample if guard is None else guard.watch(sample)

    @torch.inference_mode()
    def prefix(self, prompt: T3Prompt, exaggeration: float) -> Prefix:
        """Read what stands in front of every text of this voice."""
        x = self.embed_voice(prompt, exaggeration)
        shape = (1, self.config.n_heads, x.shape[1], x.shape[2] // self.config.n_heads)
        like = x.to(self.tfmr.cache_dtype or x.dtype)
        voice = KVCache.empty(self.config.n_layers, shape, like=like)
        self.tfmr(x, voice)
        uncond = voice.fork(voice.length + GRID) if self.config.is_llama else None
        return Prefix(voice, uncond)

    def cache_bytes(self, n_positions: int) -> int:
        """Of a request that has read so many: keys and values, and those of the guidance row."""
        config, n_rows = self.config, 2 if self.config.is_llama else 1
        n_numbers = 2 * n_rows * config.n_layers * config.d_model * n_positions
        return n_numbers * self._cache_itemsize

    @property
    def _cache_itemsize(self) -> int:
        return (self.tfmr.cache_dtype or self.speech_emb.weight.dtype).itemsize

    @property
    def step_bytes(self) -> int:
        """Of all weights that a step reads, in whatever form they are kept."""
        return n_bytes(self.tfmr, self.speech_head)

    def embed_voice(self, prompt: T3Prompt, exaggeration: float) -> Tensor:
        """(1, T, D)"""
        self._check_voice(prompt)
        home = self.speech_emb.weight
        tokens = torch.tensor(prompt.tokens, device=home.device)
        embedded = self.speech_emb(tokens)[None]  # (1, P, D)
        if self.config.is_llama:
            embedded = embedded + self.speech_pos_emb(slice(0, embedded.shape[1]))
        voice: Tensor = self.cond_enc(torch.tensor(prompt.speaker).to(home), embedded, exaggeration)
        return voice

    def embed_text(self, text: Sequence[int]) -> Tensor:
        """(1, T, D)"""
        x = self.text_emb(torch.tensor(text, device=self.text_emb.weight.device))[None]
        if self.config.is_llama:
            x = x + self.text_pos_emb(slice(0, len(text)))
        return x

    def embed_start(self) -> Tensor:
        """(1, T, D): Llama variants were trained with the start token twice, both at position 0."""
        start = self.speech_emb.weight[START_OF_SPEECH].view(1, 1, -1)
        if self.config.is_llama:
            return (start + self.speech_pos_emb(slice(0, 1))).expand(1, 2, -1)
        return start

    def embed_speech(self, token: Tensor, index: int) -> Tensor:
        """(1, 1, D): token number `index` of the utterance, counted from 0 behind the start."""
        x = self.speech_emb(token).view(1, 1, -1)
        if self.config.is_llama:
            x = x + self.speech_pos_emb(slice(index + 1, index + 2))
        return x

    def extend_uncond(self, prefix: Prefix, n_text: int) -> KVCache:
        """Let the guidance row of this voice reach over `n_text` text positions."""
        assert prefix.uncond is not None
        n_voice = prefix.voice.length
        while prefix.uncond.length < n_voice + n_text:
            at = prefix.uncond.length - n_voice
            self.tfmr(self.text_pos_emb(slice(at, at + GRID))[None], prefix.uncond)
        return prefix.uncond

    def _noise(self, seed: int) -> Noise:
        home = self.speech_emb.weight.device
        n = self.config.n_speech
        return lambda index: torch.from_numpy(exponential(seed, NoiseStream.TOKENS, index, n)).to(
            home
        )

    def _check_voice(self, prompt: T3Prompt) -> None:
        config, n_tokens, n_values = self.config, prompt.tokens.size, prompt.speaker.size
        if n_tokens > config.max_prompt or n_values != SPEAKER_DIM:
            raise OptionError(
                f"this voice has {n_tokens} prompt tokens and {n_values} speaker values, but "
                f"{config.family} takes up to {config.max_prompt} and {SPEAKER_DIM}: make it anew"
            )

    def check(self, text: Sequence[int], options: Options) -> None:
        """Refuse what this model cannot take."""
        config = self.config
        if not text or len(text) > config.max_text + 2:
            raise TextError(
                f"the text has {len(text)} tokens, not 1 to {config.max_text + 2}: split it"
            )
        if min(text) < 0 or max(text) >= config.n_text:
            raise TextError(f"text tokens must lie in 0..{config.n_text - 1}: wrong tokenizer?")
        absent = ("top_k",) if config.is_llama else ("cfg_weight", "min_p", "exaggeration")
        for name in absent:
            if getattr(options, name):
                raise OptionError(f"{config.family} has no {name}: leave it at 0")


class Utterance:
    """One request under way: its cache, and how its positions are laid out."""

    def __init__(
        self,
        model: T3,
        text: Sequence[int],
        prefix: Prefix,
        options: Options,
        alignment: Alignment | None,
    ) -> None:
        self._model = model
        self._text = text
        self._prefix = prefix
        self._weight = options.cfg_weight
        self._alignment = alignment
        self._cache: KVCache
        self.penalizes_start = model.config.is_llama

    @torch.inference_mode()
    def first(self) -> Tensor:
        """Lay out voice, text and start; the guidance row joins for the start alone."""
        model, (_, n_prompt) = self._model, self.text_span
        room = n_prompt + RESERVE
        if self._alignment is not None:
            self._alignment.text = self.text_span
        x = model.embed_text(self._text)
        if not self._weight:
            self._cache = self._prefix.voice.fork(room)
            return self._read(torch.cat((x, model.embed_start()), dim=1))
        with_text = self._prefix.voice.fork(n_prompt)
        model.tfmr(x, with_text)
        uncond = model.extend_uncond(self._prefix, len(self._text)).fork(n_prompt, n_prompt)
        self._cache = KVCache.join([with_text, uncond], room)
        return self._read(model.embed_start())

    @torch.inference_mode()
    def next(self, token: Tensor, index: int) -> Tensor:
        return self._read(self._model.embed_speech(token, index))

    @property
    def text_span(self) -> tuple[int, int]:
        """The first position of the text, and the one behind it."""
        n_voice = self._prefix.voice.length
        return n_voice, n_voice + len(self._text)

    @property
    def slot(self) -> tuple[KVCache, Alignment | None]:
        return self._cache, self._alignment

    def expand(self, x: Tensor) -> Tensor:
        """The same positions for every row, (B, T, D)."""
        return x.expand(self._cache.n_rows, -1, -1)

    def close(self, logits: Tensor) -> Tensor:
        """The step is over: the guided logits, (V,), of those of every row."""
        if self._alignment is not None:
            self._alignment.close_row()
        logits = logits.to(torch.promote_types(logits.dtype, torch.float32))  # (B, V)
        return guide(logits, self._weight) if self._weight else logits[0]

    def _read(self, x: Tensor) -> Tensor:
        """Read the same positions in every row; returns the guided logits of the last, (V,)."""
        hidden = self._model.tfmr(self.expand(x), self._cache, self._alignment)
        return self.close(self._model.speech_head(hidden[:, -1]))


class _Positions(nn.Module):
    """Learned positions, by their place in a table."""

    def __init__(self, n_positions: int, d_model: int) -> None:
        super().__init__()
        self.emb = nn.Embedding(n_positions, d_model)

    def forward(self, where: slice | Tensor) -> Tensor:
        return self.emb.weight[where]  # (T, D)


def _n_pos(config: T3Config) -> int:
    """How many positions the backbone can be asked for."""
    if config.is_llama:
        return 1 + N_QUERIES + 1 + config.max_text + 2 + config.max_speech + 4
    return 8196  # the size of the released table
