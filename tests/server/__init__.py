"""The server's folder, watched and cared for, without its processes."""
