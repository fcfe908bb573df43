package main

import (
	"bytes"
	"context"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/feedbridge/feedbridge/internal/testkit/samplefeed"
)

// Beside a program that has the usual ports, such as the demo, init writes others and says so.
func TestInitTakesFreePorts(t *testing.T) {
	t.Parallel()
	for _, addr := range []string{"127.0.0.1:4222", "127.0.0.1:9321"} {
		if listener, err := listenTCP(context.Background(), addr); err == nil { // it may be in use already
			defer listener.Close()
		}
	}
	feed := samplefeed.New(samplefeed.Options{PageSize: 10, Entity: samplefeed.Sized(100)})
	feed.SetLen(5)
	upstream := httptest.NewServer(feed)
	defer upstream.Close()
	file := filepath.Join(t.TempDir(), "feedbridge.yaml")
	var out, errs bytes.Buffer
	if code := runProgram([]string{"init", "--bus", "embedded", "--feed", upstream.URL + "/feed/latest", file}, nil, nil, &out, &errs); code != 0 {
		t.Fatalf("exit code %d: %s", code, errs.String())
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for port, near := range map[string]string{"4222": "42|43", "9321": "93|94"} { // not one of those that the system gives to clients
		said := regexp.MustCompile(`\n127\.0\.0\.1:` + port + ` is in use on this machine, so the file has 127\.0\.0\.1:(` + near + `)\d\d\.\n`)
		if strings.Contains(string(text), port) || !said.MatchString(out.String()) {
			t.Errorf("port %s: init says\n%s\nand writes\n%s", port, out.String(), text)
		}
	}
}
