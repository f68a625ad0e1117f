"""Function signatures and Python types to JSON Schema."""
