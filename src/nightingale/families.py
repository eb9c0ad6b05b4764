"""The five model families and the quirks of each, in one table."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from nightingale.core import Family, Options

Decoder = Literal["standard", "meanflow"]
# Of Multilingual: as upstream's package writes text, in small letters and with a capital first; or
# as Multilingual V3 and the packs were trained, according to their hosted demo and two ports.
TextForm = Literal["upstream", "full_case"]


@dataclass(frozen=True, slots=True)
class FamilySpec:
    """What is special about one family. Sizes of networks are in their own configs."""

    tokenizer: Literal["english", "multilingual", "gpt2", "fledgling"] = "english"
    text_form: TextForm = "upstream"
    codec: Literal["s3", "fledgling"] = "s3"  # whose speech tokens it speaks
    decoder: Decoder = "standard"  # that it was released with
    options: Options = field(default_factory=Options)
    is_single: bool = False  # it knows single sentences, and nothing longer
    prompt_s: int = 6  # seconds that T3 reads of a voice's recording
    min_prompt_s: float = 1.0
    prompt_lufs: float | None = None  # loudness that recordings are brought to, as upstream does
    drops_last_token: bool = False  # the sound of the last speech token is an artefact
    trailing_tokens: tuple[int, ...] = ()  # speech tokens behind the last one; these are silent


_GPT2 = FamilySpec(
    tokenizer="gpt2",
    decoder="meanflow",
    options=Options(exaggeration=0.0, cfg_weight=0.0, min_p=0.0, top_p=0.95, top_k=1000),
    prompt_s=15,
    min_prompt_s=5.0,
    prompt_lufs=-27.0,
    trailing_tokens=(4299, 4299, 4299),
)

FAMILIES: dict[Family, FamilySpec] = {
    "english": FamilySpec(),
    "multilingual": FamilySpec(tokenizer="multilingual", drops_last_token=True),
    "turbo": _GPT2,
    "nano": _GPT2,
    "fledgling": FamilySpec(tokenizer="fledgling", codec="fledgling", is_single=True),
}
