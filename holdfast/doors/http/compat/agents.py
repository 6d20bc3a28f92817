"""The contract's routes for agents and environments, which are kept and echoed."""

from holdfast.doors.http.call import Call, agent_there, environment_there
from holdfast.doors.http.params import PAGE, flag, instants, integer
from holdfast.doors.http.request import HttpRoute
from holdfast.doors.http.response import Response, of_json, of_page

AGENTS, AGENT = "/v1/agents", "/v1/agents/{id}"
ENVIRONMENTS, ENVIRONMENT = "/v1/environments", "/v1/environments/{id}"


async def create_agent(call: Call) -> Response:
    """Keep an agent."""
    body = call.json()
    return of_json(await call.write(lambda hf: hf.agents.create(body)))


async def list_agents(call: Call) -> Response:
    """List agents."""
    query = call.query
    return await call.slow(lambda hf: of_page(hf.agents.list(**query)))


async def retrieve_agent(call: Call) -> Response:
    """Tell of one agent."""
    query = call.query
    return of_json(await call.quick(lambda hf: hf.agents.retrieve(call["id"], **query)))


async def update_agent(call: Call) -> Response:
    """Make an agent's next version."""
    body = call.json()
    return of_json(await call.write(lambda hf: hf.agents.update(call["id"], body)))


async def archive_agent(call: Call) -> Response:
    """Archive an agent."""
    return of_json(await call.write(lambda hf: hf.agents.archive(call["id"])))


async def list_agent_versions(call: Call) -> Response:
    """List an agent's versions."""
    query = call.query
    return await call.slow(lambda hf: of_page(hf.agents.versions(call["id"], **query)))


async def create_environment(call: Call) -> Response:
    """Keep an environment."""
    body = call.json()
    return of_json(await call.write(lambda hf: hf.environments.create(body)))


async def list_environments(call: Call) -> Response:
    """List environments."""
    query = call.query
    return await call.slow(lambda hf: of_page(hf.environments.list(**query)))


async def retrieve_environment(call: Call) -> Response:
    """Tell of one environment."""
    return of_json(await call.quick(lambda hf: hf.environments.retrieve(call["id"])))


async def update_environment(call: Call) -> Response:
    """Change an environment."""
    body = call.json()
    return of_json(await call.write(lambda hf: hf.environments.update(call["id"], body)))


async def archive_environment(call: Call) -> Response:
    """Archive an environment."""
    return of_json(await call.write(lambda hf: hf.environments.archive(call["id"])))


AGENT_ROUTES = (
    HttpRoute(
        method="POST",
        path=AGENTS,
        needs="write",
        answer=create_agent,
        body="any",
        summary="Create an agent, version 1.",
    ),
    HttpRoute(
        method="GET",
        path=AGENTS,
        needs="read",
        answer=list_agents,
        query=(*PAGE, flag("include_archived"), *instants("created_at", "gte", "lte")),
        summary="List agents, newest first.",
    ),
    HttpRoute(
        method="GET",
        path=AGENT,
        needs="read",
        answer=retrieve_agent,
        query=(integer("version"),),
        behind=agent_there,
        summary="Retrieve an agent, as it is or as it was in a version.",
    ),
    HttpRoute(
        method="POST",
        path=AGENT,
        needs="write",
        answer=update_agent,
        body="any",
        behind=agent_there,
        summary="Update an agent: its next version.",
    ),
    HttpRoute(
        method="POST",
        path=f"{AGENT}/archive",
        needs="write",
        answer=archive_agent,
        summary="Archive an agent.",
    ),
    HttpRoute(
        method="GET",
        path=f"{AGENT}/versions",
        needs="read",
        answer=list_agent_versions,
        query=PAGE,
        behind=agent_there,
        summary="List an agent's versions, newest first.",
    ),
    HttpRoute(
        method="POST",
        path=ENVIRONMENTS,
        needs="write",
        answer=create_environment,
        body="any",
        summary="Create an environment.",
    ),
    HttpRoute(
        method="GET",
        path=ENVIRONMENTS,
        needs="read",
        answer=list_environments,
        query=(*PAGE, flag("include_archived")),
        summary="List environments, newest first.",
    ),
    HttpRoute(
        method="GET",
        path=ENVIRONMENT,
        needs="read",
        answer=retrieve_environment,
        summary="Retrieve an environment.",
    ),
    HttpRoute(
        method="POST",
        path=ENVIRONMENT,
        needs="write",
        answer=update_environment,
        body="any",
        behind=environment_there,
        summary="Update an environment.",
    ),
    HttpRoute(
        method="POST",
        path=f"{ENVIRONMENT}/archive",
        needs="write",
        answer=archive_environment,
        summary="Archive an environment.",
    ),
)
