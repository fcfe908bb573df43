package source

import (
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"time"

	"code.dny.dev/ssrf"

	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/credential"
)

// transport returns the shared transport for cfg, made with the client
// certificate or without it, and guarded or not: a guarded transport connects to public addresses
// only. Transports live as long as Hosts: there are as many as there are different settings.
func (h *Hosts) transport(cfg Config, certificate, guarded bool) (*http.Transport, error) {
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
	t := &http.Transport{
		Proxy:                  proxy,
		DialContext:            dial,
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
		h.transports = make(map[transportKey]*http.Transport)
	}
	h.transports[key] = t
	return t, nil
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
