"""``retriever``: index a corpus, serve it to any number of trainers."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from agent_envs.cli.common import Json, out, print_json, progress_bar, started
from agent_envs.core.errors import OptionError
from agent_envs.core.sockets import LOOPBACK

app = typer.Typer(
    no_args_is_help=True,
    help=(
        "Passage retrieval for the Search environment.\n\n`index` builds an index folder from a corpus, "
        "`serve` answers Search-R1's and SkyRL-gym's requests from it; environments use either "
        "(`retriever=DIR` or `retriever=URL`)."
    ),
)


@app.command("index", epilog="Example: `agent-envs retriever index corpus.jsonl --out index`")
def index(
    corpus: Annotated[
        Path,
        typer.Argument(
            metavar="CORPUS.jsonl",
            help="One object per line: id, and contents (or title and text).",
        ),
    ],
    folder: Annotated[Path, typer.Option("--out", help="Folder of the index.")],
    kind: Annotated[
        str, typer.Option(help="bm25 (words) or dense (sentence embeddings).")
    ] = "bm25",
    model: Annotated[
        str | None,
        typer.Option(help="Sentence-transformers model of a dense index: a folder or a hub id."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Build an index; run it again after a break and it goes on."""
    from agent_envs.retrieval import encoder, indexing

    with progress_bar(f"indexing {corpus.name}", None, as_json) as update:
        built = indexing.build(
            corpus, folder, kind, model=model or encoder.DEFAULT, progress=update
        )
    if as_json:
        print_json(built)
        return
    out.print(
        f"{built['path']}: {built['documents']:,} documents, {built['kind']}, {built['seconds']} s",
        highlight=False,
    )
    out.print(f"serve it: agent-envs retriever serve --index {built['path']}", highlight=False)


@app.command("serve", epilog="Example: `agent-envs retriever serve --index index`")
def serve(
    folder: Annotated[
        Path | None,
        typer.Option("--index", help="Folder of an index, or a faiss file (then --corpus too)."),
    ] = None,
    corpus: Annotated[
        Path | None, typer.Option(help="The faiss file's corpus, JSON lines.")
    ] = None,
    model: Annotated[
        str | None, typer.Option(help="The faiss file's model: a folder or a hub id.")
    ] = None,
    embedded: Annotated[
        str | None, typer.Option(help="Serve the embedded passages instead: bm25 or dense.")
    ] = None,
    host: Annotated[
        str, typer.Option(help="Address; any but this machine's needs --token.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0 takes a free one.")] = 8000,
    topk: Annotated[int, typer.Option(help="Passages where a request names no number.")] = 3,
    max_topk: Annotated[int, typer.Option(help="The most passages that a query gets.")] = 100,
    token: Annotated[
        str | None,
        typer.Option(
            envvar="AGENT_ENVS_RETRIEVER_TOKEN", help="Demand this token (Authorization: Bearer)."
        ),
    ] = None,
    device: Annotated[str | None, typer.Option(help="Of the encoder, such as cuda.")] = None,
    as_json: Json = False,
) -> None:
    """Answer POST /retrieve (both forms in use) and GET /health until interrupted."""
    from agent_envs.retrieval import server

    if host not in LOOPBACK and not token:
        raise OptionError(f"--host {host} is open to others: give a --token too")
    retriever, about = _open(folder, corpus, model, embedded, device)
    limits = server.Limits(topk=topk, max_topk=max_topk)
    app_ = server.make_app(retriever, limits=limits, token=token, about=about)

    server.serve(
        app_, host=host, port=port, ready=lambda url: started(url, f"retriever ({about})", as_json)
    )


def _open(
    folder: Path | None,
    corpus: Path | None,
    model: str | None,
    embedded: str | None,
    device: str | None,
) -> tuple[Any, str]:
    from agent_envs.retrieval import encoder, indexing, open_retriever

    if (folder is None) == (embedded is None):
        raise OptionError("give one of --index DIR and --embedded bm25|dense")
    if embedded is not None:
        from agent_envs.envs.search import world

        return open_retriever(embedded, world.documents), f"embedded passages, {embedded}"
    assert folder is not None
    if folder.is_file():
        if corpus is None:
            raise OptionError(
                f"{folder} is a file: give its --corpus too (and the --model that made it)"
            )
        return (
            indexing.open_faiss(folder, corpus, model=model or encoder.DEFAULT, device=device), str(folder)
        )  # fmt: skip
    return indexing.open_index(folder, device=device), str(folder)
