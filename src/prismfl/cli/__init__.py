"""The command line, one file a command, thin. Heavy imports happen inside the functions."""
