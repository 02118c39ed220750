"""Benchmarks for people: tables and plots as one HTML page or as Markdown, by `bench report`."""
