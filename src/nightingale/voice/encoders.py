"""The three networks that make a voice, loaded from a model's files."""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

import torch
from torch import nn

from nightingale.core import CPU
from nightingale.voice import speaker_encoder, speech_tokenizer, xvector
from nightingale.voice.clone import Encoders
from nightingale.weights.config import sized
from nightingale.weights.load import load_into, read_config

M = TypeVar("M", bound=nn.Module)


def load_encoders(s3gen: Path, voice_encoder: Path, device: str = CPU) -> Encoders:
    """Two of them are in S3Gen's file."""
    config = read_config(s3gen)
    tokenizer = speech_tokenizer.SpeechTokenizer(
        sized(speech_tokenizer.SpeechTokenizerConfig(), config.get("tokenizer"))
    )
    load_into(tokenizer, s3gen, prefix="tokenizer.", dead=speech_tokenizer.DEAD_TENSORS)
    speaker = xvector.XVector(sized(xvector.XVectorConfig(), config.get("speaker_encoder")))
    load_into(speaker, s3gen, prefix="speaker_encoder.", dead=xvector.DEAD_TENSORS)
    who = speaker_encoder.SpeakerEncoder()
    load_into(who, voice_encoder, dead=speaker_encoder.DEAD_TENSORS)
    return Encoders(_placed(tokenizer, device), _placed(who, device), _placed(speaker, device))


def _placed(module: M, device: str) -> M:
    return module.eval().requires_grad_(False).to(device, torch.float32)
