"""The test suites of OpenTelemetry's instrumentation packages, run against our providers instead of the SDK's."""
