"""Passage retrieval in process (BM25, dense), over HTTP as client, and as a server."""

from agent_envs.retrieval.documents import Document, Found, Hit, Retriever
from agent_envs.retrieval.opening import open_retriever

__all__ = ["Document", "Found", "Hit", "Retriever", "open_retriever"]
