"""Connections over HTTP, which uvicorn makes: parsers, replies, limits, and calls without ASGI."""
