"""Resources: data that a server offers to read, and resource templates (MCP, "Resources")."""
