"""What clients send, in the dialects that they speak. Fields that we do not know are ignored.

Defaults and bounds of what changes the sound are `core.Options`', which the worker holds; here a
missing value stays missing.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import AliasChoices, BaseModel, ConfigDict, Field

from nightingale.audio.encode import FORMATS
from nightingale.errors import OptionError

_FORMAT_ALIASES = {"ogg": "opus", "ulaw": "mulaw", "g711_ulaw": "mulaw", "g711_alaw": "alaw"}
_WITH_RATE = re.compile(r"(?P<format>[a-z0-9_]+?)_(?P<rate>\d{4,6})")


def _also(*names: str) -> Any:
    return Field(default=None, validation_alias=AliasChoices(*names))


class PronunciationEntry(BaseModel):
    """A term, and what is said for it."""

    term: Annotated[str, Field(min_length=1, max_length=200)]
    replacement: Annotated[str, Field(min_length=1, max_length=200)]
    language: Annotated[str | None, Field(max_length=32)] = None
    voice: str | None = None


class Sampling(BaseModel):
    """The fields of `core.Options`, all of them optional."""

    model_config = ConfigDict(populate_by_name=True)

    language: Annotated[str | None, Field(max_length=32)] = _also(
        "language", "language_id", "lang_code"
    )
    normalization: Annotated[str | None, Field(max_length=32)] = _also(
        "normalization", "apply_text_normalization"
    )
    markup: Annotated[str | None, Field(max_length=8)] = None
    pronunciations: Annotated[list[PronunciationEntry] | None, Field(max_length=1000)] = None
    speed: float | None = _also("speed", "speed_factor")
    seed: int | None = None  # below zero: a new one, reported in X-Seed
    temperature: float | None = None
    exaggeration: float | None = None
    cfg_weight: float | None = None
    repetition_penalty: float | None = None
    min_p: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    max_tokens: int | None = None
    sentence_pause_ms: int | None = None
    item_pause_ms: int | None = None
    paragraph_pause_ms: int | None = None
    heading_pause_ms: int | None = None

    def options(self) -> dict[str, Any]:
        """Those that were given."""
        given = {name: getattr(self, name) for name in Sampling.model_fields}
        return {name: value for name, value in given.items() if value is not None}


class VoiceId(BaseModel):
    """A voice, as newer OpenAI clients name it."""

    id: str


class SpeechBody(Sampling):
    """`POST /v1/audio/speech`: OpenAI's fields, and ours."""

    input: str = Field(validation_alias=AliasChoices("input", "text"))
    model: str = ""
    voice: str | VoiceId | None = None
    response_format: str = "mp3"
    sample_rate: int | None = None
    stream_format: Literal["audio", "sse"] = "audio"
    stream: bool = True  # False: one body with its true length
    timestamps: bool = Field(
        default=False, validation_alias=AliasChoices("timestamps", "return_timestamps")
    )
    prebuffer: bool = True  # False: each chunk at once, for players that buffer by themselves

    @property
    def voice_name(self) -> str | None:
        return self.voice.id if isinstance(self.voice, VoiceId) else self.voice


class NormalizeBody(BaseModel):
    """`POST /v1/audio/normalize`."""

    input: str = Field(validation_alias=AliasChoices("input", "text"))
    language: Annotated[str, Field(max_length=32)] = "en"
    normalization: Annotated[str, Field(max_length=32)] = "auto"
    markup: Literal["auto", "off"] = "auto"
    voice: str | None = None


class StartMessage(Sampling):
    """What begins an utterance on a WebSocket."""

    model: str = ""
    voice: str | None = None
    response_format: str = "pcm"
    sample_rate: int | None = None
    prebuffer: bool = True
    progress: bool = False  # send `buffering` while sound is held back


class ChatterboxBody(Sampling):
    """`POST /tts`: what SillyTavern and others send to a Chatterbox server."""

    text: str
    voice_mode: str = "predefined"
    predefined_voice_id: str | None = None
    reference_audio_filename: str | None = None
    output_format: str = "wav"
    stream: bool = False

    @property
    def voice_name(self) -> str | None:
        is_clone = self.voice_mode == "clone"
        return self.reference_audio_filename if is_clone else self.predefined_voice_id


def parse_format(name: str, rate_hz: int | None) -> tuple[str, int | None]:
    """Also `ulaw_8000`, `pcm_16000` and other names that people use."""
    name = name.lower()
    if name not in FORMATS and name not in _FORMAT_ALIASES:
        found = _WITH_RATE.fullmatch(name)
        if found is not None:
            name, rate_hz = found["format"], rate_hz or int(found["rate"])
    name = _FORMAT_ALIASES.get(name, name)
    if name not in FORMATS:
        raise OptionError(f"there is no response_format {name!r}; there are {', '.join(FORMATS)}")
    return name, rate_hz
