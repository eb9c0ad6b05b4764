"""From files to a model that can speak: which files, which decoder, which backend."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import get_args

from nightingale import backends, device_check
from nightingale.audio.watermark import Watermarker
from nightingale.backends.base import Backend, LoadedModel, ModelFiles, ResolvedPlan
from nightingale.core import AUTO_DEVICE, CPU, Plan, Voice
from nightingale.errors import NotPulledError, OptionError, WeightsError
from nightingale.families import FAMILIES, Decoder, FamilySpec
from nightingale.text.tokenizer import (
    EnglishTokenizer,
    FledglingTokenizer,
    Gpt2Tokenizer,
    MultilingualTokenizer,
    TextTokenizer,
)
from nightingale.voice.library import from_release
from nightingale.weights import catalog
from nightingale.weights.catalog import Model, Role
from nightingale.weights.folder import find_in
from nightingale.weights.load import read_arrays
from nightingale.weights.manifest import locate

Files = dict[Role, Path]
REFERENCE = Plan()
PRONUNCIATIONS = "pronunciations.txt"  # beside the tokenizer of a model that reads phonemes
DEFAULT_BACKEND = backends.AUTO


@dataclass(frozen=True, slots=True)
class Components:
    """Everything that speaking needs; what cloning needs stays on disk until then."""

    model: Model
    files: Files
    decoder: Decoder
    resolved: ResolvedPlan
    tokenizer: TextTokenizer
    backend: str
    loaded: LoadedModel
    voice: Voice  # the model's own
    watermarker: Watermarker | None

    @property
    def plan(self) -> Plan:
        """What is really computed."""
        return self.resolved.plan

    @property
    def spec(self) -> FamilySpec:
        return self.model.spec


@dataclass(frozen=True, slots=True)
class LoadOptions:
    """How a model is wanted."""

    device: str = "auto"
    decoder: str | None = None  # None: the one that the model was released with
    watermark: bool = True
    plan: Plan = REFERENCE
    backend: str = DEFAULT_BACKEND
    threads: int | None = None


LOAD_DEFAULTS = LoadOptions()


def load_components(
    name: str | Path | None, home: Path, wanted: LoadOptions = LOAD_DEFAULTS
) -> Components:
    """Load a pulled model by its name, a folder of released files, or the best that is here."""
    backend, why = _backend(wanted, home)
    model, files = _find(name, home)
    decoder = pick_decoder(wanted.decoder, model)
    if decoder != FAMILIES[model.family].decoder:
        files = {**files, "s3gen": _other_decoder(decoder, model, files["s3gen"], name, home)}
    device, reason = _trusted_device(backend, wanted, home)
    reason = "; ".join(filter(None, (why, reason)))
    loaded = backend.load(
        ModelFiles(
            model.family, files["t3"], files["s3gen"], decoder, wanted.plan, device,
            wanted.threads, home,
        )
    )  # fmt: skip
    resolved = loaded.resolved or backend.resolve(wanted.plan, device)
    if reason:
        resolved = replace(resolved, reasons={**resolved.reasons, "device": reason})
    return Components(
        model=model,
        files=files,
        decoder=decoder,
        resolved=resolved,
        tokenizer=_tokenizer(model, files),
        backend=backend.name,
        loaded=loaded,
        voice=own_voice(files["voice"]),
        watermarker=Watermarker() if wanted.watermark else None,
    )


def _backend(wanted: LoadOptions, home: Path) -> tuple[Backend, str]:
    """The one that was asked for; or the best that can be trusted, and why it is not a better one.

    Devices have their names from torch: where one is asked for, `auto` is torch.
    """
    if wanted.backend != backends.AUTO:
        backend = backends.find(wanted.backend)
        available = backend.availability()
        if not available.is_available:
            raise OptionError(f"the backend {wanted.backend} cannot run here: {available.reason}")
        return backend, ""
    *better, last = backends.by_preference()
    reasons = []
    for name in better if wanted.device == AUTO_DEVICE else ():
        backend = backends.find(name)
        available = backend.availability()
        device = backend.resolve(wanted.plan, AUTO_DEVICE).device if available.is_available else ""
        fault = device_check.fault(name, device, available.facts, home) if device else ""
        if device and not fault:
            return backend, ""
        reasons.append(f"not {name}: {fault or available.reason}")
    return backends.find(last), "; ".join(reasons)


def _trusted_device(backend: Backend, wanted: LoadOptions, home: Path) -> tuple[str, str]:
    """The device to load on, and why it is not the one that `auto` would take."""
    if wanted.device != AUTO_DEVICE or backend.name not in device_check.TESTED:
        return wanted.device, ""
    device = backend.resolve(wanted.plan, AUTO_DEVICE).device
    if device == CPU:
        return AUTO_DEVICE, ""
    fault = device_check.fault(backend.name, device, backend.availability().facts, home)
    return (CPU, f"{device} failed the self-test: {fault}") if fault else (AUTO_DEVICE, "")


def own_voice(file: Path) -> Voice:
    """The one that a model brings along."""
    return from_release(read_arrays(file))


def pack_t3(name: str | Path | None, home: Path, plan: Plan) -> Path:
    """Pack the weights of a model's T3 once, so that the plan starts quickly from then on."""
    from nightingale.backends.torch.load import keep_packed_t3  # noqa: PLC0415

    model, files = _find(name, home)
    decoder = FAMILIES[model.family].decoder
    return keep_packed_t3(
        ModelFiles(model.family, files["t3"], files["s3gen"], decoder, plan, home=home)
    )


def _find(name: str | Path | None, home: Path) -> tuple[Model, Files]:
    if name is not None and Path(name).is_dir():
        return find_in(Path(name), home)
    if name is not None:
        model = catalog.find(str(name))
        return model, locate(model, home)
    for model in catalog.by_preference():
        try:
            return model, locate(model, home)
        except NotPulledError:
            continue
    raise NotPulledError(
        "no model is on this machine yet; get one with `nightingale pull multilingual`"
    )


def pick_decoder(wanted: str | None, model: Model) -> Decoder:
    """The one that was asked for, or the one that the model was released with."""
    for decoder in get_args(Decoder):
        if wanted == decoder:
            return decoder  # type: ignore[no-any-return]
    if wanted is not None:
        raise OptionError(f"there is no decoder {wanted!r}; there are standard and meanflow")
    return FAMILIES[model.family].decoder


def _other_decoder(
    decoder: Decoder, model: Model, s3gen: Path, name: str | Path | None, home: Path
) -> Path:
    """Released models share their speech tokens, so any one's decoder can be borrowed."""
    folder = Path(name) if name is not None and Path(name).is_dir() else None
    if folder or model.is_bundled:
        release = "s3gen_meanflow" if decoder == "meanflow" else "s3gen"
        file = (folder or s3gen.parent) / f"{release}.safetensors"
        if file.is_file():
            return file
        raise NotPulledError(f"the {decoder} decoder is {file}, which is not there")
    released = [lender for lender in catalog.by_preference() if not lender.is_bundled]
    lenders = [lender for lender in released if FAMILIES[lender.family].decoder == decoder]
    for lender in lenders:
        try:
            return locate(lender, home)["s3gen"]
        except WeightsError:
            continue
    names = " or ".join(f"`nightingale pull {lender.name}`" for lender in lenders[:2])
    raise NotPulledError(f"the {decoder} decoder is not on this machine; get it with {names}")


def _tokenizer(model: Model, files: Files) -> TextTokenizer:
    kind = model.spec.tokenizer
    if kind == "gpt2":
        return Gpt2Tokenizer(files["tokenizer.vocab"].parent)
    if kind == "multilingual":
        return MultilingualTokenizer(files["tokenizer"], files.get("cangjie"), model.spec.text_form)
    if kind == "fledgling":
        dictionary = files["tokenizer"].with_name(PRONUNCIATIONS)
        is_there = dictionary.is_file()
        reader = FledglingTokenizer(files["tokenizer"], dictionary if is_there else None)
        if reader.has_phonemes and not is_there:
            raise NotPulledError(f"{dictionary} is missing, and {files['tokenizer']} needs it")
        return reader
    return EnglishTokenizer(files["tokenizer"])
