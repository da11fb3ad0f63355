"""`tsmalloc replay --movie`: a page that shows heaps as they fill."""
