"""Traces of the lives of tasks, for OpenTelemetry. Without `--otel-endpoint` nothing is loaded."""
