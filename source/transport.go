package source

import (
	"crypto/tls"
	"net"
	"net/http"
	"time"

	"github.com/feedbridge/feedbridge/credential"
	"github.com/feedbridge/feedbridge/feed"
)

// transport returns the shared transport for cfg, made with the client
// certificate or without it. Transports live as long as Hosts: there are as
// many as there are different settings.
func (h *Hosts) transport(cfg Config, certificate bool) (*http.Transport, error) {
	key := transportKey{cfg.Timeouts.Connect, cfg.Limits.Header, cfg.Auth.TLS}
	if !certificate {
		key.tls.CertFile, key.tls.KeyFile = "", ""
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if t := h.transports[key]; t != nil {
		return t, nil
	}
	settings, err := key.tls.settings()
	if err != nil {
		return nil, err
	}
	// A dial continues after its request has failed, so that the next request can use the
	// connection. It has twice the time, so that the deadline of the request comes first and
	// the error is that of the request.
	dialTimeout := 2 * key.connect
	dial := h.Dial
	if dial == nil {
		dial = (&net.Dialer{Timeout: dialTimeout}).DialContext
	}
	t := &http.Transport{
		Proxy:                  http.ProxyFromEnvironment,
		DialContext:            dial,
		TLSHandshakeTimeout:    dialTimeout,
		TLSClientConfig:        settings,
		MaxResponseHeaderBytes: key.header,
		MaxIdleConnsPerHost:    idlePerHost,
		IdleConnTimeout:        90 * time.Second,
		DisableCompression:     true, // body does it, with limits
		ForceAttemptHTTP2:      true,
		// Without pings a dead HTTP/2 connection would be reused until TCP
		// gives up, a quarter of an hour later.
		HTTP2: &http.HTTP2Config{SendPingTimeout: 15 * time.Second, PingTimeout: 15 * time.Second},
	}
	if h.transports == nil {
		h.transports = make(map[transportKey]*http.Transport)
	}
	h.transports[key] = t
	return t, nil
}

// settings returns the TLS configuration. It reads the files once, so that a wrong one is
// found at the start.
func (t TLS) settings() (*tls.Config, error) {
	settings, err := credential.ClientFiles{CAFile: t.CAFile, CertFile: t.CertFile, KeyFile: t.KeyFile}.Config("auth.tls")
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
