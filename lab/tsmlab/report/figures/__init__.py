"""The figures of reports: what each shows, and how it is drawn."""
