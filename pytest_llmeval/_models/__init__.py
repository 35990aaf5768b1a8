"""Backends: the only rooms that import torch, and only once a model is asked for."""
