"""`tsmalloc experiment`: questions about allocators as data files, and what runs and answers them."""
