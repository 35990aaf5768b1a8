"""The whole way as pytest items: options, collection, runs, gates, workers, and the end of a session.

Every room that imports pytest is in here, but for the plugin itself.
"""
