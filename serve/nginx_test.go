package serve

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/testkit/freeport"
	"github.com/feedbridge/feedbridge/internal/testkit/must"
	"github.com/feedbridge/feedbridge/internal/testkit/parallel"
)

var nginxBlock = regexp.MustCompile("(?s)```nginx\n(.*?)```")

// startNginx runs nginx with the configuration of docs/serving.md in front of a server, and returns its
// URL. It skips the test where there is no nginx; REQUIRE_NGINX=1 makes it fail there.
func startNginx(t *testing.T, server string) string {
	t.Helper()
	program, err := exec.LookPath("nginx")
	if err != nil {
		if os.Getenv("REQUIRE_NGINX") != "" {
			t.Fatal(err)
		}
		t.Skip("there is no nginx")
	}
	docs, err := os.ReadFile("../docs/serving.md")
	must.Succeed(t, err)
	port, err := freeport.Reserve()
	must.Succeed(t, err)
	address := fmt.Sprintf("127.0.0.1:%d", port)
	dir := t.TempDir()
	sites := strings.NewReplacer("listen 80", "listen "+address, "http://127.0.0.1:8080", server, "/var/cache/nginx", dir).Replace(string(nginxBlock.FindSubmatch(docs)[1]))
	paths := ""
	for _, module := range []string{"client_body", "proxy", "fastcgi", "uwsgi", "scgi"} {
		paths += fmt.Sprintf("%s_temp_path %s/%s;\n", module, dir, module)
	}
	config := filepath.Join(dir, "nginx.conf")
	text := fmt.Sprintf("daemon off; master_process off; pid %s/pid; error_log %s/error.log;\nevents {}\nhttp {\naccess_log off;\n%s%s}\n", dir, dir, paths, sites)
	must.Succeed(t, os.WriteFile(config, []byte(text), 0o600))
	nginx := exec.CommandContext(t.Context(), program, "-c", config, "-e", dir+"/error.log")
	nginx.Cancel = func() error { return nginx.Process.Signal(syscall.SIGQUIT) }
	must.Succeed(t, nginx.Start())
	t.Cleanup(func() { _ = nginx.Wait() })
	return "http://" + address
}

// sent counts the answers of a server with and without a body.
type sent struct{ whole, unchanged atomic.Int64 }

func (s *sent) wrap(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got := httptest.NewRecorder()
		next.ServeHTTP(got, r)
		if got.Code == http.StatusNotModified {
			s.unchanged.Add(1)
		} else {
			s.whole.Add(1)
		}
		for name, values := range got.Header() {
			w.Header()[name] = values
		}
		w.WriteHeader(got.Code)
		_, _ = w.Write(got.Body.Bytes())
	})
}

// Behind nginx, as docs/serving.md configures it, pages that do not change are requested once, idle polls
// take no page from feedbridge and none from nginx, and a foreign Host changes nothing.
func TestNginx(t *testing.T) {
	t.Parallel()
	for _, format := range []Format{DataReplication, Atom, RSS} {
		parallel.Run(t, string(format), func(t *testing.T) {
			topic, site := newTopic(), newSite(t)
			add := func() {
				i := int(topic.span.End)
				topic.add(messageOf(fmt.Sprintf("urn:x:%d", i), feed.Put, later(i), "x"))
			}
			for range 10 {
				add()
			}
			var upstream sent
			site.Config.Handler = upstream.wrap(site.Config.Handler)
			nginx := startNginx(t, site.URL)
			site.feed.Store(serveTopic(t, topic, as(format), func(c *Config) {
				if format == DataReplication {
					c.PublicURL = nginx + "/feeds/orders"
				}
			}).Feed)
			get := func(path, host, tag string) got {
				t.Helper()
				for {
					r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, nginx+"/feeds/orders"+path, nil)
					must.Succeed(t, err)
					r.Host = host
					r.Header.Set("If-None-Match", tag)
					resp, err := http.DefaultClient.Do(r)
					if err != nil {
						time.Sleep(10 * time.Millisecond) // until it has started
						continue
					}
					defer resp.Body.Close()
					body, err := io.ReadAll(resp.Body)
					must.Succeed(t, err)
					return got{resp.StatusCode, resp.Header, string(body)}
				}
			}
			for _, path := range []string{"/latest", "/pages/e0-3-0", "/pages/e0-3-1"} {
				get(path, "stranger.example", "").want(t, 200)
			}
			before := upstream.whole.Load()
			for range 5 {
				if g := get("/pages/e0-3-0", "", "").want(t, 200); strings.Contains(fmt.Sprint(g), "stranger") {
					t.Errorf("got %v", g)
				}
			}
			tag := get("/latest", "", "").want(t, 200).header.Get("ETag")
			for upstream.unchanged.Load() == 0 {
				get("/latest", "", tag).want(t, 304)
				time.Sleep(50 * time.Millisecond)
			}
			if n := upstream.whole.Load() - before; n > 0 {
				t.Errorf("feedbridge sent %d documents again", n)
			}
			site.URL = nginx
			if n := len(site.readAll(t, format)); n != 10 {
				t.Errorf("got %d of 10 entities", n)
			}
			add()
			for get("/latest", "", tag).status == 304 {
				time.Sleep(50 * time.Millisecond)
			}
		})
	}
}
