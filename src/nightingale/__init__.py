"""Nightingale: streaming text to speech for the Chatterbox family.

The public names, imported only when they are touched: `import nightingale` never imports torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_HOMES = {
    "AsyncSpeechStream": "nightingale.async_stream",
    "Audio": "nightingale.audio.clip",
    "AudioChunk": "nightingale.core",
    "Checkpoint": "nightingale.speech",
    "Nightingale": "nightingale.pipeline",
    "NightingaleError": "nightingale.errors",
    "Options": "nightingale.core",
    "Plan": "nightingale.core",
    "SpeechStream": "nightingale.speech",
    "Voice": "nightingale.core",
    "VoiceLibrary": "nightingale.voice.library",
    "Word": "nightingale.core",
    "encode": "nightingale.audio.encode",
}

__all__ = [
    "AsyncSpeechStream", "Audio", "AudioChunk", "Checkpoint", "Nightingale", "NightingaleError",
    "Options", "Plan", "SpeechStream", "Voice", "VoiceLibrary", "Word", "__version__", "encode",
]  # fmt: skip

if TYPE_CHECKING:
    from nightingale.async_stream import AsyncSpeechStream
    from nightingale.audio.clip import Audio
    from nightingale.audio.encode import encode
    from nightingale.core import AudioChunk, Options, Plan, Voice, Word
    from nightingale.errors import NightingaleError
    from nightingale.pipeline import Nightingale
    from nightingale.speech import Checkpoint, SpeechStream
    from nightingale.voice.library import VoiceLibrary


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'nightingale' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
