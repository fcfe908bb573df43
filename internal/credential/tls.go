package credential

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"sync"
	"time"
)

// ClientFiles are the PEM files of a TLS client. Each may be empty. Their yaml tags are keys of the
// configuration file.
type ClientFiles struct {
	// CertFile and KeyFile are the client's certificate and its key. They are read again
	// for each handshake.
	CertFile string `yaml:"cert_file"`
	KeyFile  string `yaml:"key_file"`
	// CAFile has the certificates of the authorities that are trusted; empty for those of
	// the system. It is read once.
	CAFile string `yaml:"ca_file"`
}

// Config returns the configuration of a TLS client, of version 1.2 at least. It reads every
// file once, so that a wrong one is an error now and not at the first handshake. key is
// the name of the files' section in the configuration; errors begin with it.
func (f ClientFiles) Config(key string) (*tls.Config, error) {
	settings := &tls.Config{MinVersion: tls.VersionTLS12}
	if f.CAFile != "" {
		pem, err := ReadFile(f.CAFile)
		if err != nil {
			return nil, fmt.Errorf("%s.ca_file: %w", key, err)
		}
		settings.RootCAs = x509.NewCertPool()
		if !settings.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("%s.ca_file: %s has no certificate in PEM form", key, f.CAFile)
		}
	}
	if f.CertFile != "" {
		load := func() (*tls.Certificate, error) {
			certificate, err := loadPair(f.CertFile, f.KeyFile)
			if err != nil {
				return nil, fmt.Errorf("%s.cert_file %s with key_file %s: %w", key, f.CertFile, f.KeyFile, err)
			}
			return certificate, nil
		}
		if _, err := load(); err != nil {
			return nil, err
		}
		settings.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return load() }
	}
	return settings, nil
}

// ServerConfig returns the configuration of a TLS server, of version 1.2 at least, that has
// the certificate of two PEM files. The files are read again when one of them changes. If
// that fails, the server keeps its certificate: a renewal may be half written.
func ServerConfig(certFile, keyFile string) (*tls.Config, error) {
	c := &serverCertificate{certFile: certFile, keyFile: keyFile}
	if _, err := c.currentCertificate(nil); err != nil {
		return nil, err
	}
	return &tls.Config{GetCertificate: c.currentCertificate, MinVersion: tls.VersionTLS12}, nil
}

type serverCertificate struct {
	certFile, keyFile string

	mu      sync.Mutex
	loaded  *tls.Certificate
	changed time.Time // the newest modification time of the files, as loaded
}

// currentCertificate returns the certificate of now. It returns an error only if there has never been one.
func (c *serverCertificate) currentCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	changed, err := newestChange(c.certFile, c.keyFile)
	if err == nil && (c.loaded == nil || changed.After(c.changed)) {
		var loaded *tls.Certificate
		if loaded, err = loadPair(c.certFile, c.keyFile); err == nil {
			c.loaded, c.changed = loaded, changed
		} else {
			err = fmt.Errorf("%s and %s are not a certificate and its key: %w", c.certFile, c.keyFile, err)
		}
	}
	if c.loaded == nil {
		return nil, err
	}
	return c.loaded, nil
}

// loadPair reads the PEM files of a certificate and its key.
func loadPair(certFile, keyFile string) (*tls.Certificate, error) {
	cert, err := ReadFile(certFile)
	if err != nil {
		return nil, err
	}
	key, err := ReadFile(keyFile)
	if err != nil {
		return nil, err
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil && (bytes.Contains(key, []byte("BEGIN ENCRYPTED PRIVATE KEY")) || bytes.Contains(key, []byte("Proc-Type: 4,ENCRYPTED"))) {
		err = fmt.Errorf("%s is encrypted; write it without its password: openssl pkey -in %s -out PLAIN", keyFile, keyFile)
	}
	return &pair, err
}

// newestChange returns when the file was written that was written last.
func newestChange(files ...string) (time.Time, error) {
	var last time.Time
	for _, file := range files {
		info, err := os.Stat(file)
		if err != nil {
			return last, ExplainFileError(err)
		}
		if info.ModTime().After(last) {
			last = info.ModTime()
		}
	}
	return last, nil
}
