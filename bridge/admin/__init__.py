"""Administration of a running server: its state, actions of operators, and the page that shows both."""
