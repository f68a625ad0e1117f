"""OpenAI, and servers that speak its chat API."""
