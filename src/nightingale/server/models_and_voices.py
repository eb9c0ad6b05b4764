"""Lists of models and voices; cloning and deleting voices."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from fastapi import APIRouter, Request

from nightingale.errors import BusyError, RequestError, WorkerError
from nightingale.server.api_errors import APIError
from nightingale.server.context import ServerContext
from nightingale.server.keys import Key
from nightingale.server.uploads import GONE, Upload, VoiceForm, while_connected
from nightingale.server.voices import DEFAULT, OPENAI, VoiceFile

log = logging.getLogger("nightingale.voices")

OPENAI_MODELS = ("tts-1", "tts-1-hd", "gpt-4o-mini-tts")
CLONE_CHARACTERS = 500  # that a clone counts as, of a key's characters per minute
_UPLOAD: dict[str, Any] = {  # for the OpenAPI description: the body is read by `uploads`
    "requestBody": {
        "required": True,
        "content": {"multipart/form-data": {"schema": VoiceForm.upload_schema()}},
    }
}


def check_model(context: ServerContext, name: str) -> None:
    """One model is loaded; asking for another one is an error rather than a surprise."""
    if name and name.lower() not in model_names(context):
        known = ", ".join(model_names(context))
        raise APIError(
            404, "model_not_found", f"the model {name!r} is not loaded; available: {known}",
            param="model",
        )  # fmt: skip


def model_names(context: ServerContext) -> list[str]:
    """The one that is loaded, and the names that mean it."""
    hello = context.dispatcher.hello
    own, family = hello.get("model", ""), hello.get("family", "")
    names = [own, family, "nightingale", "chatterbox", f"chatterbox-{family}"]
    hub = ["resemble-ai/chatterbox", f"resemble-ai/chatterbox-{family}"]
    return list(dict.fromkeys(name for name in (*names, *OPENAI_MODELS, *hub) if name))


def routes(context: ServerContext) -> APIRouter:
    router = APIRouter(tags=["models and voices"])

    def described(name: str) -> dict[str, Any]:
        hello = context.dispatcher.hello
        capabilities = {key: hello.get(key) for key in ("plan", "decoder", "languages")}
        root = {"root": hello.get("model"), "family": hello.get("family"), **capabilities}
        return {"id": name, "object": "model", "created": 0, "owned_by": "nightingale", **root}

    @router.get("/v1/models")
    @router.get("/models", include_in_schema=False)
    @router.get("/v1/audio/models")
    @router.get("/audio/models", include_in_schema=False)
    async def models() -> dict[str, Any]:
        """List the loaded model under each name that clients use; `root` is its own name."""
        listed = [described(name) for name in model_names(context)]
        return {"object": "list", "data": listed, "models": listed}

    @router.get("/v1/models/{name:path}")
    async def model(name: str) -> dict[str, Any]:
        """Describe the loaded model by one of these names."""
        check_model(context, name)
        return described(name)

    @router.get("/v1/audio/voices")
    @router.get("/audio/voices", include_in_schema=False)
    @router.get("/v1/voices", include_in_schema=False)
    @router.get("/voices", include_in_schema=False)
    async def voices(request: Request) -> dict[str, Any]:
        """List the voices that this API key may use. OpenAI's voice names are aliases of the
        default voice."""
        names = context.voices.names(request.state.key)
        aliases = [name for name in OPENAI if name not in names]
        objects = [{"id": name, "name": name, "object": "voice"} for name in (*names, *aliases)]
        return {"status": "ok", "voices": [*names, *aliases], "data": objects, "default": DEFAULT}

    @router.post("/v1/audio/voices", status_code=201, openapi_extra=_UPLOAD)
    @router.post("/audio/voices", status_code=201, include_in_schema=False)
    @router.post("/v1/voices", status_code=201, include_in_schema=False)
    @router.post("/voices", status_code=201, include_in_schema=False)
    async def make(request: Request) -> dict[str, Any]:
        """Clone a voice, with permission. `force` accepts a recording that is too short or no
        speech; `keep_loudness` leaves its level as it is."""
        with admitted(context, request.state.key):
            upload = await Upload.read(request)
            form, (_, recording) = upload.form(), upload.files("voice_file")[0]
            return await add_voice(context, request, form, recording)

    @router.delete("/v1/audio/voices/{name}")
    @router.delete("/voices/{name}", include_in_schema=False)
    @router.delete("/v1/voices/{name}", include_in_schema=False)
    async def remove(name: str, request: Request) -> dict[str, Any]:
        """Delete a voice that belongs to this API key; nothing of it is kept in memory."""
        key: Key = request.state.key
        with storage():
            removed = await asyncio.to_thread(context.voices.remove, name, key)
        context.dispatcher.forget(removed.digest)
        audit(request, "voice deleted", name, removed)
        return {"id": name, "object": "voice", "deleted": True}

    return router


@contextmanager
def admitted(context: ServerContext, key: Key) -> Iterator[None]:
    """One cloning request, from before its body is read: within limits, and counted."""
    ending = "failed"
    try:
        with context.cloner.admit(key), key.turn():
            yield
        ending = "created"
    except BusyError:
        ending = "rejected"
        raise
    except (RequestError, APIError) as error:
        status = APIError.of(error).status
        ending = "gone" if status == GONE else "refused" if status < 500 else "failed"
        raise
    finally:
        context.metrics.clones.labels(ending).inc()


async def add_voice(
    context: ServerContext, request: Request, form: VoiceForm, recording: bytes
) -> dict[str, Any]:
    """Clone a voice and save it under that name; a client that hangs up cancels it."""
    key: Key = request.state.key
    name = form.voice_name.strip().lower()
    context.voices.check_free(name, key)
    n_spent = key.spend(min(CLONE_CHARACTERS, key.max_characters or CLONE_CHARACTERS))
    how = {"force": form.force, "keep_loudness": form.keep_loudness, "speed": form.speed}
    model = context.dispatcher.hello.get("model")
    work = context.cloner.clone(recording, model, form.language, form.consent, **how)
    try:
        cloned = await while_connected(request, work)
    except (BusyError, WorkerError):  # not the recording's fault
        key.refund(n_spent)
        raise
    with storage():
        stored = await asyncio.to_thread(context.voices.put, name, cloned.voice_file, key)
    audit(request, "voice created", name, stored)
    summary = f'Voice "{name}" saved: {cloned.summary}. Use it as "voice": "{name}"'
    found = {"summary": summary, "warnings": list(cloned.warnings)}
    return {"id": name, "name": name, "object": "voice", **found}


@contextmanager
def storage() -> Iterator[None]:
    """A disk that is full or cannot be written is not the client's fault, and trying again does
    not help."""
    try:
        yield
    except OSError as error:
        log.error("voice storage failed", extra={"reason": error.strerror})
        raise APIError(
            507,
            "storage_failed",
            f"the server cannot store voices now ({error.strerror}); tell its operator",
        ) from error


def audit(request: Request, event: str, name: str, voice: VoiceFile) -> None:
    """Who created or deleted which voice; never what it says or whose it is."""
    key: Key = request.state.key
    fields = {"request": request.state.request_id, "key": key.name, "voice": name[:100]}
    log.info(event, extra={**fields, "sha256": (voice.digest or "")[:16]})
