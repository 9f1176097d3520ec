"""What looks whether the rules are kept, by chapter. Each check is one rule's."""
