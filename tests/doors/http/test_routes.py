import pytest

from holdfast.doors.http.app import routes
from holdfast.doors.http.request import RouteTable
from holdfast.ground.errors import NotFound

# path: (read, write, admin), each the methods that need it
CONTRACT = {
    "/v1/memory_stores": ("GET", "POST", ""),
    "/v1/memory_stores/{s}": ("GET", "POST", "DELETE"),
    "/v1/memory_stores/{s}/archive": ("", "POST", ""),
    "/v1/memory_stores/{s}/memories": ("GET", "POST", ""),
    "/v1/memory_stores/{s}/memories/{m}": ("GET", "POST PATCH DELETE", ""),
    "/v1/memory_stores/{s}/memory_versions": ("GET", "", ""),
    "/v1/memory_stores/{s}/memory_versions/{v}": ("GET", "", ""),
    "/v1/memory_stores/{s}/memory_versions/{v}/redact": ("", "", "POST"),
    "/v1/sessions": ("GET", "POST", ""),
    "/v1/sessions/{id}": ("GET", "POST DELETE", ""),
    "/v1/sessions/{id}/archive": ("", "POST", ""),
    "/v1/sessions/{id}/resources": ("GET", "POST", ""),
    "/v1/sessions/{id}/resources/{rid}": ("GET", "POST DELETE", ""),
    "/v1/dreams": ("GET", "POST", ""),
    "/v1/dreams/{id}": ("GET", "", ""),
    "/v1/dreams/{id}/cancel": ("", "POST", ""),
    "/v1/dreams/{id}/archive": ("", "POST", ""),
    "/v1/agents": ("GET", "POST", ""),
    "/v1/agents/{id}": ("GET", "POST", ""),
    "/v1/agents/{id}/archive": ("", "POST", ""),
    "/v1/agents/{id}/versions": ("GET", "", ""),
    "/v1/environments": ("GET", "POST", ""),
    "/v1/environments/{id}": ("GET", "POST", ""),
    "/v1/environments/{id}/archive": ("", "POST", ""),
}
OURS = {
    "/api/keys": ("", "", "POST GET"),
    "/api/keys/{id}": ("", "", "DELETE"),
    "/api/sessions/{id}/note": ("GET", "", ""),
    "/api/sessions/{id}/tokens": ("GET", "POST", ""),
    "/api/sessions/{id}/tokens/{tid}": ("", "DELETE", ""),
    "/api/settings/memory_stores": ("GET", "", "POST"),
    "/api/memory_stores/sizes": ("GET", "", ""),
    "/api/memory_stores/{s}/at": ("GET", "", ""),
    "/api/memory_stores/{s}/memories": ("GET", "", ""),
    "/api/memory_stores/{s}/memories/{m}/accept": ("", "POST", ""),
    "/api/memory_stores/{s}/restore": ("", "POST", ""),
    "/api/memory_stores/{s}/search": ("GET", "", ""),
    "/api/memory_stores/{s}/diff": ("GET", "", ""),
    "/api/memory_stores/{s}/memory_versions/{v}/restore": ("", "POST", ""),
    "/api/memory_stores/{s}/rename": ("", "POST", ""),
    "/api/memory_stores/{s}/delete_under": ("", "POST", ""),
    "/api/memory_stores/{s}/snapshot": ("GET", "", ""),
    "/api/memory_stores/{s}/changes": ("GET", "", ""),
    "/api/memory_stores/{s}/apply": ("", "POST", ""),
    "/api/durable": ("GET", "", ""),
    "/api/settings/durable": ("GET", "", "PATCH"),
    "/api/durable/{agent}/entries": ("GET", "POST", ""),
    "/api/durable/{agent}/entries/{key}": ("GET", "PUT DELETE", ""),
    "/api/durable/{agent}/entries/{key}/explanation": ("GET", "", ""),
    "/api/durable/{agent}/entries/{key}/accept": ("", "POST", ""),
    "/api/durable/{agent}/entries/{key}/restore": ("", "POST", ""),
    "/api/durable/{agent}/hydration": ("GET", "", ""),
    "/api/durable/{agent}/history": ("GET", "", ""),
    "/api/durable/{agent}/history/{seq}/redact": ("", "", "POST"),
    "/api/durable/{agent}/runs": ("", "POST", ""),
    "/api/durable/{agent}/runs/{run_id}/heartbeat": ("", "POST", ""),
    "/api/durable/{agent}/runs/{run_id}/end": ("", "POST", ""),
    "/api/durable/{agent}/sweep": ("", "POST", ""),
    "/api/durable/{agent}/limits": ("GET", "", "PATCH"),
    "/api/durable/{agent}/export": ("GET", "", ""),
    "/api/durable/{agent}/import": ("", "POST", ""),
    "/api/longterm/{user}": ("", "", "DELETE"),
    "/api/longterm/{user}/status": ("GET", "", ""),
    "/api/longterm/{user}/export": ("GET", "", ""),
    "/api/longterm/{user}/recall": ("POST", "", ""),
    "/api/longterm/{user}/items": ("GET", "POST", ""),
    "/api/longterm/{user}/items/{id}": ("GET", "PATCH DELETE", ""),
    "/api/longterm/{user}/items/{id}/accept": ("", "POST", ""),
    "/api/longterm/{user}/items/{id}/reject": ("", "POST", ""),
    "/api/longterm/{user}/turns": ("GET", "POST", ""),
    "/api/longterm/{user}/turns/{id}": ("GET", "DELETE", ""),
    "/api/longterm/{user}/turns/{id}/neighbours": ("GET", "", ""),
    "/api/longterm/{user}/conversations": ("", "POST", ""),
    "/api/longterm/{user}/flush": ("", "POST", ""),
    "/api/longterm/{user}/retry": ("", "POST", ""),
    "/api/longterm/{user}/remine": ("", "POST", ""),
    "/api/longterm/{user}/settings": ("", "PATCH", ""),
    "/api/longterm/{user}/import": ("", "POST", ""),
    "/api/longterm": ("GET", "", ""),
    "/api/import/{kind}": ("", "POST", ""),
    "/api/activity": ("GET", "", ""),
    "/api/samples": ("GET", "", ""),
    "/api/threads": ("GET", "", ""),
    "/api/threads/{id}": ("GET", "DELETE", ""),
    "/api/threads/{id}/turns": ("GET", "POST", ""),
    "/api/threads/{id}/pop": ("", "POST", ""),
    "/api/networks": ("GET", "", ""),
    "/api/networks/{name}/runs": ("", "POST", ""),
    "/api/definitions": ("GET", "", ""),
    "/api/runs": ("GET", "POST", ""),
    "/api/runs/{run}": ("GET", "PUT DELETE", ""),
    "/api/runs/{run}/parts": ("GET", "", ""),
    "/api/runs/{run}/versions": ("GET", "", ""),
    "/api/runs/{run}/versions/{version}": ("GET", "PUT", ""),
    "/api/runs/{run}/lease": ("", "POST", ""),
    "/api/runs/{run}/checkpoint": ("", "GET PUT DELETE", ""),
    "/api/runs/{run}/messages": ("GET", "", ""),
    "/api/runs/{run}/redact": ("", "", "POST"),
    "/api/runs/{run}/entries": ("GET", "", ""),
    "/api/runs/{run}/entries/{key}": ("GET", "", ""),
    "/api/runs/{run}/events": ("GET", "POST", ""),
    "/api/runs/{run}/compare": ("GET", "", ""),
    "/api/runs/{run}/fork": ("", "POST", ""),
    "/api/runs/{run}/cancel": ("", "POST", ""),
    "/api/runs/{run}/steer": ("", "POST", ""),
    "/api/questions": ("GET", "", ""),
    "/api/questions/{question}": ("GET", "", ""),
    "/api/questions/{question}/answer": ("", "POST", ""),
    "/api/sweep": ("", "", "POST"),
    "/api/forget": ("", "", "POST"),
    "/api/consolidations": ("GET", "POST", ""),
    "/api/consolidation_policies": ("GET", "POST DELETE", ""),
    "/api/consolidations/{id}": ("GET", "", ""),
    "/api/consolidations/{id}/replay": ("GET", "", ""),
    "/api/consolidations/{id}/cancel": ("", "POST", ""),
    "/api/consolidations/{id}/resume": ("", "POST", ""),
    "/api/consolidations/{id}/accept": ("", "POST", ""),
    "/api/consolidations/{id}/reject": ("", "POST", ""),
    "/api/consolidations/{id}/undo": ("", "POST", ""),
    "/api/erasures": ("", "", "GET"),
    "/api/erasures/{id}": ("", "", "GET"),
    "/api/erasures/{id}/verify": ("", "", "POST"),
    "/api/subjects": ("", "", "GET POST"),
    "/api/events": ("GET", "", ""),
    "/metrics": ("GET", "", ""),
}
WITHOUT_SCOPE = {
    ("GET", "/api/me"): "any",
    ("GET", "/"): "nothing",
    ("GET", "/openapi.json"): "nothing",
    ("GET", "/healthz"): "nothing",
    ("GET", "/readyz"): "nothing",
}


def test_the_app_has_the_routes_we_tell_of_with_the_scopes_we_tell_of() -> None:
    told = {
        (method, path): scope
        for path, by_scope in (CONTRACT | OURS).items()
        for scope, methods in zip(("read", "write", "admin"), by_scope, strict=True)
        for method in methods.split()
    }

    built = {(route.method, route.path): route.needs for route in routes(strict=False)}

    assert built == told | WITHOUT_SCOPE


def test_a_strict_server_lacks_the_contracts_patch_alone() -> None:
    lenient, strict = routes(strict=False), routes(strict=True)

    lacking = [(each.method, each.contract) for each in lenient if each not in strict]
    assert lacking == [("PATCH", True)]


@pytest.mark.parametrize(
    "path", [b"//", b"", b"/v1", b"/v1/memory_stores/", b"//v1/memory_stores", b"*", b"/v1//x"]
)
def test_what_is_no_route_is_not_found(path: bytes) -> None:
    with pytest.raises(NotFound):
        RouteTable(routes(strict=False)).find("GET", path)


def test_a_percent_encoded_slash_stays_in_its_segment() -> None:
    found = RouteTable(routes(strict=False)).find("GET", b"/v1/memory_stores/a%2Fb+c/memories/%FF")

    assert found.segments == {"s": "a/b+c", "m": "\N{REPLACEMENT CHARACTER}"}
