"""`tsmalloc purge`: the free pages of a running process go back to the system."""

from tsmlab.commands.explain import native_verb

command = native_verb("purge")
