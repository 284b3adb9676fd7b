"""One self-contained HTML page: what the pages of all stages are made of."""
