package trace

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
)

// Variables of which the first that is set counts: one for traces, and one for all signals.
var (
	endpointVariables    = []string{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"}
	protocolVariables    = []string{"OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"}
	headerVariables      = []string{"OTEL_EXPORTER_OTLP_TRACES_HEADERS", "OTEL_EXPORTER_OTLP_HEADERS"}
	compressionVariables = []string{"OTEL_EXPORTER_OTLP_TRACES_COMPRESSION", "OTEL_EXPORTER_OTLP_COMPRESSION"}
	certificateVariables = []string{"OTEL_EXPORTER_OTLP_TRACES_CERTIFICATE", "OTEL_EXPORTER_OTLP_CERTIFICATE"}
)

// numberVariables hold whole numbers greater than zero.
var numberVariables = []string{
	"OTEL_EXPORTER_OTLP_TIMEOUT", "OTEL_EXPORTER_OTLP_TRACES_TIMEOUT",
	"OTEL_BSP_SCHEDULE_DELAY", "OTEL_BSP_EXPORT_TIMEOUT", "OTEL_BSP_MAX_QUEUE_SIZE", "OTEL_BSP_MAX_EXPORT_BATCH_SIZE",
}

// defaultEndpoint is the one of OTLP over HTTP.
const defaultEndpoint = "http://localhost:4318"

// isEnabled reports whether the environment asks for traces.
func isEnabled() bool {
	if strings.EqualFold(variable("OTEL_SDK_DISABLED"), "true") || variable("OTEL_TRACES_EXPORTER") == "none" {
		return false
	}
	_, endpoint := firstSet(endpointVariables)
	return endpoint != "" || variable("OTEL_TRACES_EXPORTER") != ""
}

// Check returns an error for each of the standard OTEL_ variables whose value cannot be used. It
// returns nil if traces are off. It sends nothing.
func Check() error {
	if !isEnabled() {
		return nil
	}
	return checkEnvironment()
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

// checkEnvironment returns an error for each variable whose value cannot be used. The
// OpenTelemetry library would ignore most of them, and send no traces.
func checkEnvironment() error {
	var errs []error
	fail := func(name, format string, args ...any) {
		errs = append(errs, fmt.Errorf("%s: %w", name, fmt.Errorf(format, args...)))
	}
	if exporter := variable("OTEL_TRACES_EXPORTER"); exporter != "" && exporter != "otlp" {
		fail("OTEL_TRACES_EXPORTER", "invalid exporter %q: want otlp or none", exporter)
	}
	if name, protocol := firstSet(protocolVariables); protocol != "" && protocol != "http/protobuf" && protocol != "http/json" {
		fail(name, "invalid protocol %q: want http/protobuf or http/json, and the endpoint of the collector for them, whose port is 4318 by default", protocol)
	}
	for _, name := range endpointVariables {
		// The URL may have a password, and the error of the parser would quote it.
		if value := variable(name); value != "" && !isEndpoint(value) {
			fail(name, "invalid URL: want one such as %s", defaultEndpoint)
		}
	}
	for _, name := range headerVariables {
		if !isHeaderList(variable(name)) {
			fail(name, "want a list such as name=value,name=value")
		}
	}
	for _, name := range compressionVariables {
		if value := variable(name); value != "" && value != "gzip" && value != "none" {
			fail(name, "invalid compression %q: want gzip or none", value)
		}
	}
	for _, name := range numberVariables {
		if value := variable(name); value != "" {
			if n, err := strconv.Atoi(value); err != nil || n <= 0 {
				fail(name, "invalid number %q: want a whole number greater than zero", value)
			}
		}
	}
	errs = append(errs, checkSampler(), checkPropagators(), checkCertificates())
	return errors.Join(errs...)
}

func isEndpoint(value string) bool {
	u, err := url.Parse(value)
	return err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != ""
}

// isHeaderList reports whether value is a list of headers, which may be empty.
func isHeaderList(value string) bool {
	for header := range strings.SplitSeq(value, ",") {
		key, _, ok := strings.Cut(header, "=")
		if strings.TrimSpace(header) != "" && (!ok || strings.TrimSpace(key) == "") {
			return false
		}
	}
	return true
}

func checkSampler() error {
	const name, argument = "OTEL_TRACES_SAMPLER", "OTEL_TRACES_SAMPLER_ARG"
	samplers := []string{
		"always_on", "always_off", "traceidratio", "parentbased_always_on", "parentbased_always_off", "parentbased_traceidratio",
	}
	sampler, ratio := strings.ToLower(variable(name)), variable(argument)
	switch {
	case sampler != "" && !slices.Contains(samplers, sampler):
		return fmt.Errorf("%s: invalid sampler %q: want one of %s", name, sampler, strings.Join(samplers, ", "))
	case strings.HasSuffix(sampler, "traceidratio") && ratio != "":
		if r, err := strconv.ParseFloat(ratio, 64); err != nil || !(r >= 0 && r <= 1) {
			return fmt.Errorf("%s: invalid ratio %q: want a number from 0 to 1", argument, ratio)
		}
	}
	return nil
}

// propagators is the variable with the formats in which trace contexts are passed on.
const propagators = "OTEL_PROPAGATORS"

func checkPropagators() error {
	for name := range strings.SplitSeq(variable(propagators), ",") {
		if name = strings.TrimSpace(name); !slices.Contains([]string{"", "none", "tracecontext", "baggage"}, name) {
			return fmt.Errorf("%s: invalid propagator %q: want tracecontext or none", propagators, name)
		}
	}
	return nil
}

// propagates reports whether trace contexts are taken from requests and sent with them.
func propagates() bool {
	value := variable(propagators)
	return value == "" || slices.ContainsFunc(strings.Split(value, ","), func(name string) bool { return strings.TrimSpace(name) == "tracecontext" })
}

// checkCertificates reads the files of certificates.
func checkCertificates() error {
	for _, name := range certificateVariables {
		if file := variable(name); file != "" {
			text, err := os.ReadFile(file)
			if err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			if !x509.NewCertPool().AppendCertsFromPEM(text) {
				return fmt.Errorf("%s: %s has no certificate in PEM", name, file)
			}
		}
	}
	for _, prefix := range []string{"OTEL_EXPORTER_OTLP_TRACES_", "OTEL_EXPORTER_OTLP_"} {
		certificate, key := variable(prefix+"CLIENT_CERTIFICATE"), variable(prefix+"CLIENT_KEY")
		if certificate != "" || key != "" {
			if _, err := tls.LoadX509KeyPair(certificate, key); err != nil {
				return fmt.Errorf("%sCLIENT_CERTIFICATE and %sCLIENT_KEY: %w", prefix, prefix, err)
			}
		}
	}
	return nil
}
