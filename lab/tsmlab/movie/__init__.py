"""`tsmalloc replay --movie`: heaps as they fill, on a page."""
