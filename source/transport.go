package source

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"code.dny.dev/ssrf"

	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/credential"
)

// transport returns the shared transport for cfg, made with the client
// certificate or without it, and guarded or not: a guarded transport connects to public addresses
// only. Transports live as long as Hosts: there are as many as there are different settings.
func (h *Hosts) transport(cfg Config, certificate, guarded bool) (*renewedTransport, error) {
	key := transportKey{cfg.connectTimeout(), cfg.Auth.TLS, guarded}
	if !certificate {
		key.tls.CertFile, key.tls.KeyFile = "", ""
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if t := h.transports[key]; t != nil {
		return t, nil
	}
	settings, err := tlsSettings(key.tls)
	if err != nil {
		return nil, err
	}
	// A dial continues after its request has failed, so that the next request can use the
	// connection. It has twice the time, so that the deadline of the request comes first and
	// the error is that of the request.
	dialTimeout := 2 * key.connect
	dialer, proxy := &net.Dialer{Timeout: dialTimeout}, http.ProxyFromEnvironment
	if guarded {
		dialer.Control, proxy = publicOnly.Safe, refuseProxy
	}
	dial := h.Dial
	if dial == nil {
		dial = dialer.DialContext
	}
	t := &renewedTransport{}
	t.settings = &http.Transport{
		Proxy: proxy,
		DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			t.dials.Add(1)
			return dial(ctx, network, addr)
		},
		TLSHandshakeTimeout:    dialTimeout,
		TLSClientConfig:        settings,
		MaxResponseHeaderBytes: mostHeader,
		MaxIdleConnsPerHost:    idlePerHost,
		IdleConnTimeout:        90 * time.Second,
		DisableCompression:     true, // body does it, with limits
		ForceAttemptHTTP2:      true,
		// Without pings a dead HTTP/2 connection would be reused until TCP
		// gives up, a quarter of an hour later.
		HTTP2: &http.HTTP2Config{SendPingTimeout: 15 * time.Second, PingTimeout: 15 * time.Second},
	}
	if h.transports == nil {
		h.transports = make(map[transportKey]*renewedTransport)
	}
	h.transports[key] = t
	return t, nil
}

// A connection that is used again and again would go to the old address for ever when the name of its host
// has moved. So all connections are renewed every maxConnectionAge, and every minConnectionAge while they
// serve manyRequests each, to which one more handshake adds little.
const (
	minConnectionAge = 75 * time.Second
	maxConnectionAge = 5 * time.Minute
	manyRequests     = 10
)

// renewedTransport sends requests by its current transport, which it replaces by a new one with the same settings
// when that is old. It is safe for concurrent use.
type renewedTransport struct {
	settings *http.Transport
	dials    atomic.Int64 // of the current transport

	mu       sync.Mutex // guards the fields below
	current  *http.Transport
	made     time.Time // when current was
	requests int64     // of current
}

// RoundTrip implements [http.RoundTripper].
func (t *renewedTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	return t.forRequest().RoundTrip(r)
}

func (t *renewedTransport) forRequest() *http.Transport {
	t.mu.Lock()
	defer t.mu.Unlock()
	age := time.Since(t.made)
	if age > maxConnectionAge || age > minConnectionAge && t.requests > manyRequests*t.dials.Load() {
		if t.current != nil {
			t.current.CloseIdleConnections() // now, and the others when their requests have ended
		}
		t.current, t.made, t.requests = t.settings.Clone(), time.Now(), 0
		t.dials.Store(0)
	}
	t.requests++
	return t.current
}

// CloseIdleConnections is that of [http.Client].
func (t *renewedTransport) CloseIdleConnections() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.current != nil {
		t.current.CloseIdleConnections()
	}
}

// publicOnly refuses connections to addresses of private networks and of this machine. It checks
// the address that is connected to, so a name that resolves to another one later does not pass.
var publicOnly = ssrf.New(ssrf.WithAnyPort())

// refuseProxy fails if there is a proxy on the way, which resolves the name of the host itself.
func refuseProxy(r *http.Request) (*url.URL, error) {
	if proxy, err := http.ProxyFromEnvironment(r); proxy == nil || err != nil {
		return nil, err
	}
	return nil, feed.Permanent(fmt.Errorf("a redirect led to %s, whose address cannot be checked behind a proxy; name it in allow_hosts if the feed may lead there", r.URL.Host))
}

// tlsSettings returns the TLS configuration. It reads the files once, so that a wrong one is
// found at the start.
func tlsSettings(files credential.ClientFiles) (*tls.Config, error) {
	settings, err := files.Config("auth.tls")
	if err != nil {
		return nil, feed.Permanent(err)
	}
	if load := settings.GetClientCertificate; load != nil {
		settings.GetClientCertificate = func(info *tls.CertificateRequestInfo) (*tls.Certificate, error) {
			certificate, err := load(info)
			return certificate, feed.Permanent(err)
		}
	}
	return settings, nil
}
