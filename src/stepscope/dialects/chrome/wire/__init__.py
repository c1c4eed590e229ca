"""Chrome's trace event JSON, as Perfetto and PyTorch's profiler write it, to records and back."""
