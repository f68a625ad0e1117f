"""Resources and prompts of one server, as its methods find and run them."""
