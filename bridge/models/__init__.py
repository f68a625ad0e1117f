"""Chat models, by provider. Each provider's SDK is imported on first use."""
