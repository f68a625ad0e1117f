"""Large results: kept aside, so that a model reads their beginning, their end and a link."""
