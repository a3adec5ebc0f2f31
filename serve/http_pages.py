"""The protocol over HTTP besides inference: health, metadata, statistics, the repository, shared memory; and metrics."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import cache
from pathlib import Path
from typing import Any

from prometheus_client import CONTENT_TYPE_LATEST
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from .descriptions import model_config, model_statistics, overview, repository_index
from .embeddings import models
from .errors import BadRequestError, NotFoundError, NotImplementedHereError, TooLargeError, as_serve_error, let_go
from .http_tensors import read_json
from .service import Service
from .shared_memory import Regions

_MAX_BODY = 1 << 20  # bytes of a request that has no tensors
_PAGE_HEADERS = {  # it loads nothing from elsewhere, and nobody shows it in a frame
    "Content-Security-Policy": "default-src 'self'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; "
    "frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
    "X-Content-Type-Options": "nosniff",
}
Handler = Callable[[Request], Awaitable[Response]]


class Pages:
    """The pages of one service."""

    def __init__(self, service: Service, regions: Regions) -> None:
        self._service, self._regions = service, regions

    def app(self) -> Starlette:
        """The ASGI application."""
        get, post = ["GET"], ["POST"]
        model = "/v2/models/{model}"
        routes = [
            Route("/", _answered(self.page), methods=get),
            Route("/overview", _answered(self.overview), methods=get),
            Route("/metrics", _answered(self.metrics), methods=get),
            Route("/v1/models", _answered(self.models), methods=get),
            Route("/v1/models/{model}", _answered(self.models), methods=get),
            Route("/v2", _answered(self.server), methods=get),
            Route("/v2/health/live", _answered(self.live), methods=get),
            Route("/v2/health/ready", _answered(self.ready), methods=get),
            Route("/v2/models/stats", _answered(self.statistics), methods=get),
            Route("/v2/repository/index", _answered(self.index), methods=post),
            Route("/v2/repository/models/{model}/load", _answered(self.load), methods=post),
            Route("/v2/repository/models/{model}/unload", _answered(self.unload), methods=post),
        ]
        for path in (model, model + "/versions/{version}"):
            routes += [
                Route(path, _answered(self.metadata), methods=get),
                Route(path + "/ready", _answered(self.model_ready), methods=get),
                Route(path + "/config", _answered(self.config), methods=get),
                Route(path + "/stats", _answered(self.statistics), methods=get),
            ]
        for kind, status, change in (
            ("systemsharedmemory", self.regions, self.change_region),
            ("cudasharedmemory", self.no_regions, self.refuse),
        ):
            for path in (f"/v2/{kind}", f"/v2/{kind}/region/{{region}}"):
                routes += [
                    Route(f"{path}/status", _answered(status), methods=get),
                    Route(f"{path}/{{change}}", _answered(change), methods=post),
                ]
        for path in ("/v2/logging", "/v2/trace/setting", model + "/trace/setting"):
            routes.append(Route(path, _answered(self.refuse), methods=[*get, *post]))
        app = Starlette(routes=routes, exception_handlers={404: _nothing, 405: _nothing})
        app.router.redirect_slashes = False  # it would send clients to whatever host they name
        return app

    # ---- health and metadata ----

    async def live(self, _: Request) -> Response:
        return Response(status_code=200 if self._service.is_live else 503)

    async def ready(self, _: Request) -> Response:
        return Response(status_code=200 if self._service.is_ready else 503)

    async def model_ready(self, request: Request) -> Response:
        is_ready = self._service.is_model_ready(*_model(request))
        return Response(status_code=200 if is_ready else 503)

    async def server(self, _: Request) -> Response:
        return JSONResponse(self._service.server_metadata())

    async def models(self, request: Request) -> Response:
        return JSONResponse(models(self._service, _model(request)[0]))

    async def metadata(self, request: Request) -> Response:
        return JSONResponse(self._service.model_metadata(*_model(request)))

    async def config(self, request: Request) -> Response:
        return JSONResponse(model_config(*self._service.repository.endpoint(*_model(request))))

    async def statistics(self, request: Request) -> Response:
        return JSONResponse({"model_stats": model_statistics(self._service.repository, *_model(request))})

    async def metrics(self, _: Request) -> Response:
        return Response(self._service.metrics.text(), media_type=CONTENT_TYPE_LATEST)

    async def page(self, _: Request) -> Response:
        return Response(_page(), media_type="text/html", headers=_PAGE_HEADERS)

    async def overview(self, _: Request) -> Response:
        return JSONResponse(await run_in_threadpool(overview, self._service))

    # ---- the repository ----

    async def index(self, request: Request) -> Response:
        is_ready = (await _json(request)).get("ready") is True
        return JSONResponse(await run_in_threadpool(repository_index, self._service.repository, is_ready))

    async def load(self, request: Request) -> Response:
        parameters = (await _json(request)).get("parameters", {})
        repository = self._service.repository
        await run_in_threadpool(repository.load, _model(request)[0], repository.config_of(parameters))
        return Response()

    async def unload(self, request: Request) -> Response:
        await run_in_threadpool(self._service.repository.unload, _model(request)[0])
        return Response()

    # ---- shared memory ----

    async def regions(self, request: Request) -> Response:
        found = self._regions.status(request.path_params.get("region", ""))
        return JSONResponse(
            [{"name": each.name, "key": each.key, "offset": each.offset, "byte_size": each.size} for each in found]
        )

    async def change_region(self, request: Request) -> Response:
        name, change = request.path_params.get("region", ""), request.path_params["change"]
        if change == "unregister":
            self._regions.unregister(name)
        elif change == "register" and name:
            values = await _json(request)
            key, offset, size = values.get("key"), values.get("offset", 0), values.get("byte_size")
            if not isinstance(key, str) or type(offset) is not int or type(size) is not int:
                raise BadRequestError("expected key, offset and byte_size of the region")
            self._regions.register(name, key, offset, size)
        else:
            raise NotFoundError(f"there is no page {request.url.path}")
        return Response()

    async def no_regions(self, _: Request) -> Response:
        return JSONResponse([])

    async def refuse(self, request: Request) -> Response:
        if request.path_params.get("change") == "unregister":  # of what cannot have been registered
            return Response()
        raise NotImplementedHereError(f"{request.url.path}: this server has no such thing")


@cache
def _page() -> bytes:
    return Path(__file__).with_name("page.html").read_bytes()


def _answered(handler: Handler) -> Handler:
    async def answer(request: Request) -> Response:
        try:
            return await handler(request)
        except Exception as error:
            found = as_serve_error(error)
            let_go(error)
            return JSONResponse({"error": str(found)}, status_code=found.http)

    return answer


async def _nothing(request: Request, error: Exception) -> Response:
    status = getattr(error, "status_code", 404)
    return JSONResponse({"error": f"there is no page {request.method} {request.url.path}"}, status_code=status)


def _model(request: Request) -> tuple[str, str]:
    return request.path_params.get("model", ""), request.path_params.get("version", "")


async def _json(request: Request) -> dict[str, Any]:
    data = bytearray()
    async for chunk in request.stream():
        data += chunk
        if len(data) > _MAX_BODY:
            raise TooLargeError(f"a body of more than {_MAX_BODY} bytes")
    return read_json(bytes(data))
