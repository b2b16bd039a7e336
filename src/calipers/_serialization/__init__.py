"""Fitted models as JSON documents and arrays, and back; ``calipers.storage`` writes the folders."""
