"""How plans and provider trees look to a person in a terminal, and to a program."""
