"""Results of a server: large ones that are kept aside, those that are sent in parts, and what they cost a model."""
