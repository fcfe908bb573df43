package main

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/feedbridge/feedbridge/internal/testkit/must"
)

const adminToken = "0123456789abcdef"

func TestDaemonIsFoundByTheConfiguration(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "feedbridge.yaml")
	tokenFile := filepath.Join(t.TempDir(), "token")
	for path, text := range map[string]string{
		tokenFile: adminToken + "\n",
		// The variable is one that only the daemon has.
		file: "admin: {listen: '0.0.0.0:9400', token: 'file:" + tokenFile + "'}\nfeeds: {orders: {url: 'http://x/', auth: {bearer: '${ONLY_OF_THE_DAEMON}'}}}\n",
	} {
		must.Succeed(t, os.WriteFile(path, []byte(text), 0o600))
	}
	for _, c := range []struct {
		situation   string
		a           *app
		at, wantErr string
		hasToken    bool
	}{
		// Daemons of other tests may have a socket in the default directory.
		{"nothing is configured", &app{environ: []string{"FEEDBRIDGE_DATA_DIR=" + t.TempDir()}}, "http://127.0.0.1:9321", "", false},
		{"a file with an error elsewhere", &app{file: file}, "http://127.0.0.1:9400", "", true},
		{"a variable", &app{environ: []string{"FEEDBRIDGE_ADMIN_LISTEN=[::]:9401"}}, "http://127.0.0.1:9401", "", false},
		{"a socket", &app{file: file, environ: []string{"FEEDBRIDGE_ADMIN_SOCKET=/run/feedbridge.sock"}}, "unix:/run/feedbridge.sock", "", true},
		{"the flag", &app{file: file, admin: adminFlags{url: "https://feedbridge.example.com"}}, "https://feedbridge.example.com", "", true},
		{"the flag for the token", &app{admin: adminFlags{tokenFile: tokenFile}}, "http://127.0.0.1:9321", "", true},
		{"no server", &app{environ: []string{"FEEDBRIDGE_ADMIN_LISTEN=off", "FEEDBRIDGE_ADMIN_SOCKET=off"}}, "", "admin.listen is off", false},
		{"any port", &app{environ: []string{"FEEDBRIDGE_ADMIN_LISTEN=127.0.0.1:0", "FEEDBRIDGE_ADMIN_SOCKET=off"}}, "", "name the address with --admin", false},
		{"only the default socket", &app{environ: []string{"FEEDBRIDGE_ADMIN_LISTEN=127.0.0.1:0", "RUNTIME_DIRECTORY=/run/x"}}, "unix:/run/x/admin.sock", "", false},
		{"an error in the address", &app{environ: []string{"FEEDBRIDGE_ADMIN_LISTEN=x"}}, "", "FEEDBRIDGE_ADMIN_LISTEN: admin.listen: want host:port", false},
		{"a flag that is no URL", &app{admin: adminFlags{url: "127.0.0.1:9321"}}, "", "invalid --admin", false},
		{"a token file that is missing", &app{admin: adminFlags{tokenFile: file + "x"}}, "", "admin.token: open ", false},
		{"a file that is no YAML", &app{file: tokenFile + "x"}, "", "no such file", false},
	} {
		t.Run(c.situation, func(t *testing.T) {
			t.Parallel()
			client, err := c.a.openAdmin()
			switch {
			case c.wantErr != "":
				if err == nil || !strings.Contains(err.Error(), c.wantErr) {
					t.Errorf("got %v", err)
				}
			case err != nil:
				t.Error(err)
			case client.at != c.at || (client.token == adminToken) != c.hasToken:
				t.Errorf("got %s, with token: %t", client.at, client.token != "")
			}
		})
	}
}

func TestAdminClientExplainsErrors(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/fails":
			w.WriteHeader(http.StatusUnprocessableEntity)
			_, _ = w.Write([]byte(`{"errors": ["one", "two"]}`))
		case "/read-only":
			http.Error(w, "changes are disabled at this address", http.StatusForbidden)
		case "/unauthorized":
			http.Error(w, "wrong or missing token; a change needs the header Authorization: Bearer with admin.token", http.StatusUnauthorized)
		case "/elsewhere":
			http.Redirect(w, r, "/answers", http.StatusTemporaryRedirect)
		case "/html":
			_, _ = w.Write([]byte("<html>"))
		case "/answers":
			_, _ = w.Write([]byte(`{"token": "` + r.Header.Get("Authorization") + `"}`))
		}
	}))
	t.Cleanup(server.Close)
	client, err := newAdminClient(server.URL+"/", adminToken)
	must.Succeed(t, err)
	for path, want := range map[string]string{
		"/fails":        "one\ntwo",
		"/read-only":    "the daemon at " + server.URL + "/ answers 403 Forbidden: changes are disabled at this address",
		"/elsewhere":    "the daemon at " + server.URL + "/ answers 307 Temporary Redirect: ",
		"/unauthorized": "the daemon at " + server.URL + "/ does not accept this token; name the file that has its token with --token-file, or set admin.token as ",
		"/html":         server.URL + "/ answers with something else than feedbridge's admin server: ",
	} {
		var answer any
		if err := client.post(t.Context(), path, &answer); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: got %v", path, err)
		}
	}
	client.token = ""
	if err := client.post(t.Context(), "/unauthorized", new(any)); err == nil || !strings.Contains(err.Error(), "accepts changes only with its token; name the file that has it with --token-file") {
		t.Errorf("without a token: %v", err)
	}
	client.token = adminToken
	var answer struct{ Token string }
	if err := client.post(t.Context(), "/answers", &answer); err != nil || answer.Token != "Bearer "+adminToken {
		t.Errorf("a change: %+v, %v", answer, err)
	}
	if err := client.get(t.Context(), "/answers", &answer); err != nil || answer.Token != "" {
		t.Errorf("a look sends the token: %+v, %v", answer, err)
	}
	const unused = "http://127.0.0.1:1" // never given to a listener that asks for any port
	for at, want := range map[string]string{
		unused: "no daemon answers at " + unused + ": ",
		"unix:" + filepath.Join(t.TempDir(), "none"): "no daemon answers at unix:",
	} {
		gone, err := newAdminClient(at, "")
		must.Succeed(t, err)
		if err := gone.get(t.Context(), "/status", &answer); err == nil || !strings.HasPrefix(err.Error(), want) || !strings.HasSuffix(err.Error(), "; is it running with this configuration? --admin names another address") {
			t.Errorf("%s: %v", at, err)
		}
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// A frozen daemon accepts connections and never answers.
func TestAFrozenDaemonIsNotWaitedFor(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := &adminClient{at: "http://127.0.0.1:9321", base: "http://127.0.0.1:9321", http: &http.Client{Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
			<-r.Context().Done()
			return nil, r.Context().Err()
		})}}
		begun := time.Now()
		err := c.get(t.Context(), "/status", new(any))
		if took := time.Since(begun); took != 10*time.Second || err == nil || !strings.Contains(err.Error(), "no answer from the daemon at http://127.0.0.1:9321") {
			t.Errorf("%v, after %v", err, took)
		}
	})
}
