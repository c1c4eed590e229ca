"""The twelfth set: pictures, texts, series, generators and policies, each in the log of a framework people use."""
