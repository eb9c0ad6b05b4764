"""The nouns that travel between the packages, and the three rates that tie them together.

Letters in shape comments, everywhere: B rows, T positions, D model width, H heads, V vocabulary,
P prompt tokens, M mel frames, L layers. Knows nothing of any stage, file or device.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, TypedDict

from nightingale.errors import OptionError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

TOKENS_PER_SECOND = 25  # speech tokens, what T3 makes
FRAMES_PER_SECOND = 50  # mel frames, what the flow makes
SAMPLES_PER_SECOND = 24_000  # what the listener hears

FRAMES_PER_TOKEN = FRAMES_PER_SECOND // TOKENS_PER_SECOND
SAMPLES_PER_FRAME = SAMPLES_PER_SECOND // FRAMES_PER_SECOND
SAMPLES_PER_TOKEN = SAMPLES_PER_SECOND // TOKENS_PER_SECOND
assert FRAMES_PER_TOKEN * SAMPLES_PER_FRAME == SAMPLES_PER_TOKEN

N_SPEECH_CODES = 6561  # 3 ** 8 codes that stand for sound; ids above are control tokens
START_OF_SPEECH = 6561
END_OF_SPEECH = 6562

MIN_SPEED, MAX_SPEED = 0.5, 2.0  # of speech

DEFAULT_VOICE = "default"  # what mark-up and servers call the model's own
# Terms as they are written, what is said, and, if need be, in which language only.
Pronunciations = tuple[tuple[str, str] | tuple[str, str, str], ...]
MAX_PRONUNCIATIONS = 1000
_LOCALE = re.compile(r"[A-Za-z]{2,4}(?:[-_][A-Za-z0-9]{1,8}){0,3}")

# The released ones share their speech tokens; Fledgling, which comes with the package, has its own.
Family = Literal["english", "multilingual", "turbo", "nano", "fledgling"]


@dataclass(frozen=True, slots=True)
class Options:
    """How one request is spoken. The only place where a default is written."""

    # what is spoken
    # auto: detected from the text; None: no language tag (Multilingual only)
    language: str | None = "en"
    normalization: str = "auto"  # figures as words: auto (the language's), off, or a locale
    markup: str = "auto"  # tags such as [pause:500ms] are followed; off: they are text
    pronunciations: Pronunciations = ()
    speed: float = 1.0  # of speech, 0.5 to 2.0; the pitch stays
    exaggeration: float = 0.5  # not Turbo and Nano
    guard: bool = True  # keep to the text, where the model can tell how far it has come

    # sampling
    cfg_weight: float = 0.5  # guidance; 0 runs one row instead of two
    temperature: float = 0.8  # 0 takes the best token every time
    repetition_penalty: float = 1.2
    min_p: float = 0.05  # not Turbo and Nano
    top_p: float = 1.0
    top_k: int = 0  # 0: off; Turbo and Nano

    # silence between parts of a text, from the last audible sample to the next
    sentence_pause_ms: int = 350
    item_pause_ms: int = 450  # of a list; or a short line of its own
    paragraph_pause_ms: int = 800
    heading_pause_ms: int = 1000

    # seed and bounds
    seed: int = 0
    max_tokens: int = 1000  # 40 seconds of speech

    def updated(self, fields: Mapping[str, Any]) -> Options:
        """The same with some fields changed; a name that is none of them is an OptionError."""
        for name in fields:
            if name not in self.__dataclass_fields__:
                nearest = difflib.get_close_matches(name, self.__dataclass_fields__, 1)
                hint = f"did you mean {nearest[0]}?" if nearest else "see nightingale.Options"
                raise OptionError(f"there is no option {name!r}; {hint}")
        return replace(self, **fields)

    def __post_init__(self) -> None:
        if not isinstance(self.normalization, str) or not _LOCALE.fullmatch(self.normalization):
            raise OptionError(
                f"normalization is {self.normalization!r}, but must be auto, off or a locale such "
                "as de or en-GB"
            )
        if self.markup not in ("auto", "off"):
            raise OptionError(f"markup is {self.markup!r}, but must be auto or off")
        self._check_pronunciations()
        self._check("speed", MIN_SPEED, MAX_SPEED)
        self._check("exaggeration", 0.0, 10.0)
        self._check("cfg_weight", 0.0, 10.0)
        self._check("temperature", 0.0, 10.0)
        self._check("repetition_penalty", 0.01, 100.0)
        self._check("min_p", 0.0, 1.0)
        self._check("top_p", 0.0, 1.0)
        self._check("top_k", 0, 100_000)
        for name in ("sentence", "item", "paragraph", "heading"):
            self._check(f"{name}_pause_ms", 0, 10_000)
        self._check("seed", 0, 2**63 - 1)
        self._check("max_tokens", 1, 4096)

    def _check_pronunciations(self) -> None:
        try:
            entries = tuple(tuple(entry) for entry in self.pronunciations)
        except TypeError:
            entries = ((),)
        texts = [text for entry in entries for text in entry]
        is_text = all(isinstance(text, str) and text.strip() and len(text) <= 200 for text in texts)
        is_full = all(len(entry) in (2, 3) for entry in entries)
        if not is_text or not is_full or len(entries) > MAX_PRONUNCIATIONS:
            raise OptionError(
                f"pronunciations must be at most {MAX_PRONUNCIATIONS} pairs of a term and what is "
                "said for it, each of 1 to 200 characters, and may have a language as third"
            )
        object.__setattr__(self, "pronunciations", entries)  # JSON has lists where tuples belong

    def _check(self, name: str, low: float, high: float) -> None:
        value = getattr(self, name)
        is_whole = isinstance(low, int) and isinstance(high, int)
        if isinstance(value, bool) or not isinstance(value, int if is_whole else (int, float)):
            raise OptionError(f"{name} is {value!r}, but must be a {'whole ' * is_whole}number")
        if not low <= value <= high:  # NaN fails this too
            raise OptionError(f"{name} is {value}, but must lie between {low} and {high}")


class OptionFields(TypedDict, total=False):
    """Fields of `Options` as keyword arguments: those that are left out keep their defaults."""

    language: str | None
    normalization: str
    markup: str
    pronunciations: Pronunciations
    speed: float
    exaggeration: float
    guard: bool
    cfg_weight: float
    temperature: float
    repetition_penalty: float
    min_p: float
    top_p: float
    top_k: int
    sentence_pause_ms: int
    item_pause_ms: int
    paragraph_pause_ms: int
    heading_pause_ms: int
    seed: int
    max_tokens: int


@dataclass(frozen=True, slots=True)
class Plan:
    """How exactly a model is computed: every choice that trades sound for speed has a field.

    Fields are what is wanted; `Backend.resolve` says what a device gives.
    """

    name: str = "reference"
    t3: Literal["auto", "fp32", "bf16", "int8", "int4"] = "fp32"  # auto: what suits the device
    flow: Literal["fp32", "bf16", "int8"] = "fp32"
    vocoder: Literal["fp32", "bf16", "int8"] = "fp32"
    tf32: bool = False  # GPUs may round the inputs of fp32 products to 10 bits
    slots: int = 0  # requests that share a T3 step of fixed shape, on GPUs; 0: any shape
    prompt_cache: bool = False  # the flow's state behind a voice's recording is computed once
    window_slots: int = 1  # requests that share a flow pass, of fixed shape; 0: any number of them
    window_sizes: tuple[int, ...] = ()  # tokens of each window, the last one repeated; (): whole
    vocoder_lookahead: int = 10  # mel frames that the vocoder holds back between windows
    trims_silence: bool = False  # at the beginning: somebody is waiting for the first word

    @classmethod
    def named(cls, name: str, *, stream: bool = False) -> Plan:
        """One of PLANS. `auto` has windows only where somebody listens while it is spoken."""
        if name not in PLANS:
            raise OptionError(f"there is no plan {name!r}; there are {', '.join(PLANS)}")
        plan = PLANS[name]
        return replace(PLANS["live"], name=name, t3=plan.t3) if stream and name == AUTO else plan

    def __str__(self) -> str:
        """On one line, as in the header X-Plan: the name, and the fields that decide the bytes."""
        switches = [
            name for name in ("tf32", "prompt_cache", "trims_silence") if getattr(self, name)
        ]
        sizes = "-".join(map(str, self.window_sizes))
        windows = [f"windows={sizes}", f"lookahead={self.vocoder_lookahead}"] if sizes else []
        precisions = [f"{part}={getattr(self, part)}" for part in ("t3", "flow", "vocoder")]
        slots = [f"slots={self.slots}"] if self.slots else []
        if self.window_slots > 1:
            slots.append(f"window_slots={self.window_slots}")
        return "; ".join([self.name, *precisions, *slots, *windows, *switches])


AUTO = "auto"  # the plan that suits the device
AUTO_DEVICE = "auto"  # the fastest device that is here
CPU = "cpu"  # the device that every machine has
DEVICES = "auto, cpu, cuda, cuda:1, mps, xpu, ..."  # whatever the backend can compute on
_DEVICE = re.compile(r"[a-z][a-z0-9_]*(:[0-9]{1,3})?")


def check_device(name: str) -> None:
    """Refuse what cannot be the name of a device; whether it is here, only the backend knows."""
    if not _DEVICE.fullmatch(name):
        raise OptionError(f"{name!r} is not the name of a device; give one of {DEVICES}")


N_SLOTS = 8  # of a T3 step on GPUs
N_WINDOW_SLOTS = 4  # of a flow pass over windows on GPUs
WINDOW_SIZES = (8, 12, 14, 17, 21, 25)  # soon something to hear, then ever more at once
PLANS = {
    "reference": Plan(),
    "balanced": Plan("balanced", t3="int8", flow="bf16", vocoder="bf16", tf32=True, slots=N_SLOTS),
}
PLANS["fast"] = replace(PLANS["balanced"], name="fast", t3="int4", prompt_cache=True)
PLANS["live"] = replace(
    PLANS["fast"],
    name="live",
    t3="int8",
    window_slots=N_WINDOW_SLOTS,
    window_sizes=WINDOW_SIZES,
    trims_silence=True,
)
PLANS["live-fast"] = replace(PLANS["live"], name="live-fast", t3="int4")
PLANS[AUTO] = replace(PLANS["balanced"], name=AUTO, t3="auto")


@dataclass(frozen=True, slots=True, eq=False)
class T3Prompt:
    """The half of a voice that T3 reads."""

    speaker: NDArray[np.float32]  # (256,) embedding of the speaker
    tokens: NDArray[np.int64]  # (P,) speech tokens of the recording


@dataclass(frozen=True, slots=True, eq=False)
class FlowPrompt:
    """The half of a voice that the flow reads."""

    tokens: NDArray[np.int64]  # (P,) speech tokens of the recording
    mel: NDArray[np.float32]  # (M, 80) its log-mel frames; M is 2 P, or 2 P + 1
    xvector: NDArray[np.float32]  # (192,) embedding of the speaker


@dataclass(frozen=True, slots=True, eq=False)
class Voice:
    """Who speaks. An argument that is handed along, never a state of the model."""

    t3: T3Prompt
    flow: FlowPrompt
    gain_db: float = 0.0  # of the samples: makes the voices of a model equally loud
    speed: float = 1.0  # its own: a request's speed is relative to it


@dataclass(frozen=True, slots=True, eq=False)
class AudioChunk:
    """A piece of sound, mono."""

    samples: NDArray[np.float32]  # (N,), between -1 and 1
    rate_hz: int = SAMPLES_PER_SECOND
    is_pause: bool = False  # silence between two parts of a text, which cost no work


@dataclass(frozen=True, slots=True)
class Word:
    """A word that was said, and when in the sound."""

    text: str
    start_s: float
    end_s: float


@dataclass(frozen=True, slots=True)
class Timings:
    """Where the time of one utterance went; the parts add up to the whole."""

    text_ms: float
    tokens_ms: float
    mel_ms: float
    samples_ms: float
    watermark_ms: float

    @property
    def total_ms(self) -> float:
        return self.text_ms + self.tokens_ms + self.mel_ms + self.samples_ms + self.watermark_ms
