"""How many floating-point operations a stage needs, counted on a twin that has no memory.

The twin is the plain one, so a plan is judged by the work, not by how it goes about it.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from nightingale.backends.torch.flow.model import Flow, FlowConfig
from nightingale.backends.torch.vocoder.model import Vocoder, VocoderConfig
from nightingale.core import FRAMES_PER_TOKEN
from nightingale.nn.meta_init import meta_init


def flow_flops(config: FlowConfig, n_tokens: int, n_prompt: int) -> int:
    """To render tokens behind those of a voice: the encoder once, the estimator every step."""
    schedule, n_mel = config.schedule, config.estimator.n_mel
    n_frames = FRAMES_PER_TOKEN * (n_tokens + n_prompt)
    with meta_init():
        flow = Flow(config)
        tokens = torch.empty(1, n_tokens + n_prompt, config.encoder.d_model)
        mel, speaker = torch.empty(1, n_frames, n_mel), torch.empty(1, n_mel)
        shifts = torch.empty(config.estimator.n_mid_blocks + 2, config.estimator.d_model)
        context = flow.estimator.context(mel, speaker, mel, guided=schedule.guidance > 0)
        once = count(lambda: flow.encoder(tokens))
        each = count(lambda: flow.estimator(mel, context, shifts))
    return once + schedule.n_steps * each


def vocoder_flops(config: VocoderConfig, n_frames: int) -> int:
    """To turn so many frames into samples."""
    with meta_init():
        vocoder = Vocoder(config)
        mel = torch.empty(1, config.n_mels, n_frames)
        source = torch.empty(1, *config.source_shape(n_frames))
        return count(lambda: vocoder.f0_predictor(mel)) + count(
            lambda: vocoder.synthesize(mel, source)
        )


def count(run: Callable[[], Tensor]) -> int:
    """Operations in products, convolutions and attention."""
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        run()
    return counter.get_total_flops()
