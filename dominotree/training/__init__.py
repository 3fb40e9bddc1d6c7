"""How this repository makes its own drafters: a corpus that the target writes, and the paper's losses on it."""
