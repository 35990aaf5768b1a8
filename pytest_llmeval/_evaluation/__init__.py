"""The whole way from a task to its results, without pytest."""
