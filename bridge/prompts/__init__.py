"""Prompts: messages that a server offers for users to pick (MCP, "Prompts")."""
