"""One data holder, no federation: a synthetic copy of images or of a table, through the same site step."""
