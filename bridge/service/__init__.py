"""AI services: chat models, messages, memory, the tool loop, and interfaces implemented by a model."""
