"""Search for tools: words of names and descriptions, and embeddings."""
