"""`tsmalloc stats`: the address space of tsmalloc in a running process, and counts."""

from tsmlab.commands.explain import native_verb

command = native_verb("stats")
