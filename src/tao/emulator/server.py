"""The emulator over HTTP: routes, streaming, disconnects; everything it says comes from the service and the
dialects.

Built on aiohttp with handler cancellation, so that a client that leaves ends its request at once, also
while its prompt is being computed.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
from aiohttp import web

from tao import __version__
from tao.emulator.answer import AnswerCursor
from tao.emulator.chat import ChatDialect, openai_error
from tao.emulator.completions import CompletionsDialect
from tao.emulator.conversation import render
from tao.emulator.engine_loop import Progress
from tao.emulator.fields import BadRequestError, JsonObject, optional, parse_object
from tao.emulator.messages import MessagesDialect, parse_conversation
from tao.emulator.metrics import MetricsPage
from tao.emulator.responses import ResponsesDialect
from tao.emulator.service import Service
from tao.emulator.tokens import chain_token_ids, detokenize, text_token_ids
from tao.emulator.turn import Dialect, Reply, StreamWriter

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
STREAM_HEADERS = {"Content-Type": "text/event-stream; charset=utf-8", "Cache-Control": "no-cache"}
SESSION_HEADER = "X-Session-ID"


def json_response(data: Any, status: int = 200) -> web.Response:
    return web.Response(body=msgspec.json.encode(data), status=status, content_type="application/json")


async def read_body(request: web.Request) -> JsonObject:
    try:
        return parse_object(await request.read())
    except web.HTTPRequestEntityTooLarge as error:
        raise BadRequestError(error.text or "the body is too large", status=413) from error


class Routes:
    """Handlers of one emulated replica."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._metrics = MetricsPage(service.loop, service.config.served_model)

    def table(self) -> list[web.RouteDef]:
        messages = MessagesDialect()
        return [
            web.post("/v1/chat/completions", self._endpoint(ChatDialect())),
            web.post("/v1/completions", self._endpoint(CompletionsDialect())),
            web.post("/v1/responses", self._endpoint(ResponsesDialect())),
            web.post("/v1/messages", self._endpoint(messages)),
            web.post("/v1/messages/count_tokens", self._guarded(self.count_tokens, messages.error)),
            web.post("/tokenize", self._guarded(self.tokenize, openai_error)),
            web.post("/detokenize", self._guarded(self.detokenize, openai_error)),
            web.get("/v1/models", self.models),
            web.get("/health", self.health),
            web.get("/ping", self.health),
            web.get("/version", self.version),
            web.get("/metrics", self.metrics),
            web.get("/load", self.load),
            web.get("/kv_event_sources", self.kv_event_sources),
            web.post("/reset_prefix_cache", self.reset_prefix_cache),
        ]

    def _guarded(self, handler: Handler, error_body: Callable[[BadRequestError], JsonObject]) -> Handler:
        async def guarded(request: web.Request) -> web.StreamResponse:
            try:
                return await handler(request)
            except BadRequestError as error:
                return json_response(error_body(error), error.status)

        return guarded

    def _endpoint(self, dialect: Dialect) -> Handler:
        async def answer(request: web.Request) -> web.StreamResponse:
            body = await read_body(request)
            turn = dialect.parse(body)
            reply, progress = self._service.start(dialect, turn, request.headers.get(SESSION_HEADER))
            try:
                if turn.stream:
                    return await self._stream(request, dialect.stream(reply), reply, progress)
                if not await progress.ended():
                    cut(request)
                    return web.Response(status=503)
                return json_response(dialect.whole(reply, progress.cached_tokens))
            finally:
                self._service.end(reply, progress)

        return self._guarded(answer, dialect.error)

    async def _stream(
        self, request: web.Request, writer: StreamWriter, reply: Reply, progress: Progress
    ) -> web.StreamResponse:
        response = web.StreamResponse(headers=STREAM_HEADERS)
        await response.prepare(request)
        cursor = AnswerCursor(reply.answer)
        begun = ended = False
        while not ended:
            await progress.changed()
            if progress.lost:
                cut(request)
                return response
            data = b"" if begun else writer.begin(progress.cached_tokens)
            begun, ended = True, progress.done
            data += writer.deltas(cursor.upto(progress.generated))
            if ended:
                data += writer.end()
            if data:
                await response.write(data)
        await response.write_eof()
        return response

    # ---- the rest of the engine's surface ----------------------------------------------------------------

    async def count_tokens(self, request: web.Request) -> web.Response:
        body = await read_body(request)
        self._service.check_model(optional(body, "model", str))
        return json_response({"input_tokens": render(parse_conversation(body)).tokens})

    async def tokenize(self, request: web.Request) -> web.Response:
        body = await read_body(request)
        self._service.check_model(optional(body, "model", str))
        prompt = optional(body, "prompt", str)
        if prompt is not None:
            ids = text_token_ids(prompt.encode("utf-8", "surrogatepass"))
        elif "messages" in body:
            chain = ChatDialect().parse(body).prompt
            ids = chain_token_ids(chain, 0, chain.tokens)
        else:
            raise BadRequestError("'prompt' or 'messages' is required", field="prompt")
        window = self._service.config.profile.max_model_tokens
        return json_response({"count": len(ids), "max_model_len": window, "tokens": ids, "token_strs": None})

    async def detokenize(self, request: web.Request) -> web.Response:
        tokens = optional(await read_body(request), "tokens", list) or []
        try:
            return json_response({"prompt": detokenize(tokens)})
        except (TypeError, ValueError) as error:
            raise BadRequestError(
                f"'tokens' must be an array of token ids: {error}", field="tokens"
            ) from error

    async def models(self, _: web.Request) -> web.Response:
        config = self._service.config
        card = {
            "id": config.served_model,
            "object": "model",
            "created": self._service.started,
            "owned_by": "tao-emulator",
            "root": config.profile.model,
            "parent": None,
            "max_model_len": config.profile.max_model_tokens,
        }
        return json_response({"object": "list", "data": [card]})

    async def health(self, _: web.Request) -> web.Response:
        return web.Response()

    async def version(self, _: web.Request) -> web.Response:
        return json_response({"version": f"tao-emulator {__version__}"})

    async def metrics(self, _: web.Request) -> web.Response:
        return web.Response(
            body=self._metrics.render().encode(),
            headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"},
        )

    async def load(self, _: web.Request) -> web.Response:
        stats = self._service.model.stats()
        return json_response({"server_load": stats.running + stats.waiting})

    async def kv_event_sources(self, _: web.Request) -> web.Response:
        events = self._service.kv_events
        if events is None:
            return json_response([])
        source = {
            "data_parallel_rank": 0,
            "endpoint": events.endpoint,
            "replay_endpoint": events.replay_endpoint,
            "topic": events.topic,
        }
        return json_response([source])

    async def reset_prefix_cache(self, _: web.Request) -> web.Response:
        """As in vLLM: 200 in any case; a cache in use is not reset, which the body says."""
        return json_response({"success": self._service.loop.flush()})


def cut(request: web.Request) -> None:
    """The engine died: the client sees its connection cut."""
    if request.transport is not None:
        request.transport.abort()
