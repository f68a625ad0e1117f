"""Guardrails: checks of what goes into a service or a tool and comes out of it (LangChain4j's guardrails)."""
