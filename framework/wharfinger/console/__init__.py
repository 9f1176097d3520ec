"""Show plans, provider trees, explanations and reservations as text and as JSON data."""
