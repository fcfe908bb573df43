package config

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/feedbridge/feedbridge/internal/testkit/cputime"
	"github.com/feedbridge/feedbridge/internal/testkit/mutation"
)

// FuzzLoad reads any bytes as a file. A configuration that loads can be printed, and
// loads again from the printed form.
func FuzzLoad(f *testing.F) {
	files, _ := filepath.Glob("testdata/*.yaml")
	for _, file := range append(files, "../deploy/feedbridge.yaml") {
		f.Add(read(f, file))
	}
	f.Add([]byte("feeds: {a: {url: \"x\\ny\", start: \"x\\ny\", every: \"x\\ny\", \"x\\ny\": 1}}"))
	f.Add([]byte("feeds: {a: {url: http://0}}\nadmin: {token: 0000000000000000}"))
	f.Add([]byte("feeds: {a: {url: http://0}}\nbuses: {k: {kafka: {brokers: [\"a//b:1\", \"c:1\"]}}}"))
	f.Fuzz(mutation.OfCorpus(5, func(t *testing.T, data []byte) {
		cputime.CheckRepeated(t, string(data), func(text string) { newLoader(goodEnv).readYAML("fuzz.yaml", []byte(text)) })
		l := newLoader(goodEnv)
		l.readYAML("fuzz.yaml", data)
		cfg, err := l.loadConfig(Options{})
		if err == nil {
			checkRoundTrip(t, cfg)
			return
		}
		var errs Errors
		if !errors.As(err, &errs) || len(strings.Split(err.Error(), "\n")) != len(errs) {
			t.Errorf("want one line for each error:\n%v", err)
		}
	}))
}
