"""The backend interface: three small protocols between those who speak and those who compute.

A backend turns text tokens into speech tokens (`TokenEngine`), windows of those into samples
(`WaveDecoder`), and loads both (`Backend`). Everything that passes is numpy, numbers and frozen
dataclasses. Whoever calls makes sure that only one thread computes at a time.

What a request sounds like depends on the request alone: never on who else is computed beside it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from nightingale.core import CPU, END_OF_SPEECH, Family, FlowPrompt, Options, Plan, T3Prompt
from nightingale.families import Decoder

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

LOOKAHEAD_TOKENS = 3  # speech tokens that a decoder looks at behind a window


@dataclass(frozen=True, slots=True, eq=False)
class TokenRequest:
    """Text to be spoken."""

    text: Sequence[int]  # text tokens
    prompt: T3Prompt
    options: Options
    forced: tuple[int, ...] = ()  # the first speech tokens, from the log of the same request


@dataclass(frozen=True, slots=True)
class TokenEvent:
    """One more speech token of a request."""

    number: int  # of the request
    token: int
    position: int | None  # the text token that is being said, from models that can tell
    is_last: bool  # END_OF_SPEECH, or as many as were allowed
    is_said: bool = True  # False: speech ended before the text did, as far as the model can tell
    error: Exception | None = None  # why there is no token: this request is over, others are not

    @classmethod
    def failed(cls, number: int, error: Exception) -> TokenEvent:
        return cls(number, END_OF_SPEECH, None, is_last=True, is_said=False, error=error)


class TokenEngine(Protocol):
    """Text tokens -> speech tokens, for many requests at once."""

    def add(self, request: TokenRequest) -> int:
        """Take a request; the number that is given back stands for it. Computes little or nothing.

        A text or option that the model cannot take is a TextError or an OptionError.
        """

    def step(self, numbers: Collection[int]) -> list[TokenEvent]:
        """One token further, for each of these requests; forced tokens come first, like others.

        What they need in common may be computed once for all; what each says is as if alone.
        """

    def cancel(self, number: int) -> None:
        """Let go of a request, from any thread; one that has ended already is no mistake."""

    def forget(self, prompt: T3Prompt) -> None:
        """Drop everything that was computed from a voice."""


@dataclass(frozen=True, slots=True)
class TokenWindow:
    """The speech tokens of one window, and the look-ahead behind them, unless it is the last."""

    tokens: list[int]
    is_last: bool

    @property
    def n_ahead(self) -> int:
        return 0 if self.is_last else LOOKAHEAD_TOKENS


class WaveState(Protocol):
    """Where the sound of one utterance stands. Handed along, never changed."""

    def to_bytes(self) -> bytes:
        """Without what can be computed again from the voice."""


@dataclass(frozen=True, slots=True, eq=False)
class WindowJob:
    """A window to be decoded, and the state that the one before it led to."""

    window: TokenWindow
    state: WaveState


@dataclass(frozen=True, slots=True, eq=False)
class DecodedWindow:
    """What came of it: samples that may be heard, and the state for the next window."""

    samples: NDArray[np.float32]
    state: WaveState
    mel_ms: float
    samples_ms: float


class WaveDecoder(Protocol):
    """Windows of speech tokens -> samples at 24 kHz."""

    def start(self, prompt: FlowPrompt, seed: int, speed: float = 1.0) -> WaveState:
        """The beginning of an utterance in a voice. At another speed than 1, `speaking_rate` makes
        other mel frames of those that would be heard."""

    def decode(self, jobs: Sequence[WindowJob]) -> list[DecodedWindow]:
        """One job or many, each isolated from the others."""

    def restore(self, data: bytes, prompt: FlowPrompt, seed: int, speed: float = 1.0) -> WaveState:
        """A state from its bytes; voice, seed and speed are those that it was started with."""

    def forget(self, prompt: FlowPrompt) -> None:
        """Drop everything that was computed from a voice."""


@dataclass(frozen=True, slots=True)
class ResolvedPlan:
    """What will be computed: a plan with the fields that the device gives, and why."""

    plan: Plan
    device: str  # as the backend calls it
    reasons: Mapping[str, str] = field(default_factory=dict)  # of fields: chosen, or not as wanted

    def changed(self, name: str, value: object, reason: str) -> ResolvedPlan:
        """The same with one field as this model needs it."""
        plan = replace(self.plan, **{name: value})  # type: ignore[arg-type]
        return replace(self, plan=plan, reasons={**self.reasons, name: reason})

    def __str__(self) -> str:
        """One line for a person: every field that matters, with its reason."""
        name, *fields = str(self.plan).split("; ")
        shown = [self._explained(shown) for shown in fields]
        return f"plan {name} on {self.device}{self._why('device')}: {', '.join(shown)}"

    def _explained(self, shown: str) -> str:
        return shown + self._why(shown.partition("=")[0])

    def _why(self, name: str) -> str:
        return f" ({self.reasons[name]})" if name in self.reasons else ""


@dataclass(frozen=True, slots=True)
class ModelFiles:
    """A model on disk, and how it is wanted."""

    family: Family
    t3: Path
    s3gen: Path
    decoder: Decoder
    plan: Plan
    device: str = "auto"
    threads: int | None = None  # None: as many as the backend takes
    home: Path = Path()  # where packed weights are kept


@dataclass(frozen=True, slots=True, eq=False)
class LoadedModel:
    """What a backend made of it."""

    token_engine: TokenEngine
    wave_decoder: WaveDecoder
    device: str  # as the backend calls it
    encoder_device: str = CPU  # torch's, for the networks that make voices
    versions: Mapping[str, str] = field(default_factory=dict)  # of all that decides the last bits
    resolved: ResolvedPlan | None = None  # what this model made of it; None: as of any model
    max_requests: int | None = None  # whose caches fit into memory at once; None: not known


@dataclass(frozen=True, slots=True)
class Availability:
    """Whether a backend can run here; if not, `reason` says what to do."""

    is_available: bool
    reason: str = ""
    facts: Mapping[str, str] = field(default_factory=dict)  # for a person who wonders what runs


class Backend(Protocol):
    """Loads models. Its module is imported only when it is asked for."""

    name: str

    def availability(self) -> Availability: ...

    def resolve(self, plan: Plan, device: str) -> ResolvedPlan:
        """What the device gives of a plan. No plan is refused: a field that the device does not
        have becomes the nearest that it has. A device that is not here is an OptionError."""

    def load(self, files: ModelFiles) -> LoadedModel:
        """Strictly: files that are not as they should be are errors. The plan is resolved here."""
