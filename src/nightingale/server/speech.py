"""`POST /v1/audio/speech`, as OpenAI has it, and what was said about one afterwards."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from nightingale.audio.encode import FORMATS
from nightingale.server.api_errors import APIError
from nightingale.server.context import ServerContext, SpeechRequest, check_format
from nightingale.server.fingerprint import Fingerprint, digest
from nightingale.server.models_and_voices import check_model
from nightingale.server.response import StreamingSpeechResponse
from nightingale.server.schemas import NormalizeBody, SpeechBody
from nightingale.text.detection import DETECT, detect_language
from nightingale.text.languages import LANGUAGES
from nightingale.text.markup import OFF
from nightingale.text.normalization import normalization_locale
from nightingale.text.pronunciation import select
from nightingale.text.readable import MAX_UNSPOKEN
from nightingale.text.spoken import spoken_parts

_SOUND: dict[str, Any] = {format_.content_type: {} for format_ in FORMATS.values()}
_FAILURES: dict[int | str, dict[str, Any]] = {
    400: {"description": "Invalid request; the message says what to change."},
    503: {"description": "The server is busy; Retry-After says when to try again."},
}


def routes(context: ServerContext) -> APIRouter:
    router = APIRouter(tags=["speech"])

    @router.post(
        "/v1/audio/speech",
        response_class=Response,
        responses={
            200: {"content": _SOUND, "description": "Audio, streamed while it is generated."},
            **_FAILURES,
        },
    )
    @router.post("/audio/speech", response_class=Response, include_in_schema=False)
    async def speech(body: SpeechBody, request: Request) -> StreamingSpeechResponse:
        """Generate speech. Audio is streamed while it is generated, unless `stream` is false."""
        check_model(context, body.model)
        format_, rate_hz = check_format(body.response_format, body.sample_rate)
        n_skip = _resume_offset(request, context.dispatcher.hello.get("fingerprint", {}))
        return StreamingSpeechResponse(
            context,
            SpeechRequest(
                job=context.worker_request(body.input, body.voice_name, body, request.state.key),
                format=format_,
                rate_hz=rate_hz,
                is_sse=body.stream_format == "sse",
                is_streamed=body.stream or body.stream_format == "sse",
                has_words=body.timestamps,
                is_prebuffered=body.prebuffer,
                request_id=request.state.request_id,
                key=request.state.key,
                voice_name=body.voice_name,
            ),
            n_skip,
        )

    _add_normalize(router, context)
    _add_recent(router, context)
    return router


def _resume_offset(request: Request, fingerprint: Fingerprint) -> int:
    """Bytes that the client has from another server, which must have been of the same kind."""
    offset = request.headers.get("x-resume-from")
    if offset is None:
        return 0
    if not offset.isascii() or not offset.isdigit() or len(offset) > 15:
        raise APIError(400, "invalid_request", "X-Resume-From must be a number of bytes")
    if request.headers.get("x-fingerprint") != digest(fingerprint):
        raise APIError(
            410,
            "model_changed",
            "X-Fingerprint is not this server's: it would give other bytes; ask for the whole "
            "text again, without X-Resume-From",
        )
    return int(offset)


def _add_normalize(router: APIRouter, context: ServerContext) -> None:
    @router.post("/v1/audio/normalize", responses=_FAILURES)
    async def normalize(body: NormalizeBody, request: Request) -> dict[str, Any]:
        """Show the text that will be spoken: figures, dates, units and abbreviations as words."""
        context.check_length(len(body.input))
        hello = context.dispatcher.hello
        is_single, language, found = bool(hello.get("is_single")), body.language, None
        if language == DETECT:
            spoken = hello.get("languages", LANGUAGES)
            found = await asyncio.to_thread(detect_language, body.input, spoken)
            language = found.code
        locale = normalization_locale(body.normalization, language)
        ignored: dict[str, None] = {}
        with request.state.key.quota(len(body.input)):
            said = select(context.pronunciations, language, body.voice)
            parts = await asyncio.to_thread(
                spoken_parts,
                body.input,
                language,
                body.normalization,
                said,
                markup=body.markup != OFF,
                is_single=is_single,
                on_ignored=lambda tag: ignored.update({tag: None}),
            )
        words = [word for part in parts for word in part.words()]
        changed = [word for word in words if word.written != word.spoken]
        return {
            "text": "\n".join(part.spoken for part in parts),
            "locale": locale,
            **(found.fields if found else {}),
            "changed": [{"written": word.written, "spoken": word.spoken} for word in changed],
            "ignored": list(ignored)[:MAX_UNSPOKEN],
        }


def _add_recent(router: APIRouter, context: ServerContext) -> None:
    """What can be asked about a request afterwards."""

    @router.get("/v1/requests/{request_id}")
    async def receipt(request_id: str, request: Request) -> dict[str, Any]:
        """How a recent request of this API key ended, with the length and SHA-256 of the audio
        that was sent."""
        found = context.recent.receipt(request.state.key.name, request_id)
        if found is None:
            raise APIError(404, "not_found", "there is no recent request with this id")
        return found

    @router.get(
        "/v1/requests/{request_id}/audio",
        response_class=Response,
        responses={
            200: {"content": _SOUND, "description": "The audio, from this byte on."},
            404: {"description": "No such request, or it is too long ago."},
            410: {"description": "The model or the voice has changed since."},
            416: {"description": "The audio has fewer bytes."},
            **_FAILURES,
        },
    )
    async def resume(
        request_id: str,
        request: Request,
        offset: Annotated[int, Query(alias="from", ge=0, le=2**48)] = 0,
    ) -> StreamingSpeechResponse:
        """Continue a response that broke off: its audio once more, without the first bytes."""
        fingerprint = context.dispatcher.hello.get("fingerprint")
        key = request.state.key
        wanted = context.recent.repeat(key.name, request_id, context.voices, fingerprint)
        again = replace(wanted, is_sse=False, request_id=request.state.request_id, key=key)
        return StreamingSpeechResponse(context, again, n_skip=offset)
