"""What a computer and its Python really are."""
