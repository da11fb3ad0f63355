"""`tsmalloc experiment`: questions about allocators as data files, and what answers them."""
