"""The verbs of `tsmalloc`: one module each, with one click command object named `command`."""
