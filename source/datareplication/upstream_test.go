package datareplication

import (
	"bytes"
	"compress/gzip"
	"encoding/pem"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/testkit/httpfault"
	"github.com/feedbridge/feedbridge/internal/testkit/must"
	"github.com/feedbridge/feedbridge/internal/testkit/parallel"
	"github.com/feedbridge/feedbridge/sink"
	"github.com/feedbridge/feedbridge/source"
)

var _ feed.Source = (*Source)(nil)

// gated returns a source as a bridge has it: after the gate, which leaves out entities that
// the topic has.
func gated(src *limitedSource) *sink.Gate {
	return &sink.Gate{
		Source: src, IDs: sink.NewIDs(0), Log: slog.New(slog.DiscardHandler),
		Fits: func(e []feed.Entity) (int, error) { return len(e), nil },
	}
}

func TestRepeatedIDs(t *testing.T) {
	t.Parallel()
	parallel.Run(t, "case 67: an ID that the feed has twice", func(t *testing.T) {
		pages := []string{"a@1 b@1 a@1", "b@2 c@2"}
		// The source returns the entities of the feed.
		readOn(t, newSite(pages...).source(t), nil).want(t, "a b a b c")
		r := readOn(t, gated(newSite(pages...).source(t)), nil)
		r.want(t, "a b c")
		r.wantViolations(t, kindRepeatedID, kindRepeatedID)
	})
	parallel.RunVirtual(t, "case 98: a restart between publishing and the checkpoint", func(t *testing.T) {
		s := newSite("a@1 b@1", "c@2")
		g := gated(s.source(t))
		b, err := g.Next(t.Context(), nil, feed.Limits{})
		must.Succeed(t, err)
		if len(b.Entities) != 2 {
			t.Fatalf("got %d entities", len(b.Entities))
		}
		// The topic holds them and the checkpoint knows nothing of them.
		g.IDs.Commit(b.Entities)
		g.Source = s.source(t)
		r := readOn(t, g, nil)
		r.want(t, "c")
		r.wantViolations(t, kindRepeatedID, kindRepeatedID)
	})
}

// TestBrokenPages breaks pages at every point and in every way. It wants the complete
// entities, then an error, and when the page is complete the rest, each once.
func TestBrokenPages(t *testing.T) {
	t.Parallel()
	intact := string((&sheet{entities: []string{"b@2", "c@3", "d@3"}}).render(0))
	at := func(text string) int { return strings.LastIndex(intact, text) + len(text) }
	cuts := map[string]int{
		"in the preamble":              0,
		"mid body":                     at("body of"),
		"in headers":                   at("Content-ID: d\r\nLast-Mod"),
		"between headers and body":     at("PUT\r\n\r\n"),
		"after --b":                    strings.LastIndex(intact, "--b\r\n") + 3,
		"after --b CRLF":               strings.LastIndex(intact, "--b\r\n") + 5,
		"after --b-":                   at("--b-"),
		"in the first entity":          30,
		"before the closing delimiter": strings.LastIndex(intact, "--b--"),
	}
	breaks := map[string]func(n int) httpfault.Fault{
		"clean end": func(n int) httpfault.Fault {
			return httpfault.Edit(func(_ http.Header, body []byte) []byte { return body[:n] })
		},
		"connection cut":       httpfault.Cut,
		"wrong Content-Length": httpfault.Length,
	}
	for where, n := range cuts {
		for how, fault := range breaks {
			parallel.Run(t, "case 77: "+where+", "+how, func(t *testing.T) {
				s := newSite("a@1", "b@2 c@3 d@3", "e@4")
				whole := min(strings.Count(intact[:n], "body of"), strings.Count(intact[:n], "--b\r\n")-1)
				if strings.HasSuffix(intact[:n], "--b-") || where == "before the closing delimiter" {
					whole = 2 // the third has no delimiter behind it yet
				}
				whole = max(whole, 0)
				s.Add("GET", "/1", fault(n))
				if whole > 0 { // so that the second call meets it again
					s.Add("GET", "/1", fault(n))
				}
				src := s.source(t, ahead(0))
				r := readOn(t, src, nil)
				ids := []string{"a", "b", "c", "d"}[:1+whole]
				r.wantIDs(t, strings.Join(ids, " "))
				r.wantError(t, false, "", "http://feed.example/1")
				if place := describeCursor(t, r.cursor); place.Last != ids[len(ids)-1] || whole > 0 && place.Index != whole {
					t.Errorf("read %v, the cursor is at %+v", ids, place)
				}
				rest := strings.Join([]string{"b", "c", "d", "e"}[whole:], " ")
				for _, next := range []*limitedSource{src, s.source(t)} {
					readOn(t, next, r.cursor).want(t, rest)
				}
			})
		}
	}
	parallel.Run(t, "case 81: entities, and then what is none", func(t *testing.T) {
		s := newSite("a@1 b@2 c@3")
		spoil := httpfault.Edit(func(_ http.Header, body []byte) []byte {
			return bytes.Replace(body, []byte("Content-ID: c\r\n"), nil, 1)
		})
		s.Add("GET", "/latest", spoil)
		s.Add("GET", "/0", spoil, spoil)
		src := s.source(t)
		r := readOn(t, src, nil)
		r.wantIDs(t, "a b")
		r.wantError(t, true, "missing_content_id", "entity 2")
		again := readOn(t, src, r.cursor)
		again.wantIDs(t, "")
		again.wantError(t, true, "missing_content_id")
		readOn(t, src, r.cursor).want(t, "c")
	})
}

func TestUpstreamFails(t *testing.T) {
	t.Parallel()
	// Each fault meets the request; reading goes on exactly once it is over.
	faults := []struct {
		name      string
		fault     httpfault.Fault
		permanent bool
		words     string
	}{
		{"case 85: 500", httpfault.Status(500), false, "500 Internal Server Error"},
		{"case 85: 503", httpfault.Status(503), false, "503 Service Unavailable"},
		{"case 86: connection reset", httpfault.Reset, false, "closed the connection"},
		{"case 86: garbage", garbage, false, "malformed HTTP"},
		{"case 86: header timeout", httpfault.Hang, false, "(timeout)"},
		{"case 90: 206", httpfault.Status(206), true, "206 Partial Content"},
		{"case 90: 304 without a condition", httpfault.Status(304), true, "304 Not Modified"},
		{"case 90: redirects without end", loop, true, "redirects in a row"},
		{"a page that is no page", httpfault.Status(200), true, ""},
		{"401", httpfault.Status(401), true, "check auth"},
	}
	requests := []string{"GET /latest", "HEAD /0", "GET /0", "GET /1"}
	for _, tt := range faults {
		for _, request := range requests {
			parallel.RunVirtual(t, tt.name+" at "+request, func(t *testing.T) {
				s := newSite("a@1 b@2", "c@3 d@4")
				method, path, _ := strings.Cut(request, " ")
				if method == "HEAD" {
					method = "" // GET has the fault, too
				}
				for range 12 {
					s.Add(method, path, tt.fault)
				}
				src := s.source(t)
				r := readOn(t, src, nil)
				if r.err == nil {
					t.Fatalf("there was no error; read %v", r.ids)
				}
				if got := errors.Is(r.err, feed.ErrPermanent); got != tt.permanent {
					t.Errorf("error %v is permanent: %v, want %v", r.err, got, tt.permanent)
				}
				for _, word := range []string{tt.words, "http://feed.example/"} {
					if !strings.Contains(r.err.Error(), word) {
						t.Errorf("error %v lacks %q", r.err, word)
					}
				}
				var all []string
				for all = r.ids; r.err != nil && s.Left() > 0; all = append(all, r.ids...) {
					r = readOn(t, src, r.cursor)
				}
				if r.err != nil {
					r = readOn(t, src, r.cursor)
					all = append(all, r.ids...)
				}
				if got := strings.Join(all, " "); got != "a b c d" || r.err != nil {
					t.Errorf("read %q, %v", got, r.err)
				}
			})
		}
	}
	parallel.Run(t, "case 84: 404 on the entry point", func(t *testing.T) {
		s := newSite("a@1")
		src := s.source(t)
		s.Add("", "/latest", httpfault.Status(404), httpfault.Status(410))
		for _, status := range []string{"404 Not Found", "410 Gone"} {
			readOn(t, src, nil).wantError(t, true, "", "http://feed.example/latest", status)
		}
		readOn(t, src, nil).want(t, "a")
	})
	parallel.RunVirtual(t, "case 85: Retry-After is kept to", func(t *testing.T) {
		s := newSite("a@1", "b@2")
		s.Add("GET", "/1", httpfault.Status(503, "Retry-After", "40"))
		src := s.source(t)
		r := readOn(t, src, nil)
		r.wantIDs(t, "a")
		r.wantError(t, false, "")
		s.requests()
		time.Sleep(39 * time.Second)
		early := readOn(t, src, r.cursor)
		early.wantError(t, false, "", "Retry-After")
		if feed.RetryDelay(early.err) != time.Second {
			t.Errorf("error %v does not say when to try again", early.err)
		}
		s.wantRequests(t)
		time.Sleep(time.Second)
		readOn(t, src, r.cursor).want(t, "b")
	})
	parallel.RunVirtual(t, "case 86: no bytes come in the middle of a body", func(t *testing.T) {
		s := newSite("a@1 b@2 c@3")
		s.Add("GET", "/latest", httpfault.Stall(200))
		s.Add("GET", "/0", httpfault.Stall(200))
		src := s.source(t)
		r := readOn(t, src, nil)
		r.wantIDs(t, "a")
		r.wantError(t, false, "", "http://feed.example/0", "(timeout)")
		readOn(t, src, r.cursor).want(t, "b c")
	})
	parallel.RunVirtual(t, "a long way back is not lost to errors on it", func(t *testing.T) {
		s := newSite("a@1", "b@2", "c@3", "d@4")
		src := s.source(t, ahead(0))
		s.Add("HEAD", "", httpfault.Pass, httpfault.Status(503), httpfault.Status(503))
		r := readOn(t, src, nil)
		r.wantError(t, false, "")
		r = readOn(t, src, r.cursor)
		r.want(t, "a b c d")
		s.wantRequests(t, "GET /latest", "HEAD /2", "HEAD /1", "HEAD /1", "HEAD /1", "HEAD /0", "GET /0", "GET /1", "GET /2", "GET /3")
	})
}

// garbage answers with bytes that are not HTTP.
func garbage(w http.ResponseWriter, _ *http.Request, _ http.Handler) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(err)
	}
	_, _ = io.WriteString(conn, "220 mail.example ESMTP\r\n\r\n")
	conn.Close()
}

func loop(w http.ResponseWriter, r *http.Request, _ http.Handler) {
	http.Redirect(w, r, "http://feed.example"+r.URL.Path, http.StatusFound)
}

func TestUpstreamVaries(t *testing.T) {
	t.Parallel()
	for _, status := range []int{http.StatusMethodNotAllowed, http.StatusNotImplemented} {
		parallel.Run(t, "case 88: a server that does not know HEAD", func(t *testing.T) {
			s := newSite("a@1", "b@2")
			s.noETag, s.noLength = true, true
			for range 2 {
				s.Add("HEAD", "", httpfault.Status(status))
			}
			src := s.source(t)
			r := readOn(t, src, nil)
			r.want(t, "a b")
			s.wantRequests(t, "GET /latest", "HEAD /0", "GET /0", "GET /0", "GET /1")
			readOn(t, src, r.cursor).want(t, "")
			s.wantRequests(t, "GET /1")
		})
	}
	parallel.Run(t, "case 89: 204 is a feed that is empty still", func(t *testing.T) {
		s := newSite()
		src := s.source(t)
		for range 3 {
			r := readOn(t, src, nil)
			r.want(t, "")
			if r.cursor != nil {
				t.Errorf("the cursor is %s", r.cursor)
			}
		}
		s.publish("a@1")
		readOn(t, src, nil).want(t, "a")
	})
	parallel.Run(t, "case 91: the entry point is a redirect, with relative links behind it", func(t *testing.T) {
		s := newSite("a@1", "b@2", "c@3")
		s.base = "../x"
		for path, p := range s.pages {
			s.pages["/x"+path] = p
		}
		s.Add("GET", "/latest", func(w http.ResponseWriter, r *http.Request, _ http.Handler) {
			http.Redirect(w, r, "/x/2", http.StatusSeeOther)
		})
		readOn(t, s.source(t), nil).want(t, "a b c")
		s.wantRequests(t, "GET /latest", "GET /x/2", "HEAD /x/1", "HEAD /x/0", "GET /x/0", "GET /x/1", "GET /x/2")
	})
	for name, allowed := range map[string][]string{"refused": nil, "allowed, without the headers": {"other.example"}} {
		parallel.Run(t, "case 92: a link to another origin, "+name, func(t *testing.T) {
			s := newSite("a@1", "b@2", "c@3")
			s.pages["/1"].next = "http://other.example/2"
			var seen []string
			look := func(w http.ResponseWriter, r *http.Request, next http.Handler) {
				seen = append(seen, r.Host+" "+r.Header.Get("X-Api-Key"))
				next.ServeHTTP(w, r)
			}
			s.Add("GET", "", look, look, look)
			src := s.source(t, withHeader("X-Api-Key: k3y"), from(t, startAt(2)), func(cfg *options) { cfg.AllowHosts = allowed })
			r := readOn(t, src, nil)
			want := []string{"feed.example k3y", "other.example "}
			if allowed == nil {
				want = want[:1]
				r.wantIDs(t, "b")
				r.wantError(t, true, "", "other.example", "allow_hosts")
				again := readOn(t, src, r.cursor)
				again.wantIDs(t, "")
				again.wantError(t, true, "", "other.example", "allow_hosts")
				want = append(want, "feed.example k3y") // it is looked for from the entry point
			} else {
				r.want(t, "b c")
			}
			if !slices.Equal(slices.Compact(seen), slices.Compact(want)) {
				t.Errorf("seen %q, want %q", seen, want)
			}
		})
	}
	parallel.Run(t, "case 87: a link that is no http URL", func(t *testing.T) {
		s := newSite("a@1", "b@2")
		src := s.source(t, from(t, startAt(2)))
		r := readOn(t, src, nil)
		r.want(t, "b")
		s.edit(func() { s.pages["/1"].next = "ftp://feed.example/2" })
		s.requests()
		r = readOn(t, src, r.cursor)
		r.wantError(t, true, "bad_link", "ftp://feed.example/2")
		s.wantRequests(t, "GET /1 if")
	})
	parallel.Run(t, "case 94: a page that is compressed, whole and cut", func(t *testing.T) {
		pack := func(n int) httpfault.Fault {
			return httpfault.Edit(func(h http.Header, body []byte) []byte {
				var b bytes.Buffer
				w := gzip.NewWriter(&b)
				_, _ = w.Write(body)
				if err := w.Close(); err != nil {
					panic(err)
				}
				h.Set("Content-Encoding", "gzip")
				return b.Bytes()[:b.Len()-n]
			})
		}
		s := newSite("a@1 b@2 c@3")
		src := s.source(t)
		s.Add("GET", "/latest", pack(30))
		s.Add("GET", "/0", pack(30), pack(0))
		r := readOn(t, src, nil)
		r.wantError(t, false, "", "http://feed.example/0")
		rest := readOn(t, src, r.cursor)
		if got := strings.Join(append(r.ids, rest.ids...), " "); got != "a b c" || rest.err != nil {
			t.Errorf("read %q, %v", got, rest.err)
		}
	})
	parallel.Run(t, "case 95: the headers are on every request", func(t *testing.T) {
		s := newSite("a@1", "b@2")
		asked := 0
		look := func(w http.ResponseWriter, r *http.Request, next http.Handler) {
			if r.Header.Get("Authorization") == "Bearer t0ken" && r.Header.Get("X-Api-Key") == "k3y" {
				asked++
			}
			next.ServeHTTP(w, r)
		}
		s.Add("", "", look, look, look, look)
		readOn(t, s.source(t, withHeader("X-Api-Key: k3y"), func(cfg *options) { cfg.Auth.Bearer = "t0ken" }), nil).want(t, "a b")
		if asked != 4 {
			t.Errorf("%d of 4 requests had the headers", asked)
		}
	})
}

func TestNoWayBackFromHTTPS(t *testing.T) {
	t.Parallel()
	s := newSite("a@1", "b@2")
	server := httptest.NewTLSServer(s)
	t.Cleanup(server.Close)
	s.base = server.URL
	s.pages["/0"].next = strings.Replace(server.URL, "https:", "http:", 1) + "/1"
	ca := filepath.Join(t.TempDir(), "ca.pem")
	block := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	must.Succeed(t, os.WriteFile(ca, block, 0o600))
	cfg := Config{Config: source.Defaults()}
	cfg.URL, cfg.Auth.TLS.CAFile = server.URL+"/latest", ca
	client, err := source.NewClient(cfg.Config, source.Options{})
	must.Succeed(t, err)
	t.Cleanup(client.CloseIdle)
	t.Run("case 93: a next link from https to http", func(t *testing.T) {
		r := readOn(t, New(cfg, client, slog.New(slog.DiscardHandler)), nil)
		r.wantIDs(t, "a")
		r.wantError(t, true, "", "https back to http")
	})
}
