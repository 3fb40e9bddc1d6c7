"""DominoTree: conditional tree-structured drafting for speculative decoding, as a reproduction pipeline."""

__version__ = "0.1.0"
