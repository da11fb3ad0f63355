"""The pages of reports: what each says, in which order."""
