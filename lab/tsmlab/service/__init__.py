"""`tsmalloc service`: servers under load, one allocator after the other."""
