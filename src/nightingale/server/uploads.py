"""Recordings that clients upload: read from a multipart body within bounds, in memory.

Never on disk: the body is at most a few dozen megabytes, and only as many are read at once as the
cloning queue admits.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, TypeVar

from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.datastructures import UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import Request

from nightingale.core import MAX_SPEED, MIN_SPEED
from nightingale.server.api_errors import APIError

MAX_RECORDING = 25 * 2**20  # bytes
MAX_FILES = 8  # of one request
GONE = 499  # the status of a request whose client hung up, in logs and counters
_MAX_FIELDS, _MAX_FIELD = 16, 4096
_IN_MEMORY = 2**30  # more than any body may have

T = TypeVar("T")


class VoiceForm(BaseModel):
    """What a new voice is called and how it is made, beside its recording."""

    model_config = ConfigDict(extra="ignore")

    voice_name: str = Field(max_length=64)
    language: str | None = Field(default=None, max_length=32)
    consent: str | None = Field(default=None, max_length=500)
    force: bool = False
    keep_loudness: bool = False
    speed: float = Field(default=1.0, ge=MIN_SPEED, le=MAX_SPEED)  # the voice's own

    @classmethod
    def upload_schema(cls) -> dict[str, Any]:
        """With the recording, as JSON Schema."""
        schema = cls.model_json_schema()
        schema["properties"]["voice_file"] = {"type": "string", "format": "binary"}
        return {**schema, "required": [*schema["required"], "voice_file"]}


class Upload:
    """A multipart body: its text fields, and its files with their names."""

    def __init__(self, fields: dict[str, str], files: list[tuple[str, str, bytes]]) -> None:
        self.fields, self._files = fields, files

    @classmethod
    async def read(cls, request: Request) -> Upload:
        """Refused if it is no multipart body, or has more parts than any client sends."""
        parser = MultiPartParser(
            request.headers, request.stream(), max_files=MAX_FILES, max_fields=_MAX_FIELDS,
            max_part_size=_MAX_FIELD,
        )  # fmt: skip
        parser.spool_max_size = _IN_MEMORY
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != "multipart/form-data":
            raise APIError(
                400, "invalid_request",
                f"the content type is {kind[:50]!r}; send a recording as multipart/form-data",
            )  # fmt: skip
        try:
            form = await parser.parse()
        except MultiPartException as error:
            raise APIError(
                400, "invalid_request", f"the upload is damaged: {error.message}"
            ) from None
        try:
            fields, files = dict[str, str](), []
            for name, value in form.multi_items():
                if isinstance(value, str):
                    fields[name] = value
                else:
                    files.append((name, value.filename or "", await _content(value)))
            return cls(fields, files)
        finally:
            await form.close()

    def form(self) -> VoiceForm:
        """The text fields, checked."""
        try:
            return VoiceForm.model_validate(self.fields)
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            raise RequestValidationError([{**first, "loc": ("body", *first["loc"])}]) from None

    def files(self, field: str) -> list[tuple[str, bytes]]:
        """Names and contents of the files in a field; at least one."""
        found = [(name, data) for at, name, data in self._files if at == field]
        if not found:
            raise APIError(400, "invalid_request", f"{field}: a file is required", param=field)
        return found


async def _content(file: UploadFile) -> bytes:
    if (file.size or 0) > MAX_RECORDING:
        raise APIError(413, "too_large", f"a recording may have at most {MAX_RECORDING >> 20} MB")
    return await file.read()


async def while_connected(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """What `work` returns; it is cancelled when the client hangs up. After the body was read."""
    working = asyncio.ensure_future(work)
    leaving = asyncio.ensure_future(_disconnected(request))
    try:
        await asyncio.wait({working, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise APIError(GONE, "client_disconnected", "the client closed the connection")
        return working.result()
    finally:
        for task in (working, leaving):
            task.cancel()
            with suppress(asyncio.CancelledError, Exception):
                await task


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
