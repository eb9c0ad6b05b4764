"""Lists of models and voices; cloning and deleting voices."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, File, Form, UploadFile

from nightingale.server.faults import Fault
from nightingale.server.front import Front
from nightingale.server.voices import DEFAULT, OPENAI

OPENAI_MODELS = ("tts-1", "tts-1-hd", "gpt-4o-mini-tts")
MAX_RECORDING = 25 * 2**20


def check_model(front: Front, name: str) -> None:
    """One model is loaded; asking for another one is an error rather than a surprise."""
    if name and name.lower() not in model_names(front):
        known = ", ".join(model_names(front))
        raise Fault(
            404, "model_not_found", f"the model {name!r} is not loaded; available: {known}",
            param="model",
        )  # fmt: skip


def model_names(front: Front) -> list[str]:
    """The one that is loaded, and the names that mean it."""
    hello = front.dispatcher.hello
    own, family = hello.get("model", ""), hello.get("family", "")
    names = [own, family, "nightingale", "chatterbox", f"chatterbox-{family}"]
    hub = ["resemble-ai/chatterbox", f"resemble-ai/chatterbox-{family}"]
    return list(dict.fromkeys(name for name in (*names, *OPENAI_MODELS, *hub) if name))


def routes(front: Front) -> APIRouter:
    router = APIRouter(tags=["models and voices"])

    def described(name: str) -> dict[str, Any]:
        hello = front.dispatcher.hello
        told = {key: hello.get(key) for key in ("plan", "decoder", "languages")}
        root = {"root": hello.get("model"), "family": hello.get("family"), **told}
        return {"id": name, "object": "model", "created": 0, "owned_by": "nightingale", **root}

    @router.get("/v1/models")
    @router.get("/models", include_in_schema=False)
    @router.get("/v1/audio/models")
    @router.get("/audio/models", include_in_schema=False)
    async def models() -> dict[str, Any]:
        """List the loaded model under each name that clients use; `root` is its own name."""
        listed = [described(name) for name in model_names(front)]
        return {"object": "list", "data": listed, "models": listed}

    @router.get("/v1/models/{name:path}")
    async def model(name: str) -> dict[str, Any]:
        """Describe the loaded model by one of these names."""
        check_model(front, name)
        return described(name)

    @router.get("/v1/audio/voices")
    @router.get("/audio/voices", include_in_schema=False)
    @router.get("/v1/voices", include_in_schema=False)
    @router.get("/voices", include_in_schema=False)
    async def voices() -> dict[str, Any]:
        """List voices. OpenAI's voice names are aliases of the default voice."""
        names = front.voices.names()
        aliases = [name for name in OPENAI if name not in names]
        objects = [{"id": name, "name": name, "object": "voice"} for name in (*names, *aliases)]
        return {"status": "ok", "voices": [*names, *aliases], "data": objects, "default": DEFAULT}

    @router.post("/v1/audio/voices", status_code=201)
    @router.post("/audio/voices", status_code=201, include_in_schema=False)
    @router.post("/v1/voices", status_code=201, include_in_schema=False)
    @router.post("/voices", status_code=201, include_in_schema=False)
    async def make(
        voice_name: Annotated[str, Form(max_length=64)],
        voice_file: Annotated[UploadFile, File()],
        language: Annotated[str | None, Form(max_length=32)] = None,
        consent: Annotated[str | None, Form(max_length=500)] = None,
        force: Annotated[bool, Form()] = False,
        keep_loudness: Annotated[bool, Form()] = False,
    ) -> dict[str, Any]:
        """Clone a voice, with permission. `force` accepts a recording that is too short or no
        speech; `keep_loudness` leaves its level as it is."""
        options = {"force": force, "keep_loudness": keep_loudness}
        return await add_voice(front, voice_name, voice_file, language, consent, **options)

    @router.delete("/v1/audio/voices/{name}")
    @router.delete("/voices/{name}", include_in_schema=False)
    @router.delete("/v1/voices/{name}", include_in_schema=False)
    async def remove(name: str) -> dict[str, Any]:
        """Delete a voice."""
        front.voices.folder.remove(name)
        return {"id": name, "object": "voice", "deleted": True}

    return router


async def add_voice(
    front: Front,
    name: str,
    recording: UploadFile,
    language: str | None = None,
    consent: str | None = None,
    **options: bool,
) -> dict[str, Any]:
    """Clone a voice and save it under that name."""
    name = name.strip().lower()
    if name == DEFAULT:
        raise Fault(400, "voice_name", f"{name!r} is the default voice; choose another name")
    front.voices.folder.check_free(name)
    data = await recording.read(MAX_RECORDING + 1)
    if len(data) > MAX_RECORDING:
        raise Fault(413, "too_large", f"a recording may have at most {MAX_RECORDING >> 20} MB")
    cloned = await front.dispatcher.clone(data, language, consent, **options)
    front.voices.folder.put(name, cloned.voice_file)
    summary = f'Voice "{name}" saved: {cloned.summary}. Use it as "voice": "{name}"'
    found = {"summary": summary, "warnings": list(cloned.warnings)}
    return {"id": name, "name": name, "object": "voice", **found}
