"""The least of each resource that a training needs, and what is sold for it."""
