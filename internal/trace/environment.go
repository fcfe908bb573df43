package trace

import (
	"errors"
	"fmt"
	"net/url"
	"os"
	"slices"
	"strings"

	"github.com/go-logr/logr"
)

// Variables of which the first that is set counts: one for traces, and one for all signals.
var (
	endpointVariables = []string{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"}
	protocolVariables = []string{"OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"}
)

// isEnabled reports whether the environment asks for traces.
func isEnabled() bool {
	if strings.EqualFold(variable("OTEL_SDK_DISABLED"), "true") || variable("OTEL_TRACES_EXPORTER") == "none" {
		return false
	}
	_, endpoint := firstSet(endpointVariables)
	return endpoint != "" || variable("OTEL_TRACES_EXPORTER") != ""
}

func variable(name string) string { return strings.TrimSpace(os.Getenv(name)) }

// firstSet returns the first of the variables that is not empty, and its value.
func firstSet(names []string) (name, value string) {
	for _, name := range names {
		if value := variable(name); value != "" {
			return name, value
		}
	}
	return "", ""
}

// Check returns an error if the standard OTEL_ variables ask for an exporter or a protocol that this program does
// not have, or the endpoint is no URL: the OpenTelemetry library would send spans elsewhere. The library logs other values that it
// cannot use. Check returns nil if traces are off. It sends nothing.
func Check() error {
	if !isEnabled() {
		return nil
	}
	var errs []error
	if exporter := variable("OTEL_TRACES_EXPORTER"); exporter != "" && exporter != "otlp" {
		errs = append(errs, fmt.Errorf("OTEL_TRACES_EXPORTER: invalid exporter %q: want otlp or none", exporter))
	}
	if name, protocol := firstSet(protocolVariables); protocol != "" && protocol != "http/protobuf" && protocol != "http/json" {
		errs = append(errs, fmt.Errorf("%s: invalid protocol %q: want http/protobuf or http/json, and the endpoint of the collector for them, whose port is 4318 by default", name, protocol))
	}
	for _, name := range endpointVariables {
		// The URL may have a password, and the error of the parser would quote it.
		if u, err := url.Parse(variable(name)); variable(name) != "" && (err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "") {
			errs = append(errs, fmt.Errorf("%s: invalid URL: want one such as http://localhost:4318", name))
		}
	}
	return errors.Join(errs...)
}

// propagates reports whether trace contexts are taken from requests and sent with them.
func propagates() bool {
	names := strings.FieldsFunc(os.Getenv("OTEL_PROPAGATORS"), func(r rune) bool { return r == ',' || r == ' ' })
	return len(names) == 0 || slices.Contains(names, "tracecontext")
}

// librarySink logs the errors of the OpenTelemetry library without the values of variables, which may be secrets.
type librarySink struct{ logr.LogSink }

// Error implements [logr.LogSink].
func (s librarySink) Error(err error, text string, _ ...any) {
	s.LogSink.Error(err, "OpenTelemetry: "+text)
}
