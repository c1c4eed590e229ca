"""The first set: classifiers, sequences, generators, policies and loops without torch; some families are tuned on."""
