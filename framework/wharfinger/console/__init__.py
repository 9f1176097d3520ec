"""Show plans, provider trees, explanations, reservations and progress, as text or data."""
