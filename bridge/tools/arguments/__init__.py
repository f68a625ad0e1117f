"""Arguments: JSON from models and remote clients, as values for a function."""
