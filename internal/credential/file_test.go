package credential_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/feedbridge/feedbridge/internal/credential"
)

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestReadSecretFile(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "secret")
	for _, tt := range []struct{ text, read, trimmed string }{
		{"hunter2", "hunter2", "hunter2"},
		{"hunter2\r\n\n", "hunter2", "hunter2"},
		{" hunter2\t\n", " hunter2\t", "hunter2"},
		{"two\nlines\n", "two\nlines", "two\nlines"},
		{" \n", " ", ""},
		{"\n", "", ""},
		{"", "", ""},
		{"\ufeffhunter2\r\n", "hunter2", "hunter2"},
		{"\ufeff\n", "", ""},
	} {
		write(t, file, tt.text) // the file is read again each time
		for name, f := range map[string]struct {
			read func(credential.Secret, string) (credential.Secret, error)
			want string
		}{"Read": {credential.Read, tt.read}, "ReadTrimmed": {credential.ReadTrimmed, tt.trimmed}} {
			got, err := f.read(credential.Secret("file:"+file), "password")
			if got.Reveal() != f.want {
				t.Errorf("%s of %q: got %q, want %q", name, tt.text, got.Reveal(), f.want)
			}
			if empty := "password: " + file + " is empty"; f.want == "" && (err == nil || err.Error() != empty) || f.want != "" && err != nil {
				t.Errorf("%s of %q: %v", name, tt.text, err)
			}
		}
	}
	if _, err := credential.Read(credential.Secret("file:"+filepath.Dir(file)), "password"); err == nil || !strings.HasSuffix(err.Error(), "; name a file in it") {
		t.Errorf("a directory: %v", err)
	}
	if err := credential.ExplainFileError(&fs.PathError{Op: "open", Path: file, Err: fs.ErrPermission}); !strings.HasSuffix(err.Error(), "; give the user of feedbridge the right to read the file") {
		t.Errorf("without the right to read it: %v", err)
	}
	if got, err := credential.Read("value ", "password"); got != "value " || err != nil {
		t.Errorf("without a file: %q, %v", got.Reveal(), err)
	}
	if _, err := credential.Read(credential.Secret("file:"+file+"x"), "password"); !errors.Is(err, fs.ErrNotExist) || !strings.HasPrefix(err.Error(), "password: ") || !strings.HasSuffix(err.Error(), "; create the file, or correct its path") {
		t.Errorf("a missing file: %v", err)
	}
}

func TestFilesThatAreNotUTF8(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "file")
	for text, want := range map[string]string{
		"\xff\xfeh\x00": file + " is in UTF-16; write it in UTF-8",
		"\xfe\xff\x00h": file + " is in UTF-16; write it in UTF-8",
		"hunter2\x00\n": file + " contains a NUL byte; write it as text, certificates and keys as PEM",
	} {
		write(t, file, text)
		_, ofSecret := credential.Read(credential.Secret("file:"+file), "password")
		_, ofAuthorities := credential.ClientFiles{CAFile: file}.Config("tls")
		_, ofPair := credential.ClientFiles{CertFile: file, KeyFile: file}.Config("tls")
		_, ofServer := credential.ServerConfig(file, file)
		for key, err := range map[string]error{
			"password": ofSecret, "tls.ca_file": ofAuthorities, "tls.cert_file " + file + " with key_file " + file: ofPair,
			file + " and " + file + " are not a certificate and its key": ofServer,
		} {
			if err == nil || err.Error() != key+": "+want {
				t.Errorf("%q: got %v, want %s: %s", text, err, key, want)
			}
		}
	}
}
