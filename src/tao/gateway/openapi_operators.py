"""The part of the OpenAPI document that operators and trainers use: replicas in and out, new weights, empty caches.

The schemas are made from the types that read the requests, so they cannot disagree. It must not know what is done.
"""

from typing import Any

import msgspec

from tao.gateway.flushing import PATH as FLUSH_PATH
from tao.gateway.flushing import FlushRequest
from tao.gateway.operators import (
    REPLICAS_PATH,
    WEIGHTS_PATH,
    AddReplica,
    BeginWeights,
    EndWeights,
    NamedReplica,
)

Json = dict[str, Any]

_CHANGES: dict[str, tuple[str, str, Json]] = {
    REPLICAS_PATH: (
        "Have this replica from now on. One that was drained or removed before takes sessions again.",
        "AddReplica",
        {"url": "http://10.0.0.7:8000", "slots": 64},
    ),
    f"{REPLICAS_PATH}/drain": (
        "What runs there finishes, and nothing new is sent there; its other sessions restart elsewhere.",
        "NamedReplica",
        {"replica": "10.0.0.7:8000"},
    ),
    f"{REPLICAS_PATH}/remove": (
        "Drain it, and forget it when its turns have ended, at the latest after discovery.removal_seconds_max.",
        "NamedReplica",
        {"replica": "10.0.0.7:8000"},
    ),
    f"{WEIGHTS_PATH}/begin": (
        "The engines are getting other weights: hold every turn that is not on an engine yet. Also /weight_sync/begin.",
        "BeginWeights",
        {"deadline_seconds": 300},
    ),
    f"{WEIGHTS_PATH}/end": (
        "They have them: what their caches held counts no more, and what was held goes on. Also /weight_sync/end.",
        "EndWeights",
        {},
    ),
    FLUSH_PATH: (
        "Empty prefix caches: of one replica, or of all. Also /reset_prefix_cache and /flush_cache, for all.",
        "FlushRequest",
        {"replica": "10.0.0.7:8000"},
    ),
}
_REFUSALS = {
    "400": "The document cannot be read, or the URL cannot be a replica's.",
    "401": "The token is missing or wrong.",
    "403": "Changes are off: no token is configured.",
    "404": "No replica has this id or URL.",
    "409": "Flushing only: an engine refused, since its cache is in use, or did not answer; the others have flushed.",
}


def paths() -> Json:
    """The paths, with their methods."""
    found: Json = {path: {"post": _change(*change)} for path, change in _CHANGES.items()}
    found[REPLICAS_PATH]["get"] = {
        "summary": "All replicas with what was last seen of them, and the sources that name them. Needs no token.",
        "responses": {"200": {"description": "The list."}},
    }
    return found


def schemas() -> Json:
    """The JSON Schemas that the paths refer to, by name."""
    _, components = msgspec.json.schema_components(
        (AddReplica, NamedReplica, BeginWeights, EndWeights, FlushRequest),
        ref_template="#/components/schemas/{name}",
    )
    return components


def _change(summary: str, schema: str, example: Json) -> Json:
    body = {"schema": {"$ref": f"#/components/schemas/{schema}"}, "example": example}
    error = {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}
    return {
        "summary": summary,
        "description": "Repeating it changes nothing. The answer shows how it is now.",
        "security": [{"admin": []}],
        "requestBody": {"required": True, "content": {"application/json": body}},
        "responses": {
            "200": {"description": "Done."},
            **{status: {"description": text, "content": error} for status, text in _REFUSALS.items()},
        },
    }
