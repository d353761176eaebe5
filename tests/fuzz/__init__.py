"""A slow job, not part of the test suite: a million adversarial texts, and nothing paid that is not the value."""
