"""Tasks of remote servers: calls whose results are fetched later."""
