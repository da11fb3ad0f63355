"""`tsmalloc top`: where the resident memory of a running process is, again and again."""

from tsmlab.commands.explain import native_verb

command = native_verb("top")
