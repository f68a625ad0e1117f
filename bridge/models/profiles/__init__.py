"""JSON Schema conversion for each provider."""
