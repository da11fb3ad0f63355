"""`tsmalloc experiment`: questions about allocators as data files, and their answers."""
