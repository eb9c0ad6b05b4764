"""The modules of a model that the torch backend loaded, for measuring each on its own."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from nightingale.backends.torch.decoder import TorchWaveDecoder, WholeDecoder, WindowedDecoder
from nightingale.backends.torch.engine import TorchTokenEngine
from nightingale.backends.torch.flow.model import Flow
from nightingale.backends.torch.t3.model import T3
from nightingale.backends.torch.vocoder.model import Vocoder
from nightingale.core import CPU
from nightingale.errors import OptionError
from nightingale.loader import Components
from nightingale.nn.device import choose


@dataclass(frozen=True, slots=True)
class TorchStages:
    """Weights, and nothing of any request."""

    t3: T3
    flow: Flow
    vocoder: Vocoder
    decoder: TorchWaveDecoder


def torch_device(components: Components) -> torch.device:
    """The same device by torch's name for it, where limits can be measured."""
    if components.backend == "mlx" and components.loaded.device != CPU:
        return choose().device  # of the same GPU
    return torch.device(components.loaded.device)


def torch_stages(components: Components) -> TorchStages:
    """Only modules that are, or stand for, those of the torch backend can be taken apart."""
    engine, decoder = components.loaded.token_engine, components.loaded.wave_decoder
    if not isinstance(engine, TorchTokenEngine) or not isinstance(
        decoder, WholeDecoder | WindowedDecoder
    ):
        raise OptionError(f"stages of the backend {components.backend} cannot be measured")
    return TorchStages(engine.t3, decoder.flow, decoder.vocoder, decoder)
