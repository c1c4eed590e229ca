"""Images, sounds, videos, files and histograms in `log`: captured by the caller, encoded on a thread of their own."""
