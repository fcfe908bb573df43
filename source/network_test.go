package source_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/feedbridge/feedbridge/internal/credential"
	"github.com/feedbridge/feedbridge/internal/testkit/must"
	"github.com/feedbridge/feedbridge/internal/testkit/parallel"
	"github.com/feedbridge/feedbridge/source"
)

// rawServer answers each request with what answer does to the connection,
// which is closed afterwards. It returns its URL.
func rawServer(t *testing.T, answer func(net.Conn)) string {
	t.Helper()
	var listen net.ListenConfig
	l, err := listen.Listen(t.Context(), "tcp", "127.0.0.1:0")
	must.Succeed(t, err)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			if _, err := http.ReadRequest(bufio.NewReader(conn)); err == nil {
				answer(conn)
			}
			_ = conn.Close()
		}
	}()
	t.Cleanup(func() { _ = l.Close(); <-done })
	return "http://" + l.Addr().String()
}

func TestBrokenAnswers(t *testing.T) {
	t.Parallel()
	reset := func(conn net.Conn) { _ = conn.(*net.TCPConn).SetLinger(0) }
	write := func(text string) func(net.Conn) {
		return func(conn net.Conn) { _, _ = io.WriteString(conn, text) }
	}
	const header = "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n"
	for name, test := range map[string]struct {
		answer func(net.Conn)
		is     error
		text   string
	}{
		"case 86: reset":                    {reset, io.ErrUnexpectedEOF, "closed the connection before it had answered"},
		"case 86: closed without an answer": {write(""), io.ErrUnexpectedEOF, "closed the connection before it had answered"},
		"case 86: closed in the header":     {write(header), io.ErrUnexpectedEOF, ""},
		"case 86: not HTTP":                 {write("SSH-2.0-OpenSSH_9.6\r\n"), nil, "malformed HTTP"},
		"case 86: a garbage chunk":          {write(header + "Transfer-Encoding: chunked\r\n\r\nzz\r\n"), nil, "invalid byte in chunk length"},
		"case 86: cut between chunks":       {write(header + "Transfer-Encoding: chunked\r\n\r\n1\r\nx\r\n"), io.ErrUnexpectedEOF, "the body ended early"},
		"shorter than its Content-Length":   {write(header + "Content-Length: 9\r\n\r\nx"), io.ErrUnexpectedEOF, "the body ended early"},
	} {
		parallel.Run(t, name, func(t *testing.T) {
			url := rawServer(t, test.answer)
			_, _, err := get(t, newClient(t, url), url+"/feed")
			wantError(t, err, false, "GET "+url+"/feed: ", test.text)
			if test.is != nil && !errors.Is(err, test.is) {
				t.Errorf("error %v is not %v", err, test.is)
			}
			if errors.Is(err, io.EOF) {
				t.Errorf("error %v could be taken for a good end", err)
			}
		})
	}
}

func TestUnreachable(t *testing.T) {
	t.Parallel()
	t.Run("nothing listens", func(t *testing.T) {
		const url = "http://127.0.0.1:1" // never given to a listener that asks for any port
		_, _, err := get(t, newClient(t, url), url)
		wantError(t, err, false, "GET "+url, "nothing accepts connections there")
	})
	t.Run("the name does not resolve", func(t *testing.T) {
		hosts := &source.Hosts{Dial: func(context.Context, string, string) (net.Conn, error) {
			return nil, &net.OpError{Op: "dial", Err: &net.DNSError{Err: "no such host", Name: "shop.invalid", IsNotFound: true}}
		}}
		c := newClientWith(t, source.Options{Hosts: hosts}, "http://shop.invalid/feed")
		_, _, err := get(t, c, "http://shop.invalid/feed")
		wantError(t, err, false, "GET http://shop.invalid/feed", "the host's name cannot be resolved", "lookup shop.invalid: no such host")
	})
	t.Run("the caller gives up", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		url := serve(t, func(_ http.ResponseWriter, r *http.Request) {
			cancel()
			<-r.Context().Done()
		})
		_, err := newClient(t, url).Do(ctx, source.Request{Method: "GET", URL: url})
		wantError(t, err, false, "GET "+url)
		if !errors.Is(err, context.Canceled) {
			t.Errorf("error %v is not context.Canceled", err)
		}
		// The second call meets a context that has ended already.
		_, err = newClient(t, "http://shop.invalid").Do(ctx, source.Request{Method: "GET", URL: "http://shop.invalid"})
		if !errors.Is(err, context.Canceled) {
			t.Errorf("error %v is not context.Canceled", err)
		}
	})
}

func writePEM(t *testing.T, block *pem.Block) string {
	t.Helper()
	return writeFile(t, string(pem.EncodeToMemory(block)))
}

// writeFile writes text to a new file and returns its name.
func writeFile(t *testing.T, text string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "file")
	must.Succeed(t, os.WriteFile(name, []byte(text), 0o600))
	return name
}

// trust makes a client accept the server's certificate.
func trust(t *testing.T, server *httptest.Server) func(*source.Config) {
	t.Helper()
	file := writePEM(t, &pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	return func(c *source.Config) { c.Auth.TLS.CAFile = file }
}

// tlsServer answers with the protocol of the request, and whether there was a client
// certificate.
func tlsServer(t *testing.T, want tls.ClientAuthType) *httptest.Server {
	t.Helper()
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, r.Proto)
		if len(r.TLS.PeerCertificates) > 0 {
			_, _ = io.WriteString(w, " with a certificate")
		}
	}))
	server.EnableHTTP2 = true
	server.TLS = &tls.Config{ClientAuth: want}
	server.Config.ErrorLog = log.New(io.Discard, "", 0) // handshakes fail here on purpose
	server.StartTLS()
	t.Cleanup(server.Close)
	return server
}

func TestTLS(t *testing.T) {
	t.Parallel()
	server := tlsServer(t, tls.RequestClientCert)
	other := tlsServer(t, tls.RequestClientCert)
	otherHost := strings.TrimPrefix(other.URL, "https://")

	t.Run("HTTP/2 with a trusted authority", func(t *testing.T) {
		if _, body, err := get(t, newClient(t, server.URL, trust(t, server)), server.URL); err != nil || body != "HTTP/2.0" {
			t.Errorf("body = %q, %v", body, err)
		}
	})
	t.Run("an authority that is not trusted", func(t *testing.T) {
		_, _, err := get(t, newClient(t, server.URL), server.URL)
		wantError(t, err, true, "GET "+server.URL, "not signed by a trusted authority", "auth.tls.ca_file")
	})
	t.Run("a certificate for another name", func(t *testing.T) {
		hosts := &source.Hosts{Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, server.Listener.Addr().String())
		}}
		c := newClientWith(t, source.Options{Hosts: hosts}, "https://shop.invalid", trust(t, server))
		_, _, err := get(t, c, "https://shop.invalid")
		wantError(t, err, true, "certificate is not valid for this", "shop.invalid")
	})
	t.Run("a server that speaks plain HTTP", func(t *testing.T) {
		url := serve(t, func(http.ResponseWriter, *http.Request) {})
		url = strings.Replace(url, "http:", "https:", 1)
		_, _, err := get(t, newClient(t, url), url)
		wantError(t, err, true, "does not speak TLS", "perhaps the url must start with http")
	})
	certificate := server.TLS.Certificates[0]
	key, err := x509.MarshalPKCS8PrivateKey(certificate.PrivateKey)
	must.Succeed(t, err)
	withCertificate := func(c *source.Config) {
		c.Auth.TLS.CertFile = writePEM(t, &pem.Block{Type: "CERTIFICATE", Bytes: certificate.Certificate[0]})
		c.Auth.TLS.KeyFile = writePEM(t, &pem.Block{Type: "PRIVATE KEY", Bytes: key})
	}
	t.Run("case 92: a client certificate for the origin alone", func(t *testing.T) {
		c := newClient(t, server.URL, trust(t, server), withCertificate, func(c *source.Config) { c.AllowHosts = []string{otherHost} })
		if _, body, err := get(t, c, server.URL); err != nil || body != "HTTP/2.0 with a certificate" {
			t.Errorf("at the origin: body = %q, %v", body, err)
		}
		if _, body, err := get(t, c, other.URL); err != nil || body != "HTTP/2.0" {
			t.Errorf("at another host: body = %q, %v", body, err)
		}
	})
	t.Run("a client certificate that is missing", func(t *testing.T) {
		strict := tlsServer(t, tls.RequireAnyClientCert)
		client := newClient(t, strict.URL, trust(t, strict))
		// The server refuses after the handshake and closes at once. Now and
		// then its word is lost, and only the closing is seen.
		for range 100 {
			_, _, err := get(t, client, strict.URL)
			if err != nil && strings.Contains(err.Error(), "closed the connection") {
				continue
			}
			wantError(t, err, false, "the server refused the TLS connection", "auth.tls")
			return
		}
		t.Error("the refusal was never heard")
	})
}

func TestTLSFiles(t *testing.T) {
	t.Parallel()
	missing := filepath.Join(t.TempDir(), "missing")
	for name, test := range map[string]struct {
		tls  credential.ClientFiles
		text string
	}{
		"no CA file":             {credential.ClientFiles{CAFile: missing}, "auth.tls.ca_file: open " + missing},
		"a CA file that is none": {credential.ClientFiles{CAFile: writeFile(t, "nothing")}, "has no certificate in PEM form"},
		"no certificate file":    {credential.ClientFiles{CertFile: missing, KeyFile: missing}, "auth.tls.cert_file " + missing},
		"a bad certificate":      {credential.ClientFiles{CertFile: writeFile(t, "?"), KeyFile: writeFile(t, "?")}, "failed to find any PEM data"},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := source.Defaults()
			cfg.URL, cfg.Auth.TLS = "https://shop.example.com", test.tls
			_, err := source.NewClient(cfg, source.Options{})
			wantError(t, err, true, test.text)
		})
	}
}
