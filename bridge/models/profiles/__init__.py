"""What each provider takes of JSON Schema: copies of schemas are rewritten here, at the provider's edge."""
