package source

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"
	"time"

	"code.dny.dev/ssrf"

	"github.com/feedbridge/feedbridge/feed"
)

// ErrTooLarge is matched, beside [feed.ErrPermanent], by the errors about a page or a
// header that is larger than the configured limit.
var ErrTooLarge = errors.New("larger than the limit")

func tooLarge(format string, args ...any) error {
	return feed.Permanent(fmt.Errorf("%s: %w", fmt.Sprintf(format, args...), ErrTooLarge))
}

// StatusError is the error for a status without the requested content. It matches
// [feed.ErrPermanent] unless the status is a 5xx or one of 408, 421, 425 and 429, which
// pass by themselves.
type StatusError struct {
	Method string
	URL    string // without credentials
	Status int
	// Wait is the time that the upstream has asked to wait before the next request, at most
	// an hour, zero if it did not ask. It is also the error's [feed.RetryDelay].
	Wait time.Duration
	// Excerpt is the start of a textual body, in one line.
	Excerpt string

	note      string // the cause, if the status does not explain it
	transient bool   // passes by itself, whatever the status
}

func (e *StatusError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s: %d", e.Method, e.URL, e.Status)
	if text := http.StatusText(e.Status); text != "" {
		b.WriteString(" " + text)
	}
	if e.note != "" {
		b.WriteString(" (" + e.note + ")")
	}
	if e.Excerpt != "" {
		b.WriteString(`: "` + e.Excerpt + `"`)
	}
	switch {
	case e.Wait > 0:
		fmt.Fprintf(&b, "; it asks to wait %v", e.Wait)
	case e.note == "":
		b.WriteString("; " + statusCure(e.Status))
	}
	return b.String()
}

// statusCure returns what an operator can do about a status. It does not mention retries,
// which are the caller's decision.
func statusCure(status int) string {
	switch {
	case status == http.StatusNotFound, status == http.StatusGone:
		return "check the url; if it is right, ask the provider where the page went"
	case status == http.StatusTooManyRequests:
		return "if it happens often, raise every or lower limits.rate"
	case isTransientStatus(status):
		return "if this persists, ask the provider to fix it"
	case status < 400:
		return "feedbridge cannot use this answer; check the url, and proxies between here and the provider"
	}
	return "check the url and headers of the feed against what the provider documents"
}

// Is makes the error match [feed.ErrPermanent] if its status does not pass by
// itself.
func (e *StatusError) Is(target error) bool {
	return target == feed.ErrPermanent && !e.transient && !isTransientStatus(e.Status)
}

func isTransientStatus(status int) bool {
	switch status {
	case http.StatusRequestTimeout, http.StatusMisdirectedRequest, http.StatusTooEarly, http.StatusTooManyRequests:
		return true
	}
	return status >= 500
}

// StatusOf returns the status of the answer that an error is about, or 0.
func StatusOf(err error) int {
	if status, ok := errors.AsType[*StatusError](err); ok {
		return status.Status
	}
	return 0
}

// IsGone reports whether err is the answer that a page does not exist.
func IsGone(err error) bool {
	status := StatusOf(err)
	return status == http.StatusNotFound || status == http.StatusGone
}

// timeoutError is the error for a configured timeout that has passed.
type timeoutError struct {
	what   string
	limit  time.Duration
	option string
	cure   string
}

func (e *timeoutError) Error() string {
	return fmt.Sprintf("%s for %v (%s); %s", e.what, e.limit, e.option, e.cure)
}
func (e *timeoutError) Timeout() bool { return true }

// mostHeader is the largest header of a response, in bytes, eight times what servers accept in a request.
const mostHeader = 64 << 10

// explainTransport puts into words the failures that an operator meets before there is
// a response.
func explainTransport(err error) error {
	if _, ok := errors.AsType[*net.DNSError](err); ok {
		return fmt.Errorf("the host's name cannot be resolved; check the url, and DNS on this machine: %w", err)
	}
	if errors.Is(err, ssrf.ErrProhibitedIP) {
		return feed.Permanent(fmt.Errorf("a redirect or link led to a host whose address is private; name the host in allow_hosts if the feed may lead there: %w", err))
	}
	if _, ok := errors.AsType[x509.UnknownAuthorityError](err); ok {
		return feed.Permanent(fmt.Errorf("the server's certificate is not signed by a trusted authority; name its authority in auth.tls.ca_file: %w", err))
	}
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return feed.Permanent(fmt.Errorf("the server's certificate is not valid for this host or this day; the provider has to renew it, or the url names another host: %w", err))
	}
	if _, ok := errors.AsType[tls.RecordHeaderError](err); ok {
		return feed.Permanent(fmt.Errorf("the server does not speak TLS on this port; perhaps the url must start with http:// instead: %w", err))
	}
	// The refusal comes after the handshake, so HTTP/2 may only see that the
	// connection is gone, and has no value for that.
	op, ok := errors.AsType[*net.OpError](err)
	if ok && op.Op == "remote error" || strings.Contains(err.Error(), "client conn could not be established") {
		return fmt.Errorf("the server refused the TLS connection; it may require another client certificate in auth.tls: %w", err)
	}
	// net/http has no values for the last two, only texts (HTTP/1 and HTTP/2).
	switch text := err.Error(); {
	case errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Errorf("nothing accepts connections there; check the host and port of the url, and whether the server runs: %w", err)
	case errors.Is(err, io.EOF), errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		// Not io.EOF itself, which a reader would take for a good end.
		return fmt.Errorf("the server closed the connection before it had answered; if this persists, the server or a proxy in front of it is at fault: %w", io.ErrUnexpectedEOF)
	case strings.Contains(text, "response headers exceeded"), strings.Contains(text, "response header list larger"):
		return tooLarge("the header of the response has more than %d bytes", mostHeader)
	}
	return err
}
