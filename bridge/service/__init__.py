"""The AI-service loop: chat models, messages, memory, and the services built on them."""
