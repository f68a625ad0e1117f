"""Chat memory: windows over the messages of a conversation, and stores that keep them."""
