"""Small encoders with random weights: the true code path in milliseconds."""

from __future__ import annotations

from nightingale.voice.clone import Encoders
from nightingale.voice.speaker_encoder import SpeakerEncoder, SpeakerEncoderConfig
from nightingale.voice.speech_tokenizer import SpeechTokenizer, SpeechTokenizerConfig
from nightingale.voice.xvector import XVector, XVectorConfig
from tests.voice.random_weights import randomize

SMALL_TOKENIZER = SpeechTokenizerConfig(n_layers=2, d_model=128)
SMALL_SPEAKER = SpeakerEncoderConfig(d_hidden=48, n_layers=2)
SMALL_XVECTOR = XVectorConfig(n_planes=8, n_channels=32, growth=8)


def tiny_encoders(seed: int = 0) -> Encoders:
    parts = SpeechTokenizer(SMALL_TOKENIZER), SpeakerEncoder(SMALL_SPEAKER), XVector(SMALL_XVECTOR)
    for number, part in enumerate(parts):
        randomize(part, seed + number)
        part.requires_grad_(False)
    return Encoders(*parts)
