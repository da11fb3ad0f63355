"""`tsmalloc set`: the options of tsmalloc in a running process."""

from tsmlab.commands.explain import native_verb

command = native_verb("set")
