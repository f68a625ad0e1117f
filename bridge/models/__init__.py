"""Chat models, one file a provider; each provider's own SDK is imported when it is used."""
