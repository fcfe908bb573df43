// Package trace sends spans to an OpenTelemetry collector by OTLP, if the standard OTEL_
// variables ask for it: one for each poll of a feed with its HTTP requests, one for each
// commit, and one for each request for a served feed.
//
// A nil [Tracer] is one that is off. It wraps nothing: its methods return their arguments, so
// that a process without traces runs no code of this package.
//
// Traces never delay a feed. Spans wait in a bounded queue for a goroutine that sends them.
// When the queue is full, or the collector is down or slow, spans are dropped.
package trace
