"""Token ids to log-probabilities and new token ids: plans of forward passes, and their execution with torch.

The engine knows nothing about text or tasks. torch is imported by the modules that run a model, never by this one.
"""
