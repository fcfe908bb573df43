package admin_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/feedbridge/feedbridge/internal/admin"
	"github.com/feedbridge/feedbridge/internal/credential"
	"github.com/feedbridge/feedbridge/internal/testkit/must"
	"github.com/feedbridge/feedbridge/internal/testkit/parallel"
)

const token = "0123456789abcdef"

// newChangeable returns a server with one change, which fails with the error in the query.
func newChangeable(opts admin.Options) (s *admin.Server, changes *int) {
	if opts.Log == nil {
		opts.Log = slog.New(slog.DiscardHandler)
	}
	s, changes = admin.New(opts), new(int)
	s.AddChange("/feeds/{feed}/touch", func(_ context.Context, r *http.Request) (any, error) {
		*changes++
		switch r.FormValue("fail") {
		case "badly":
			return nil, errors.New("no disk")
		case "twice":
			return nil, &admin.ChangeError{Status: http.StatusUnprocessableEntity, Errs: []error{errors.New("one"), errors.New("two")}}
		}
		return map[string]string{"touched": r.PathValue("feed")}, nil
	})
	return s, changes
}

func constantToken(secret credential.Secret, err error) func() (credential.Secret, error) {
	return func() (credential.Secret, error) { return secret, err }
}

func TestChangesNeedTheToken(t *testing.T) {
	t.Parallel()
	withToken := constantToken(token, nil)
	for _, c := range []struct {
		situation     string
		token         func() (credential.Secret, error)
		authorization string
		status        int
		want          string
	}{
		{"no token is configured", nil, "Bearer ", 403, "changes are disabled at this address; use the socket of the daemon, or set admin.token\n"},
		{"no token is sent", withToken, "", 401, "wrong or missing token; a change needs the header Authorization: Bearer with admin.token\n"},
		{"another token", withToken, "Bearer 0123456789abcdeF", 401, "wrong or missing token; a change needs the header Authorization: Bearer with admin.token\n"},
		{"a part of the token", withToken, "Bearer 0123456789abcde", 401, "wrong or missing token; a change needs the header Authorization: Bearer with admin.token\n"},
		{"the configured token is empty", constantToken("", nil), "Bearer ", 401, "wrong or missing token; a change needs the header Authorization: Bearer with admin.token\n"},
		{"the token file is missing", constantToken("", errors.New("no file")), "Bearer ", 503, "the token for changes cannot be read; the log has the reason\n"},
		{"the token", withToken, "Bearer " + token, 200, "{\n  \"touched\": \"orders\"\n}\n"},
	} {
		parallel.Run(t, c.situation, func(t *testing.T) {
			var log bytes.Buffer
			s, changes := newChangeable(admin.Options{Token: c.token, Log: slog.New(slog.NewTextHandler(&log, nil))})
			req := httptest.NewRequest(http.MethodPost, "http://127.0.0.1:9321/feeds/orders/touch", nil)
			req.Header.Set("Authorization", c.authorization)
			answer := httptest.NewRecorder()
			s.Handler().ServeHTTP(answer, req)
			if answer.Code != c.status || answer.Body.String() != c.want {
				t.Errorf("got %d %s", answer.Code, answer.Body)
			}
			if want := c.status == http.StatusOK; (*changes == 1) != want {
				t.Errorf("%d changes", *changes)
			}
			if challenge := answer.Header().Get("WWW-Authenticate"); (challenge != "") != (c.status == http.StatusUnauthorized) {
				t.Errorf("WWW-Authenticate: %s", challenge)
			}
			if strings.Contains(log.String(), token) || strings.Contains(log.String(), "error=") != (c.status == http.StatusServiceUnavailable) {
				t.Errorf("log: %s", log.String())
			}
		})
	}
}

// Messages are shown to those who have the token; without one only at an address that other machines do not reach.
func TestReadsNeedTheTokenOrALocalAddress(t *testing.T) {
	t.Parallel()
	local, other := &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)}, &net.TCPAddr{IP: net.IPv4(10, 0, 0, 5)}
	for _, c := range []struct {
		situation     string
		token         func() (credential.Secret, error)
		authorization string
		at            net.Addr
		status        int
	}{
		{"no token, local", nil, "", local, 200},
		{"no token, a Unix socket", nil, "", &net.UnixAddr{}, 200},
		{"no token, another address", nil, "", other, 403},
		{"no token, an unknown address", nil, "", nil, 403},
		{"a token, local, not sent", constantToken(token, nil), "", local, 401},
		{"a token, another address", constantToken(token, nil), "Bearer " + token, other, 200},
	} {
		parallel.Run(t, c.situation, func(t *testing.T) {
			s := admin.New(admin.Options{Token: c.token, Log: slog.New(slog.DiscardHandler)})
			s.AddRead("/feeds/{feed}/newest", func(context.Context, *http.Request) (any, error) { return 1, nil })
			ctx := t.Context()
			if c.at != nil {
				ctx = context.WithValue(ctx, http.LocalAddrContextKey, c.at)
			}
			req := httptest.NewRequestWithContext(ctx, http.MethodGet, "http://127.0.0.1:9321/feeds/orders/newest", nil)
			req.Header.Set("Authorization", c.authorization)
			answer := httptest.NewRecorder()
			s.Handler().ServeHTTP(answer, req)
			if answer.Code != c.status {
				t.Errorf("got %d %s, want %d", answer.Code, answer.Body, c.status)
			}
		})
	}
}

func TestChangesArePOST(t *testing.T) {
	t.Parallel()
	s, changes := newChangeable(admin.Options{Token: constantToken(token, nil)})
	for method, path := range map[string]string{http.MethodGet: "/feeds/orders/touch", http.MethodPost: "/status", http.MethodDelete: "/status"} {
		req := httptest.NewRequest(method, "http://127.0.0.1:9321"+path, nil)
		req.Header.Set("Authorization", "Bearer "+token)
		answer := httptest.NewRecorder()
		s.Handler().ServeHTTP(answer, req)
		if answer.Code != http.StatusMethodNotAllowed || *changes != 0 {
			t.Errorf("%s %s: %d, %d changes", method, path, answer.Code, *changes)
		}
	}
}

func TestErrorsOfChangesAreListed(t *testing.T) {
	t.Parallel()
	s, _ := newChangeable(admin.Options{Token: constantToken(token, nil)})
	for fail, want := range map[string]string{"badly": `500 {"errors":["no disk"]}`, "twice": `422 {"errors":["one","two"]}`} {
		req := httptest.NewRequest(http.MethodPost, "http://127.0.0.1:9321/feeds/orders/touch?fail="+fail, nil)
		req.Header.Set("Authorization", "Bearer "+token)
		answer := httptest.NewRecorder()
		s.Handler().ServeHTTP(answer, req)
		got := answer.Result().Status[:4] + strings.NewReplacer("\n", "", " ", "").Replace(strings.ReplaceAll(answer.Body.String(), "no disk", "no_disk"))
		if strings.ReplaceAll(got, "no_disk", "no disk") != want {
			t.Errorf("%s: got %s, want %s", fail, got, want)
		}
	}
}

// A web page can send requests to this server under a name of its own, and read the answers.
func TestForeignHostsAreRefused(t *testing.T) {
	t.Parallel()
	bus := admin.Bus{Name: "main", Kind: "nats", Check: func(context.Context) error { return errors.New("no route to 10.0.0.7") }}
	s, changes := newChangeable(admin.Options{Token: constantToken(token, nil), Hosts: []string{"Feedbridge.example.com"}, Buses: []admin.Bus{bus}})
	for _, c := range []struct {
		host string
		ok   bool
	}{
		{"127.0.0.1:9321", true},
		{"10.1.2.3", true},
		{"[::1]:9321", true},
		{"localhost:9321", true},
		{"LOCALHOST", true},
		{"feedbridge:9321", true}, // of a compose file
		{"feedbridge.prod.svc:9321", true},
		{"feedbridge.prod.svc.cluster.local.:9321", true},
		{"feedbridge.example.com:9321", true},
		{"", true},
		{"evil.example.com:9321", false},
		{"evil.example.com", false},
		{"evil.example.com.", false},
		{"127.0.0.1.example.com", false},
		{"localhost.example.com", false},
		{"svc.example.com", false},
		{"feedbridge.svc.example.com", false},
		{"feedbridge.example.com.evil.org", false},
	} {
		for _, path := range []string{"/status", "/status/orders", "/", "/metrics", "/feeds/orders/touch"} {
			method := http.MethodGet
			if strings.HasPrefix(path, "/feeds") {
				method = http.MethodPost
			}
			req := httptest.NewRequest(method, "http://x"+path, nil)
			req.Host = c.host
			req.Header.Set("Authorization", "Bearer "+token)
			answer := httptest.NewRecorder()
			before := *changes
			s.Handler().ServeHTTP(answer, req)
			if refused := answer.Code == http.StatusForbidden && strings.Contains(answer.Body.String(), "add the name to admin.hosts"); refused == c.ok || refused && *changes > before {
				t.Errorf("%s of %q: %d %s", path, c.host, answer.Code, answer.Body)
			}
		}
		// Probes may use any name, and get no more than the status.
		for path, want := range map[string]string{"/healthz": "ok\n", "/readyz": "{"} {
			req := httptest.NewRequest(http.MethodGet, "http://x"+path, nil)
			req.Host = c.host
			answer := httptest.NewRecorder()
			s.Handler().ServeHTTP(answer, req)
			if !c.ok && path == "/readyz" {
				want = "only the status is shown to clients that use another name"
			}
			if answer.Code != http.StatusServiceUnavailable && path == "/readyz" || answer.Code != http.StatusOK && path == "/healthz" || !strings.HasPrefix(answer.Body.String(), want) {
				t.Errorf("%s of %q: %d %s", path, c.host, answer.Code, answer.Body)
			}
			if shown := strings.Contains(answer.Body.String(), "no route"); path == "/readyz" && shown != c.ok {
				t.Errorf("%s of %q: the reasons are shown: %v, want %v: %s", path, c.host, shown, c.ok, answer.Body)
			}
		}
	}
}

func TestSocketNeedsNoToken(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "admin.sock")
	// A process that was killed leaves its socket behind.
	stale, err := net.ListenUnix("unix", &net.UnixAddr{Name: path})
	must.Succeed(t, err)
	stale.SetUnlinkOnClose(false)
	// A process that is being forked would still listen.
	syscall.ForkLock.RLock()
	err = stale.Close()
	syscall.ForkLock.RUnlock()
	must.Succeed(t, err)
	if _, err := os.Lstat(path); err != nil {
		t.Fatal("the socket is gone with its listener, so nothing is tested: ", err)
	}
	l, err := admin.ListenSocket(path)
	must.Succeed(t, err)
	info, err := os.Lstat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	if _, err := admin.ListenSocket(path); err == nil || err.Error() != "admin.socket: "+path+" is in use by another program; set another path" {
		t.Errorf("a second listener: %v", err)
	}

	s, changes := newChangeable(admin.Options{})
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- s.ServeSocket(ctx, l) }()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", path)
	}}}
	for _, host := range []string{"localhost", "any.example.com"} {
		resp, err := client.Post("http://"+host+"/feeds/orders/touch", "", nil)
		must.Succeed(t, err)
		body, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			t.Errorf("%s: %s %s", host, resp.Status, body)
		}
	}
	if *changes != 2 {
		t.Errorf("%d changes", *changes)
	}
	cancel()
	if err := <-served; err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("after the end: %v", err)
	}
}

func TestSocketReplacesNothingElse(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "file")
	must.Succeed(t, os.WriteFile(path, []byte("mine"), 0o600))
	if _, err := admin.ListenSocket(path); err == nil || err.Error() != "admin.socket: "+path+" exists and is not a socket; set another path" {
		t.Errorf("got %v", err)
	}
	if text, err := os.ReadFile(path); err != nil || string(text) != "mine" {
		t.Errorf("the file has %q, %v", text, err)
	}
}

// Errors of the socket contain their cure.
func TestSocketErrorsHaveACure(t *testing.T) {
	t.Parallel()
	for path, cure := range map[string]string{
		filepath.Join(t.TempDir(), "none", "s"):              "create its directory, or set another path",
		filepath.Join(t.TempDir(), strings.Repeat("x", 120)): "set a path of at most 100 bytes",
	} {
		l, err := admin.ListenSocket(path)
		if err == nil {
			_ = l.Close()
		}
		if err == nil || !strings.HasPrefix(err.Error(), "admin.socket: ") || !strings.Contains(err.Error(), cure) {
			t.Errorf("%s: got %v, want %q in it", path, err, cure)
		}
	}
}

// A change is not left half done because its client leaves.
func TestChangeOutlivesItsClient(t *testing.T) {
	t.Parallel()
	s := admin.New(admin.Options{Token: constantToken(token, nil), Log: slog.New(slog.DiscardHandler)})
	ctx, leave := context.WithCancel(t.Context())
	done := false
	s.AddChange("/touch", func(ctx context.Context, _ *http.Request) (any, error) {
		leave()
		done = ctx.Err() == nil
		return nil, nil
	})
	req := httptest.NewRequestWithContext(ctx, http.MethodPost, "http://127.0.0.1:9321/touch", nil)
	req.Header.Set("Authorization", "Bearer "+token)
	s.Handler().ServeHTTP(httptest.NewRecorder(), req)
	if !done {
		t.Error("the context of the change ended with that of the request")
	}
}

// Browsers say so when a page of another site makes a request. That is refused for all paths, also with the
// token.
func TestRequestsOfOtherSitesAreRefused(t *testing.T) {
	t.Parallel()
	s, changes := newChangeable(admin.Options{Token: constantToken(token, nil)})
	for _, c := range []struct {
		method, site, mode, dest string
		refused                  bool
	}{
		{"GET", "cross-site", "", "", true},
		{"HEAD", "cross-site", "no-cors", "image", true},
		{"GET", "cross-site", "cors", "empty", true},
		{"GET", "cross-site", "navigate", "iframe", true},
		{"POST", "cross-site", "navigate", "document", true}, // a form
		{"GET", "cross-site", "navigate", "document", false}, // a link
		{"GET", "same-origin", "cors", "empty", false},
		{"GET", "none", "navigate", "document", false},
	} {
		for _, path := range []string{"/", "/served", "/healthz", "/readyz", "/metrics", "/status", "/status/orders", "/feeds/orders/touch"} {
			w := httptest.NewRecorder()
			r := httptest.NewRequestWithContext(t.Context(), c.method, "http://127.0.0.1:9321"+path, nil)
			r.Header.Set("Authorization", "Bearer "+token)
			r.Header.Set("Sec-Fetch-Site", c.site)
			r.Header.Set("Sec-Fetch-Mode", c.mode)
			r.Header.Set("Sec-Fetch-Dest", c.dest)
			s.Handler().ServeHTTP(w, r)
			if refused := w.Code == http.StatusForbidden; refused != c.refused {
				t.Errorf("%s %s from %s, %s of a %s: %d", c.method, path, c.site, c.mode, c.dest, w.Code)
			}
		}
	}
	if *changes > 0 {
		t.Errorf("%d changes were made", *changes)
	}
}
