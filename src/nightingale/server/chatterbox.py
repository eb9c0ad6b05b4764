"""The routes of a Chatterbox server, so that SillyTavern's preset for it works as it is."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from nightingale.server.context import ServerContext, SpeechRequest, check_format
from nightingale.server.keys import Key
from nightingale.server.models_and_voices import add_voice, admitted
from nightingale.server.response import StreamingSpeechResponse
from nightingale.server.schemas import ChatterboxBody
from nightingale.server.uploads import Upload, VoiceForm
from nightingale.server.voices import DEFAULT


def routes(context: ServerContext) -> APIRouter:
    router = APIRouter(tags=["Chatterbox"])

    def reply(
        body: ChatterboxBody, request: Request, *, is_streamed: bool
    ) -> StreamingSpeechResponse:
        format_, rate_hz = check_format(body.output_format, None)
        wanted = SpeechRequest(
            job=context.worker_request(body.text, body.voice_name, body, request.state.key),
            format=format_,
            rate_hz=rate_hz,
            is_streamed=is_streamed,
            request_id=request.state.request_id,
            key=request.state.key,
            voice_name=body.voice_name,
        )
        return StreamingSpeechResponse(context, wanted)

    @router.post("/tts", response_class=Response)
    async def tts(body: ChatterboxBody, request: Request) -> StreamingSpeechResponse:
        """Generate speech: one body with its length, or a stream if `stream` is true."""
        return reply(body, request, is_streamed=body.stream)

    @router.get("/tts-stream", response_class=Response)
    async def tts_stream(
        body: Annotated[ChatterboxBody, Query()], request: Request
    ) -> StreamingSpeechResponse:
        """Generate speech by GET, for an HTML audio element; always streamed."""
        return reply(body, request, is_streamed=True)

    @router.get("/get_predefined_voices")
    async def predefined() -> list[dict[str, str]]:
        """List the voices that come with the model."""
        names = {DEFAULT: "Nightingale"} | {n: n.capitalize() for n in context.voices.built_in()}
        return [{"display_name": n, "filename": i, "voice_id": i} for i, n in names.items()]

    @router.get("/get_reference_files")
    async def references(request: Request) -> list[str]:
        """List the cloned voices that this API key may use."""
        return context.voices.cloned(request.state.key)

    @router.post("/upload_reference")
    async def upload(request: Request) -> dict[str, Any]:
        """Clones a voice from each recording, named after its file."""
        key: Key = request.state.key
        with admitted(context, key):
            for file, recording in (await Upload.read(request)).files("files"):
                name = file.rpartition(".")[0].lower().replace(" ", "-")
                await add_voice(context, request, VoiceForm(voice_name=name[:64]), recording)
        names = context.voices.cloned(key)
        return {"message": "ok", "uploaded_files": names, "all_reference_files": names}

    @router.get("/api/model-info")
    async def model_info() -> dict[str, Any]:
        """Describe the loaded model."""
        hello = context.dispatcher.hello
        is_up = context.dispatcher.supervisor.pid is not None
        loaded = {"loaded": is_up, "type": hello.get("model"), "class_name": hello.get("family")}
        return {**loaded, "sample_rate": 24_000, "languages": hello.get("languages")}

    return router
