"""OAuth 2.1 client for remote servers (MCP, "Authorization").

grants ──────────── grant types: login in a browser, client credentials, identity assertion
sign_in ─────────── httpx auth that signs requests and renews tokens, shared by all connections
  ├── challenge ──────── WWW-Authenticate challenges, and signing of one request
  ├── flow ───────────── one renewal, with the SDK's OAuth clients
  ├── assertions ─────── JWT bearer grant and token exchange
  ├── token_binding ──── decides if the tokens of a renewal are bound to a key
  ├── dpop ───────────── keys and proofs (DPoP)
  ├── server_validation ─ allowed addresses, and checks of authorization servers
  ├── loopback ───────── HTTP listener for the browser's redirect
  ├── login ──────────── a stored login
  ╰── store ──────────── logins on disk
"""
