"""Tables from records: what they say (`tables`, `notes`), how they are laid out (`layout`), and LaTeX (`latex`)."""
