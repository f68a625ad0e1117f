"""Auth: how this side signs in to remote servers with OAuth 2.1 (MCP, Authorization).

grants ──── what a configuration says: a person logs in, or this program has credentials of its own
sign_in ─── signs a server's requests, and renews what it signs with, once for all who wait
  ├── signature ── what a request is signed with
  ├── flow ─────── one renewal, by the SDK's OAuth clients
  ├── binding ──── whether the tokens of a renewal are bound to a key
  ├── dpop ─────── such a key, and the proofs of having it
  ├── reach ────── where a login may lead, whatever a server says
  ├── fitness ──── whether an authorization server may be told anything
  ├── loopback ─── where a browser hands over what a person agreed to
  ├── keeping ──── the login where it is kept, whatever is wrong there
  ╰── store ────── logins on disk, for this user's eyes only
"""
