"""Credentials of callers: each caller of a gateway reaches a server with a credential of its own.

broker ──────── credentials of all servers: obtains, refreshes, keeps and forgets them
  ├── grants ── ways to obtain a credential, one for each type of ``auth``
  ├── store ─── keys, credentials and their stores
  ╰── errors ── a credential that only its caller can give
"""
