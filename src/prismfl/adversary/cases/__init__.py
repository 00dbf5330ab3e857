"""From a finished run to a case: what the attack sees and, apart from it, the truth that only the score is given."""
