"""Every model that can be spoken with: which files it is made of, and where they lie.

The released ones of the Chatterbox family lie on the hub; a small one of our own comes along.

Pure data. Knows nothing of the network, the disk or torch. Commits and SHA-256 sums were published
by third parties; nobody here has held them against the hub yet. A file without a sum is checked
against the one that the hub states. A revision called "main" may change under our feet: unpinned.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Literal

from nightingale.core import Family
from nightingale.errors import OptionError
from nightingale.families import FAMILIES, FamilySpec, TextForm

Role = Literal[
    "t3",
    "s3gen",
    "voice_encoder",
    "voice",  # the voice that a model brings along
    "cangjie",  # how Chinese characters are spelled for the tokenizer
    "tokenizer",  # one file, or the five of a GPT-2 tokenizer:
    "tokenizer.vocab",
    "tokenizer.merges",
    "tokenizer.added_tokens",
    "tokenizer.config",
    "tokenizer.special_tokens",
]


@dataclass(frozen=True, slots=True)
class RemoteFile:
    """One file on the hub, and what it is for."""

    role: Role
    repo: str
    revision: str
    path: str
    sha256: str | None = None

    @property
    def is_pinned(self) -> bool:
        """A commit stays what it is; a branch moves."""
        return re.fullmatch(r"[0-9a-f]{40}", self.revision) is not None


@dataclass(frozen=True, slots=True)
class Model:
    """One released model: all that is needed to speak with it."""

    name: str
    family: Family
    description: str
    languages: tuple[str, ...]
    n_parameters: int  # of all parts together
    parts: tuple[RemoteFile, ...]
    text_form: TextForm = "upstream"  # versions of a family differ in it

    @property
    def spec(self) -> FamilySpec:
        """What is special about its family, with its own form of text."""
        return replace(FAMILIES[self.family], text_form=self.text_form)

    @property
    def n_files(self) -> int:
        return len(self.parts)

    @property
    def n_bytes(self) -> int:
        """What a pull weighs, to within a percent: every release is fp32."""
        return 4 * self.n_parameters

    @property
    def is_pinned(self) -> bool:
        return all(part.is_pinned for part in self.parts)

    @property
    def is_bundled(self) -> bool:
        """It comes with the package: no hub has it, and nothing is to be pulled."""
        return self.parts[0].repo == _PACKAGE[0]


_PACKAGE = ("", "")
_BASE = ("ResembleAI/chatterbox", "5bb1f6ee58e50c3b8d408bc82a6d3740c2db6e18")
_TURBO = ("ResembleAI/chatterbox-turbo", "749d1c1a46eb10492095d68fbcf55691ccf137cd")
_NANO = ("ResembleAI/chatterbox-nano", "71ccd1d0081b430592cea481f4307e764e07bc64")

_N_VOICE_ENCODER = 1_423_618
_N_S3GEN = 263_933_767
_N_S3GEN_MEANFLOW = 266_030_919
_N_T3_ENGLISH = 532_405_248
_N_T3_MULTILINGUAL = 535_989_248
_N_T3_TURBO = 478_862_755
_N_T3_NANO = 217_471_139

# fmt: off
_TWENTY_THREE = (
    "ar", "da", "de", "el", "en", "es", "fi", "fr", "he", "hi", "it", "ja",
    "ko", "ms", "nl", "no", "pl", "pt", "ru", "sv", "sw", "tr", "zh",
)
# fmt: on

_VOICE = RemoteFile(
    "voice",
    *_BASE,
    "conds.pt",
    "6552d70568833628ba019c6b03459e77fe71ca197d5c560cef9411bee9d87f4e",
)
_VOICE_ENCODER = RemoteFile(
    "voice_encoder",
    *_BASE,
    "ve.pt",
    "4b16d836bc598509860f6fa068165a8bb5e9ac84f05582dfcf278a5a372879f1",
)
_CANGJIE = RemoteFile(
    "cangjie",
    *_BASE,
    "Cangjie5_TC.json",
    "7073fd9de919443ae88e0bd2449917a65fe54898a4413ed1edcc4b67f28bce8c",
)
_GRAPHEMES = "grapheme_mtl_merged_expanded_v1.json"


def _english() -> Model:
    return Model(
        name="english",
        family="english",
        description="the first Chatterbox",
        languages=("en",),
        n_parameters=_N_T3_ENGLISH + _N_S3GEN + _N_VOICE_ENCODER,
        parts=(
            RemoteFile("t3", *_BASE, "t3_cfg.safetensors"),
            RemoteFile("s3gen", *_BASE, "s3gen.safetensors"),
            RemoteFile("voice_encoder", *_BASE, "ve.safetensors"),
            RemoteFile("tokenizer", *_BASE, "tokenizer.json"),
            _VOICE,
        ),
    )


def _multilingual(
    version: str, t3_sha256: str | None, description: str, text_form: TextForm = "upstream"
) -> Model:
    return Model(
        name=f"multilingual-{version}",
        family="multilingual",
        description=description,
        languages=_TWENTY_THREE,
        n_parameters=_N_T3_MULTILINGUAL + _N_S3GEN + _N_VOICE_ENCODER,
        parts=(
            RemoteFile("t3", *_BASE, f"t3_mtl23ls_{version}.safetensors", t3_sha256),
            RemoteFile(
                "s3gen",
                *_BASE,
                "s3gen.pt",
                "9b9ff07e60b20c136e2b1b3d7563a24604e8d2c4c267888d1ee929dd0151d2a3",
            ),
            _VOICE_ENCODER,
            RemoteFile(
                "tokenizer",
                *_BASE,
                _GRAPHEMES,
                "69632f47220a788a52ce2661d096453c5655e9bf25289d89a8d832c46ee07dbf",
            ),
            _CANGJIE,
            _VOICE,
        ),
        text_form=text_form,
    )


def _pack(tag: str, language: str, description: str) -> Model:
    """A Multilingual T3 trained further for one language; encoder and voice are the base's."""
    home = (f"ResembleAI/Chatterbox-Multilingual-{tag}", "main")
    return Model(
        name=f"multilingual-{tag}",
        family="multilingual",
        description=description,
        languages=(language,),
        n_parameters=_N_T3_MULTILINGUAL + _N_S3GEN + _N_VOICE_ENCODER,
        parts=(
            RemoteFile("t3", *home, f"t3_{tag.replace('-', '_')}.safetensors"),
            RemoteFile("s3gen", *home, "s3gen_v3.safetensors"),
            RemoteFile("tokenizer", *home, _GRAPHEMES),
            _VOICE_ENCODER,
            *((_CANGJIE,) if language == "zh" else ()),
            _VOICE,
        ),
        text_form="full_case",
    )


def _turbo_like(name: Family, home: tuple[str, str], n_t3: int, description: str) -> Model:
    return Model(
        name=name,
        family=name,
        description=description,
        languages=("en",),
        n_parameters=n_t3 + _N_S3GEN_MEANFLOW + _N_VOICE_ENCODER,
        parts=(
            RemoteFile("t3", *home, f"t3_{name}_v1.safetensors"),
            RemoteFile("s3gen", *home, "s3gen_meanflow.safetensors"),
            RemoteFile("voice_encoder", *home, "ve.safetensors"),
            RemoteFile("tokenizer.vocab", *home, "vocab.json"),
            RemoteFile("tokenizer.merges", *home, "merges.txt"),
            RemoteFile("tokenizer.added_tokens", *home, "added_tokens.json"),
            RemoteFile("tokenizer.config", *home, "tokenizer_config.json"),
            RemoteFile("tokenizer.special_tokens", *home, "special_tokens_map.json"),
            RemoteFile("voice", *home, "conds.pt"),
        ),
    )


def _fledgling() -> Model:
    return Model(
        name="fledgling",
        family="fledgling",
        description="small, for first words and for tests; comes with the package",
        languages=("en",),
        n_parameters=14_572_172,
        parts=(
            RemoteFile("t3", *_PACKAGE, "t3_cfg.safetensors"),
            RemoteFile("s3gen", *_PACKAGE, "s3gen.safetensors"),
            RemoteFile("voice_encoder", *_PACKAGE, "ve.safetensors"),
            RemoteFile("tokenizer", *_PACKAGE, "tokenizer.json"),
            RemoteFile("voice", *_PACKAGE, "conds.safetensors"),
        ),
    )


MODELS = (
    _english(),
    _multilingual("v2", None, "upstream's default"),
    _multilingual(
        "v3",
        "5abca8321ede76f8e61f1cc0d19aea6c946b28871017ce8726f8a69203f05953",
        "upstream's newest",
        text_form="full_case",
    ),
    _pack("zh-cmn", "zh", "Mandarin Chinese"),
    _pack("es-mx-latam", "es", "Spanish of Mexico and Latin America"),
    _pack("es-es", "es", "Spanish of Spain"),
    _pack("pt-br", "pt", "Portuguese of Brazil"),
    _pack("pt-pt", "pt", "Portuguese of Portugal"),
    _pack("hi", "hi", "Hindi"),
    _turbo_like("turbo", _TURBO, _N_T3_TURBO, "faster: two flow steps, no guidance"),
    _turbo_like("nano", _NANO, _N_T3_NANO, "the smallest"),
    _fledgling(),
)

# Upstream's code loads v2 by default, although its authors recommend v3: v2 it is.
ALIASES = {"multilingual": "multilingual-v2"}


_PREFERRED = ("multilingual-v3", "multilingual-v2", "turbo", "english", "nano")


def by_preference() -> list[Model]:
    """All models, those first that one would speak with when nobody chose."""
    rank = {name: place for place, name in enumerate(_PREFERRED)}
    return sorted(MODELS, key=lambda model: rank.get(model.name, len(rank) + model.is_bundled))


def find(name: str) -> Model:
    """The model of that name."""
    wanted = ALIASES.get(name, name)
    for model in MODELS:
        if model.name == wanted:
            return model
    known = ", ".join([model.name for model in MODELS] + sorted(ALIASES))
    raise OptionError(f"there is no model {name!r}; choose one of {known}")
