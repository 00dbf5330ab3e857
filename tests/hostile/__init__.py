"""The server lies, or one site does."""
