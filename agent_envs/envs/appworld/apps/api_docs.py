"""The documentation of all apps, as an app."""

from __future__ import annotations

from collections.abc import Iterable

from agent_envs.envs.appworld.api import Answer, App, Context
from agent_envs.envs.appworld.fields import Text

API_DOCS = App("api_docs", "Look up which apps there are and how their APIs are called.")


@API_DOCS.api("GET", "/apps", auth=False, returns=[{"name": str, "description": str}])
def show_app_descriptions(ctx: Context) -> Answer:
    """List all apps with a description each."""
    return ctx.apps.descriptions()


@API_DOCS.api("GET", "/apis", auth=False, returns=[str])
def show_api_descriptions(ctx: Context, *, app_name: Text) -> Answer:
    """List the APIs of an app, each as "name : description".

    app_name: the app's name
    """
    docs = (ctx.apps.doc(app_name, name) for name in ctx.apps.functions(app_name))
    return [f"{doc['api_name']} : {doc['description']}" for doc in docs]


PARAMETER = {
    "name": str, "type": str, "required": bool, "description": str, "default": object,
    "constraints": [str],
}  # fmt: skip
DOC = {
    "app_name": str, "api_name": str, "path": str, "method": str, "description": str,
    "parameters": [PARAMETER], "response_schemas": {"success": object, "failure": object},
}  # fmt: skip


@API_DOCS.api("GET", "/doc", auth=False, returns=DOC)
def show_api_doc(ctx: Context, *, app_name: Text, api_name: Text) -> Answer:
    """Show all about one API: its parameters with their constraints and what it answers.

    app_name: the app's name
    api_name: the API's name
    """
    return ctx.apps.doc(app_name, api_name)


@API_DOCS.api(
    "GET",
    "/search",
    auth=False,
    returns=[{"app_name": str, "api_name": str, "description": str}],
    search=("app_name", "api_name", "description"),
    sort=("app_name", "api_name"),
)
def search_api_docs(ctx: Context) -> Iterable[Answer]:
    """Search the APIs of all apps by what they do."""
    for app in ctx.apps.names():
        for name in ctx.apps.functions(app):
            text = ctx.apps.doc(app, name)["description"]
            yield {"app_name": app, "api_name": name, "description": text}
