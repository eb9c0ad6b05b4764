"""The page at `/`, its scripts, and the API as a page: static files that need nothing else."""

from __future__ import annotations

from pathlib import Path

from fastapi import APIRouter
from starlette.responses import FileResponse, Response

from nightingale.server.api_errors import APIError
from nightingale.server.context import ServerContext

_FOLDER = Path(__file__).parent / "page"
_KINDS = {".html": "text/html", ".css": "text/css", ".js": "text/javascript"}
_FILES = {file.name: file for file in _FOLDER.iterdir() if file.suffix in _KINDS}
_HEADERS = {
    "content-security-policy": "default-src 'self'; img-src 'self' data:; media-src 'self' blob:; "
    "frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cache-control": "no-cache",
}


def routes(_context: ServerContext) -> APIRouter:
    router = APIRouter(include_in_schema=False)

    @router.get("/")
    async def index() -> Response:
        return _file("index.html")

    @router.get("/docs")
    async def docs() -> Response:
        return _file("docs.html")

    @router.get("/page/{name}")
    async def part(name: str) -> Response:
        if name not in _FILES:
            raise APIError(404, "not_found", "there is no such file")
        return _file(name)

    return router


def _file(name: str) -> Response:
    file = _FILES[name]
    return FileResponse(file, media_type=_KINDS[file.suffix], headers=_HEADERS)
