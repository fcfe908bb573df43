package credential_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/feedbridge/feedbridge/internal/credential"
	"github.com/feedbridge/feedbridge/internal/testkit/must"
)

// newPair returns the PEM texts of a certificate with a serial number, and of its key.
func newPair(t *testing.T, serial int64) (cert, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must.Succeed(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(serial), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	must.Succeed(t, err)
	keyDER, err := x509.MarshalECPrivateKey(private)
	must.Succeed(t, err)
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})), string(pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: keyDER}))
}

// wantSerial checks the serial number of a certificate.
func wantSerial(t *testing.T, c *tls.Certificate, err error, want int64) {
	t.Helper()
	must.Succeed(t, err)
	if got := c.Leaf.SerialNumber.Int64(); got != want {
		t.Errorf("got the certificate %d, want %d", got, want)
	}
}

func TestServerCertificateIsReadAgainWhenItChanges(t *testing.T) {
	t.Parallel()
	certFile, keyFile := filepath.Join(t.TempDir(), "cert.pem"), filepath.Join(t.TempDir(), "key.pem")
	at := time.Now().Add(-time.Hour)
	store := func(cert, key string) {
		write(t, certFile, cert)
		write(t, keyFile, key)
		at = at.Add(time.Minute)
		for _, file := range []string{certFile, keyFile} {
			must.Succeed(t, os.Chtimes(file, at, at))
		}
	}
	if _, err := credential.ServerConfig(certFile, keyFile); err == nil {
		t.Error("missing files are no error")
	}
	store("nothing", "nothing")
	if _, err := credential.ServerConfig(certFile, keyFile); err == nil || !strings.Contains(err.Error(), "are not a certificate and its key") {
		t.Errorf("files without a certificate: %v", err)
	}
	cert, key := newPair(t, 1)
	store(cert, key)
	settings, err := credential.ServerConfig(certFile, keyFile)
	must.Succeed(t, err)
	c, err := settings.GetCertificate(nil)
	wantSerial(t, c, err, 1)

	renewed, renewedKey := newPair(t, 2)
	store(renewed, key) // half of the renewal
	c, err = settings.GetCertificate(nil)
	wantSerial(t, c, err, 1)
	store(renewed, renewedKey)
	c, err = settings.GetCertificate(nil)
	wantSerial(t, c, err, 2)
	must.Succeed(t, os.Remove(certFile))
	c, err = settings.GetCertificate(nil)
	wantSerial(t, c, err, 2)
}

func TestClientCertificateIsReadForEachHandshake(t *testing.T) {
	t.Parallel()
	certFile, keyFile := filepath.Join(t.TempDir(), "cert.pem"), filepath.Join(t.TempDir(), "key.pem")
	for serial := range int64(2) {
		cert, key := newPair(t, serial+1)
		write(t, certFile, cert)
		write(t, keyFile, key)
		settings, err := credential.ClientFiles{CAFile: certFile, CertFile: certFile, KeyFile: keyFile}.Config("tls")
		must.Succeed(t, err)
		cert, key = newPair(t, 10)
		write(t, certFile, cert)
		write(t, keyFile, key)
		c, err := settings.GetClientCertificate(nil)
		wantSerial(t, c, err, 10)
		if settings.RootCAs == nil {
			t.Error("ca_file is ignored")
		}
	}
	if settings, err := (credential.ClientFiles{}).Config("tls"); err != nil || settings.RootCAs != nil || settings.GetClientCertificate != nil {
		t.Errorf("without files: %+v, %v", settings, err)
	}
}

func TestClientFilesThatCannotBeRead(t *testing.T) {
	t.Parallel()
	missing, bad := filepath.Join(t.TempDir(), "missing"), filepath.Join(t.TempDir(), "bad")
	write(t, bad, "nothing")
	for _, tt := range []struct {
		files credential.ClientFiles
		want  string
	}{
		{credential.ClientFiles{CAFile: missing}, "auth.tls.ca_file: open " + missing},
		{credential.ClientFiles{CAFile: bad}, "auth.tls.ca_file: " + bad + " has no certificate in PEM form"},
		{credential.ClientFiles{CertFile: missing, KeyFile: bad}, "auth.tls.cert_file " + missing + " with key_file " + bad + ": open " + missing},
		{credential.ClientFiles{CertFile: bad, KeyFile: bad}, "auth.tls.cert_file " + bad + " with key_file " + bad + ": tls: failed to find any PEM data"},
	} {
		if _, err := tt.files.Config("auth.tls"); err == nil || !strings.HasPrefix(err.Error(), tt.want) {
			t.Errorf("%+v: got %v, want %s", tt.files, err, tt.want)
		}
	}
}

func TestPEMFilesWithAByteOrderMark(t *testing.T) {
	t.Parallel()
	certFile, keyFile := filepath.Join(t.TempDir(), "cert.pem"), filepath.Join(t.TempDir(), "key.pem")
	cert, key := newPair(t, 1)
	write(t, certFile, "\ufeff"+cert)
	write(t, keyFile, "\ufeff"+key)
	client, err := credential.ClientFiles{CAFile: certFile, CertFile: certFile, KeyFile: keyFile}.Config("tls")
	must.Succeed(t, err)
	c, err := client.GetClientCertificate(nil)
	wantSerial(t, c, err, 1)
	server, err := credential.ServerConfig(certFile, keyFile)
	must.Succeed(t, err)
	c, err = server.GetCertificate(nil)
	wantSerial(t, c, err, 1)
}

func TestEncryptedKeyIsNamedAsSuch(t *testing.T) {
	t.Parallel()
	certFile, keyFile := filepath.Join(t.TempDir(), "cert.pem"), filepath.Join(t.TempDir(), "key.pem")
	cert, plain := newPair(t, 1)
	write(t, certFile, cert)
	for text, encrypted := range map[string]bool{
		string(pem.EncodeToMemory(&pem.Block{Type: "ENCRYPTED PRIVATE KEY", Bytes: []byte("x")})):                                                            true,
		string(pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Headers: map[string]string{"Proc-Type": "4,ENCRYPTED", "DEK-Info": "AES-128-CBC,00"}})): true,
		string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: []byte("x")})):                                                                      false,
	} {
		write(t, keyFile, text)
		_, ofClient := credential.ClientFiles{CertFile: certFile, KeyFile: keyFile}.Config("tls")
		_, ofServer := credential.ServerConfig(certFile, keyFile)
		for _, err := range []error{ofClient, ofServer} {
			want := ": " + keyFile + " is encrypted; write it without its password: openssl pkey -in " + keyFile + " -out PLAIN"
			if err == nil || strings.HasSuffix(err.Error(), want) != encrypted {
				t.Errorf("%s: got %v", text, err)
			}
		}
	}
	write(t, keyFile, "BEGIN ENCRYPTED PRIVATE KEY is what this was\n"+plain)
	if _, err := credential.ServerConfig(certFile, keyFile); err != nil {
		t.Errorf("a plain key: %v", err)
	}
}
