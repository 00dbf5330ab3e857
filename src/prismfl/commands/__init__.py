"""The subcommands of `prismfl`, one file a group. Heavy imports happen inside the functions."""
