"""Show plans, provider trees, explanations and reservations as text or data."""
