"""A loaded model, taken apart: with one part replaced, or to see what it holds."""

from __future__ import annotations

from dataclasses import replace

from nightingale.backends.torch.decoder import WholeDecoder, WindowedDecoder, make_decoder
from nightingale.backends.torch.engine import TorchTokenEngine
from nightingale.backends.torch.flow.model import Flow
from nightingale.backends.torch.t3.model import T3
from nightingale.backends.torch.vocoder.model import Vocoder
from nightingale.core import Plan
from nightingale.loader import Components
from nightingale.measure.stages import torch_stages
from nightingale.pipeline import Nightingale


def rebuilt(
    components: Components,
    *,
    t3: T3 | None = None,
    flow: Flow | None = None,
    vocoder: Vocoder | None = None,
    plan: Plan | None = None,
) -> Components:
    now, plan = torch_stages(components), plan or components.plan
    decoder = make_decoder(
        flow or now.flow,
        vocoder or now.vocoder,
        plan,
        drops_last=components.spec.drops_last_token,
    )
    loaded = replace(
        components.loaded, token_engine=TorchTokenEngine(t3 or now.t3), wave_decoder=decoder
    )
    resolved = replace(components.resolved, plan=plan)
    return replace(components, resolved=resolved, loaded=loaded)


def n_cached_voices(tts: Nightingale) -> int:
    """Voices that a model has computed something of: once in T3, once in the flow."""
    engine, decoder = tts.components.loaded.token_engine, tts.components.loaded.wave_decoder
    assert isinstance(engine, TorchTokenEngine)
    assert isinstance(decoder, WholeDecoder | WindowedDecoder)
    return len(engine._prefixes) + len(decoder._prompts or ())
