//go:build noembedded

package main

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"strings"
	"testing"

	"github.com/feedbridge/feedbridge/internal/testkit/must"
	"github.com/feedbridge/feedbridge/internal/testkit/parallel"
	"github.com/feedbridge/feedbridge/internal/testkit/samplefeed"
)

// A program without the embedded server refuses each command that needs it, as an error of
// the configuration, so that a supervisor does not try again. Commands without a bus work.
func TestProgramWithoutTheEmbeddedServer(t *testing.T) {
	t.Parallel()
	parallel.Run(t, "there is no NATS server in the program", func(t *testing.T) {
		out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", "-tags", "noembedded", ".").Output()
		must.Succeed(t, err)
		if !strings.Contains(string(out), "github.com/nats-io/nats.go\n") || strings.Contains(string(out), "github.com/nats-io/nats-server/") {
			t.Errorf("the program contains the packages\n%s", out)
		}
	})
	const url = "https://shop.example.com/feed/latest"
	for _, args := range [][]string{
		{"run", url},
		{"demo", "--data-dir", t.TempDir()},
		{"check"},
		{"check", "--connect"},
		{"checkpoint", "show", "orders"},
	} {
		parallel.Run(t, strings.Join(args[:min(2, len(args))], " "), func(t *testing.T) {
			var out, errw bytes.Buffer
			environ := []string{"FEEDBRIDGE_FEEDS_ORDERS_URL=" + url, "FEEDBRIDGE_DATA_DIR=" + t.TempDir()}
			if args[0] == "run" {
				environ = environ[1:]
			}
			code := runProgram(args, environ, strings.NewReader(""), &out, &errw)
			if code != exitUsage || !strings.Contains(errw.String(), "embedded: this program was built without the embedded NATS server (build tag noembedded): configure a bus of the kind nats or kafka") {
				t.Errorf("exit code %d, %q", code, errw.String())
			}
		})
	}
	parallel.Run(t, "tail of a URL", func(t *testing.T) {
		feed := samplefeed.New(samplefeed.Options{PageSize: 2, Entity: samplefeed.Sized(10)})
		feed.SetLen(3)
		server := httptest.NewServer(http.Handler(feed))
		defer server.Close()
		var out, errw bytes.Buffer
		if code := runProgram([]string{"tail", server.URL + "/feed/latest"}, nil, strings.NewReader(""), &out, &errw); code != exitDone || strings.Count(out.String(), "\n") != 3 {
			t.Errorf("exit code %d, printed %q, %q", code, out.String(), errw.String())
		}
	})
}
