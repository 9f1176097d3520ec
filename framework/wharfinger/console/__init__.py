"""Show plans, provider trees, explanations, reservations and progress."""
