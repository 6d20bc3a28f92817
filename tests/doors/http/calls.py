"""Calls of each route: its query and body, and the objects that its path names."""

import re

from holdfast.doors.http.request import HttpRoute
from holdfast.testing.contracts.history import made

ALWAYS_REFUSED = {
    "POST /v1/sessions/{id}/resources",
    "POST /v1/sessions/{id}/resources/{rid}",
    "DELETE /v1/sessions/{id}/resources/{rid}",
}


LTM = "?enabled=true"
EDIT = {"type": "save", "path": "/b.md", "content": "x"}
LEASE = {"action": "acquire", "holder": "h1", "name": "r", "place": "rock:7"}
VERSION = {"at": 1, "cause": "step", "rows": [{"kind": "value", "key": "a", "body": "1"}]}
RECORD = {"name": "r", "kind": "memory", "started_at": "2026-01-01T00:00:00Z"}
CALLS: dict[str, tuple[str, object]] = {
    # Query and body of the requests that need one.
    "POST /v1/memory_stores": ("", {"name": "n"}),
    "POST /v1/memory_stores/{s}": ("", {"name": "m"}),
    "POST /v1/memory_stores/{s}/memories": ("", {"path": "/b.md", "content": "x"}),
    "POST /v1/memory_stores/{s}/memories/{m}": ("", {"content": "y"}),
    "PATCH /v1/memory_stores/{s}/memories/{m}": ("", {"content": "y"}),
    "POST /v1/sessions": ("", {"agent": "a", "environment_id": "e", "resources": []}),
    "POST /v1/sessions/{id}": ("", {"title": "t"}),
    "POST /v1/dreams": (
        "",
        (
            '{"inputs": [{"type": "memory_store", "memory_store_id": "{s}"},'
            ' {"type": "sessions", "session_ids": ["{session}"]}], "model": "m"}'
        ),
    ),
    "POST /v1/agents": ("", {"name": "a", "model": "m"}),
    "POST /v1/agents/{id}": ("", {"version": 1, "name": "b"}),
    "POST /v1/environments": ("", {"name": "e"}),
    "POST /v1/environments/{id}": ("", {"name": "f"}),
    "POST /api/keys": ("", {"name": "k"}),
    "POST /api/settings/memory_stores": ("", {"memories_cap": 9}),
    "GET /api/memory_stores/sizes": ("?id={s}", None),
    "GET /api/memory_stores/{s}/at": ("?path=/a.md", None),
    "GET /api/memory_stores/{s}/search": ("?q=x", None),
    "GET /api/memory_stores/{s}/diff": ("?from={v}&to={newest v}", None),
    "POST /api/memory_stores/{s}/restore": ("", {"at": "2026-01-01T00:00:00Z", "dry_run": True}),
    "POST /api/memory_stores/{s}/rename": ("", {"old_path": "/a.md", "new_path": "/c.md"}),
    "POST /api/memory_stores/{s}/delete_under": ("", {"path": "/"}),
    "GET /api/memory_stores/{s}/changes": ("?after=0", None),
    "POST /api/memory_stores/{s}/apply": ("", {"edit_id": "edit_1", "edits": [EDIT]}),
    "PATCH /api/settings/durable": ("", {"cap": 9}),
    "PATCH /api/durable/{agent}/limits": ("", {"cap": 9}),
    "POST /api/forget": ("", {"agent": "agent_7"}),
    "POST /api/consolidations": ("", {"user": "ada"}),
    "POST /api/consolidation_policies": ("", {"user": "ada"}),
    "DELETE /api/consolidation_policies": ("?user=ada", None),
    "POST /api/subjects": ("", '{"kind": "store", "id": "{s}", "user": "ada"}'),
    "POST /api/durable/{agent}/entries": (
        "",
        {"entries": [{"key": "k", "content": "x", "category": "core"}]},
    ),
    "PUT /api/durable/{agent}/entries/{key}": ("", {"content": "x", "category": "core"}),
    "POST /api/durable/{agent}/entries/{key}/restore": ("", '{"seq": {seq}}'),
    "POST /api/durable/{agent}/runs": ("", {"run_id": "run_2", "lane": "other"}),
    "POST /api/durable/{agent}/runs/{run_id}/end": ("", {"outcome": "ok"}),
    "POST /api/durable/{agent}/import": ("", {"files": []}),
    "POST /api/import/{kind}": (f"{LTM}&user=ada", [{"id": "1", "memory": "Likes tea"}]),
    "GET /api/longterm/{user}/status": (LTM, None),
    "POST /api/longterm/{user}/flush": (LTM, {}),
    "POST /api/longterm/{user}/retry": (LTM, {}),
    "POST /api/longterm/{user}/remine": (LTM, {}),
    "PATCH /api/longterm/{user}/settings": (LTM, {"extractor": "none"}),
    "GET /api/longterm/{user}/export": (LTM, None),
    "POST /api/longterm/{user}/import": (LTM, b""),
    "DELETE /api/longterm/{user}": (LTM, None),
    "POST /api/longterm/{user}/recall": (LTM, {"query": "tea"}),
    "POST /api/longterm/{user}/items": (LTM, {"text": "Likes coffee"}),
    "GET /api/longterm/{user}/items": (LTM, None),
    "GET /api/longterm/{user}/items/{id}": (LTM, None),
    "PATCH /api/longterm/{user}/items/{id}": (LTM, {"importance": 1.0}),
    "DELETE /api/longterm/{user}/items/{id}": (LTM, None),
    "POST /api/longterm/{user}/items/{id}/accept": (LTM, None),
    "POST /api/longterm/{user}/items/{id}/reject": (LTM, None),
    "POST /api/longterm/{user}/turns": (LTM, {"turns": [{"role": "user", "text": "Hi."}]}),
    "GET /api/longterm/{user}/turns": (LTM, None),
    "GET /api/longterm/{user}/turns/{id}": (LTM, None),
    "GET /api/longterm/{user}/turns/{id}/neighbours": (LTM, None),
    "DELETE /api/longterm/{user}/turns/{id}": (LTM, None),
    "POST /api/longterm/{user}/conversations": (LTM, {"messages": []}),
    "POST /api/threads/{id}/turns": ("", {"turns": [made(5).export()]}),
    "POST /api/threads/{id}/pop": ("", {}),
    "POST /api/networks/{name}/runs": ("", {"input": "Hello."}),
    "POST /api/runs": ("", {"definition": "desk", "input": "Hello."}),
    "GET /api/runs/{run}/messages": ("?part=read", None),
    "GET /api/runs/{run}/compare": ("?with={run}", None),
    "POST /api/runs/{run}/redact": ("", {"key": "shared:a"}),
    "POST /api/runs/{run}/cancel": ("", {}),
    "POST /api/runs/{run}/steer": ("", {"text": "Faster."}),
    "POST /api/runs/{run}/fork": ("", {"set": {"shared:a": 1}}),
    "POST /api/questions/{question}/answer": ("", {"value": "7"}),
    "PUT /api/runs/{run}": ("", RECORD),
    "POST /api/runs/{run}/lease": ("", LEASE),
    "PUT /api/runs/{run}/versions/{version}": ("", VERSION),
    "PUT /api/runs/{run}/checkpoint": ("", VERSION),
    "POST /api/runs/{run}/events": ("", {"holder": "h1", "number": 1}),
}
OWN_IDS = {
    # What a segment stands for on some paths alone, by the pattern of the route.
    r".* /(v1|api)/sessions/": {"id": "session"},
    r".* /v1/agents/": {"id": "stored agent"},
    r".* /v1/dreams/": {"id": "dream"},
    r".* /v1/environments/": {"id": "environment"},
    r".* /api/keys/": {"id": "api key"},
    r".* /api/longterm/{user}/items/": {"id": "item"},
    r".* /api/longterm/{user}/items/{id}/accept": {"id": "held item"},
    r".* /api/memory_stores/{s}/memories/{m}/accept": {"m": "held memory"},
    r".* /api/durable/{agent}/entries/{key}/accept": {"key": "held key"},
    r".* /api/longterm/{user}/items/{id}/reject": {"id": "held turn"},
    r".* /api/longterm/{user}/turns/": {"id": "turn"},
    r".* /api/erasures/": {"id": "erasure"},
    r".* /api/consolidations/": {"id": "consolidation"},
    r".* /api/consolidations/{id}/resume": {"id": "partial consolidation"},
    r".* /api/consolidations/{id}/undo": {"id": "accepted consolidation"},
    r".* /api/threads/": {"id": "thread"},
    r".* /api/runs/{run}/entries/": {"key": "run entry"},
    r".* /api/runs/{run}/versions/": {"run": "reported run", "version": "version"},
    r"DELETE /api/runs/{run}$": {"run": "ended run"},
    r"(PUT /api/runs/{run}|POST /api/runs/{run}/(events|lease))$": {"run": "reported run"},
    r".* /api/runs/{run}/checkpoint$": {"run": "reported run"},
}


def name_of(route: HttpRoute) -> str:
    return f"{route.method} {route.path}"


def filled(text: str, route: HttpRoute, ids: dict[str, str]) -> str:
    """Return *text* with the ids of objects for its `{names}`."""
    own: dict[str, str] = {}
    for pattern, names in OWN_IDS.items():
        if re.match(pattern, name_of(route)):
            own |= {name: ids[kind] for name, kind in names.items()}
    for name, value in (ids | own).items():
        text = text.replace(f"{{{name}}}", value)
    return text
