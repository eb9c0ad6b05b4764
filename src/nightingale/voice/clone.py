"""A recording becomes a voice. Three readers look at it, each at its own piece and its own 16 kHz.

    flow      the first 10 s; 16 kHz by the short sinc    mel, tokens, x-vector
    T3        the first 6 or 15 s; 16 kHz by soxr         prompt tokens
    T3        all of it; 16 kHz by soxr                   speaker

Whoever calls brings the encoders and the wave; nothing is loaded here.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from nightingale.audio import files
from nightingale.audio.loudness import at_loudness
from nightingale.audio.mel import SPEECH_HZ, flow_mel
from nightingale.audio.resample import resample
from nightingale.core import (
    FRAMES_PER_TOKEN,
    SAMPLES_PER_SECOND,
    TOKENS_PER_SECOND,
    Family,
    FlowPrompt,
    T3Prompt,
    Voice,
)
from nightingale.errors import AudioError
from nightingale.families import FAMILIES
from nightingale.nn.deterministic import one_thread
from nightingale.nn.device import HOST
from nightingale.voice.inspect import FLOW_SECONDS, check
from nightingale.voice.speaker_encoder import SpeakerEncoder
from nightingale.voice.speech_tokenizer import SpeechTokenizer
from nightingale.voice.xvector import XVector

Wave = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Encoders:
    """What is needed to make a voice, and never to speak with one."""

    tokenizer: SpeechTokenizer
    speaker: SpeakerEncoder
    xvector: XVector


def clone(wave: Wave, encoders: Encoders, family: Family) -> Voice:
    """(N,) at 24 kHz -> a voice for that family."""
    check(wave, family)
    lufs = FAMILIES[family].prompt_lufs
    if lufs is not None:
        wave = at_loudness(wave, SAMPLES_PER_SECOND, lufs)
    with one_thread():  # the same voice on every number of cores
        voice = Voice(_t3_prompt(wave, encoders, family), _flow_prompt(wave, encoders))
    for array in (voice.t3.speaker, voice.flow.mel, voice.flow.xvector):
        if not np.isfinite(array).all():
            raise AudioError("no voice could be made of this recording: try another one")
    return voice


def _t3_prompt(wave: Wave, encoders: Encoders, family: Family) -> T3Prompt:
    heard = torch.from_numpy(files.resample(wave, SAMPLES_PER_SECOND, SPEECH_HZ))
    seconds = FAMILIES[family].prompt_s
    beginning = _beside(encoders.tokenizer, heard[: seconds * SPEECH_HZ])
    tokens = encoders.tokenizer.encode(beginning, max_tokens=seconds * TOKENS_PER_SECOND)
    speaker = encoders.speaker.embed(_beside(encoders.speaker, heard))
    return T3Prompt(speaker.to(HOST).numpy(), tokens.to(HOST).numpy())


def _flow_prompt(wave: Wave, encoders: Encoders) -> FlowPrompt:
    beginning = torch.from_numpy(wave[: FLOW_SECONDS * SAMPLES_PER_SECOND])
    mel = flow_mel(beginning)
    heard = resample(beginning, SAMPLES_PER_SECOND, SPEECH_HZ)
    tokens = encoders.tokenizer.encode(_beside(encoders.tokenizer, heard))
    # A token without both of its frames goes; a frame without its token stays, as in training.
    tokens = tokens[: len(mel) // FRAMES_PER_TOKEN]
    xvector = encoders.xvector.embed(_beside(encoders.xvector, heard))
    arrays = (tokens.to(HOST), mel.contiguous(), xvector.to(HOST))
    return FlowPrompt(*(tensor.numpy() for tensor in arrays))


def _beside(module: nn.Module, wave: Tensor) -> Tensor:
    return wave.to(next(module.parameters()).device)
