package docs_test

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/feedbridge/feedbridge/config"
	"github.com/feedbridge/feedbridge/internal/testkit/must"
)

func TestOptionsAreDocumented(t *testing.T) {
	schema, err := config.Schema()
	must.Succeed(t, err)
	type node struct {
		Properties map[string]json.RawMessage
		// A mapping by names; false elsewhere.
		AdditionalProperties json.RawMessage
		Default              json.RawMessage
		// The keys of feed_defaults are those of a feed.
		Ref string `json:"$ref"`
	}
	defaults := map[string]string{}
	var walk func(path string, raw json.RawMessage)
	walk = func(path string, raw json.RawMessage) {
		var n node
		must.Succeed(t, json.Unmarshal(raw, &n))
		for key, below := range n.Properties {
			walk(strings.TrimPrefix(path+"."+key, "."), below)
		}
		switch {
		case n.Properties != nil, n.Ref != "":
		case strings.HasPrefix(path, "feeds_from.NAME.auth."): // described as feeds.NAME.auth
		case n.AdditionalProperties != nil:
			walk(path+".NAME", n.AdditionalProperties)
		default:
			defaults[path] = strings.Trim(string(n.Default), `"`)
		}
	}
	walk("", schema)

	document := read(t, optionsPage)
	keys := named(document, "Key", 0)
	wantSame(t, optionsPage, "option", slices.Collect(maps.Keys(defaults)), keys)
	presets := named(document, "Key", 2)
	for i, key := range keys {
		if want := defaults[key]; want != "" && presets[i] != want {
			t.Errorf("%s: the default of %s is %s, not %s", optionsPage, key, want, presets[i])
		}
	}
}

// variable returns the environment variable of a key, by the rule in docs/configuration.md.
func variable(key string) string {
	return "FEEDBRIDGE_" + strings.ToUpper(strings.NewReplacer(".", "_", "-", "_").Replace(key))
}

// Every documented key can be set by the variable that the rule gives, and the examples of
// the rule follow it.
func TestVariablesAreDocumented(t *testing.T) {
	const unknown = "no key of the configuration has this variable"
	known := func(name string) bool {
		_, err := config.Load(config.Options{Environ: []string{name + "=\x00"}})
		return err == nil || !strings.Contains(err.Error(), unknown)
	}
	if known("FEEDBRIDGE_FEEDS_NAME_NONSENSE") {
		t.Fatalf("no error says %q any more", unknown)
	}
	document := read(t, optionsPage)
	for _, key := range named(document, "Key", 0) {
		if name := variable(key); !known(name) {
			t.Errorf("%s: %s cannot be set by %s", optionsPage, key, name)
		}
	}
	examples := regexp.MustCompile("`([a-z.-]+)` is `(FEEDBRIDGE_[A-Z_]+)`").FindAllStringSubmatch(document, -1)
	if len(examples) < 2 {
		t.Errorf("%s has %d examples of variables", optionsPage, len(examples))
	}
	for _, m := range examples {
		if want := variable(m[1]); m[2] != want {
			t.Errorf("%s: the variable of %s is %s, not %s", optionsPage, m[1], want, m[2])
		}
	}
}

// A setting that is documented to be in bytes answers 16MiB with an error that says so,
// and no other setting does.
func TestSizesAreInBytes(t *testing.T) {
	found := 0
	document := read(t, optionsPage)
	keys, kinds := named(document, "Key", 0), column(document, "Key", 1)
	for i, key := range keys {
		_, err := config.Load(config.Options{Environ: []string{variable(key) + "=16MiB"}})
		says := err != nil && strings.Contains(err.Error(), "want a whole number of bytes, such as 16777216")
		if is := kinds[i] == "bytes"; is != says {
			t.Errorf("%s: documented as %s, and to 16MiB it says: %v", key, kinds[i], err)
		}
		if says {
			found++
		}
	}
	if found < 3 {
		t.Errorf("only %d sizes were found", found)
	}
}

// The configurations in the documents are valid. Those without feeds are excerpts.
func TestExamplesOfTheDocumentsLoad(t *testing.T) {
	found := map[string]int{}
	for page, document := range pages(t) {
		for _, block := range regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllStringSubmatch(document, -1) {
			if !regexp.MustCompile(`^(#.*\n)*(buses|feeds|feed_defaults|feeds_from|serve):`).MatchString(block[1]) {
				continue
			}
			found[page]++
			file := filepath.Join(t.TempDir(), "feedbridge.yaml")
			must.Succeed(t, os.WriteFile(file, []byte(block[1]), 0o600))
			excerpt := !regexp.MustCompile(`(?m)^(feeds|feeds_from|serve):`).MatchString(block[1])
			if _, err := config.Load(config.Options{File: file, Environ: []string{"API_KEY=x"}, Feedless: excerpt}); err != nil {
				t.Errorf("%s: %v, in:\n%s", page, err, block[1])
			}
		}
	}
	if found["README.md"] < 3 || len(found) < 7 {
		t.Errorf("only these examples were found: %v", found)
	}
}
