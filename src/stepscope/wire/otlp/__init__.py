"""OpenTelemetry's protocol, for receiver and sink: requests to records, records to requests, replies."""
