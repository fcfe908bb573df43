// Package docs_test compares the documents with the code, and keeps the packages in their layers.
package docs_test

import (
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/feedbridge/feedbridge/internal/testkit/must"
)

const module = "github.com/feedbridge/feedbridge"

// layers lists the packages of the module that each package may import. There are no cycles.
// A package that is not listed is an error: a change that adds a package also decides what it
// may import.
var layers = map[string][]string{
	"examples/consumers/go/nats":  {},
	"examples/consumers/go/kafka": {},
	"examples/comparison":         {},
	"examples/comparison/script":  {},

	"feed":                {},
	"internal/fleet":      {"feed", "internal/retry"},
	"message":             {"feed"},
	"internal/entry":      {"internal/jsonpage", "internal/xmlcopy", "message"},
	"internal/jsonpage":   {},
	"internal/xmlcopy":    {},
	"internal/safetext":   {},
	"internal/retry":      {},
	"internal/logonce":    {},
	"internal/limit":      {},
	"internal/setting":    {},
	"docs":                {},
	"internal/credential": {"internal/safetext"},
	"checkpoint":          {"feed"},
	"internal/readahead":  {},
	"bridge":              {"feed", "checkpoint", "internal/limit", "internal/readahead", "internal/retry"},
	"internal/connlimit":  {},
	"internal/admin":      {"internal/admin/statuspage", "internal/admin/status", "bridge", "internal/connlimit", "internal/credential", "feed", "internal/fleet", "checkpoint", "internal/safetext"},
	"internal/verify":     {"feed", "internal/entry", "message"},

	"internal/conformance": {"feed", "internal/safetext", "message", "source", "source/datareplication", "source/httpfeed", "source/syndication", "source/syndication/feedxml"},

	"internal/admin/statuspage": {"internal/admin/status", "internal/limit"},
	"internal/admin/status":     {},

	"source":                        {"feed", "message", "internal/setting", "internal/credential", "internal/limit", "internal/readahead", "internal/safetext"},
	"source/datareplication":        {"source", "source/datareplication/page", "feed", "message", "internal/readahead", "internal/safetext"},
	"source/datareplication/page":   {"source/link", "feed", "message", "internal/safetext"},
	"source/httpfeed":               {"source", "feed", "internal/jsonpage", "internal/safetext", "message"},
	"source/link":                   {},
	"source/syndication":            {"source", "source/link", "source/syndication/feedxml", "feed", "internal/entry", "message", "internal/readahead", "internal/setting", "internal/safetext", "internal/retry"},
	"source/syndication/feedxml":    {"feed", "internal/jsonpage", "message", "internal/safetext"},
	"source/datareplication/sample": {"feed"},

	"sink":                        {"feed", "checkpoint", "message", "internal/safetext"},
	"internal/testkit/sinktest":   {"internal/testkit/must", "sink", "feed", "checkpoint", "message"},
	"internal/testkit/cputime":    {"internal/testkit/mutation"},
	"internal/testkit/mutation":   {},
	"internal/testkit/fleettest":  {"internal/fleet"},
	"internal/testkit/freeport":   {},
	"internal/testkit/httpfault":  {},
	"internal/testkit/logbuffer":  {},
	"internal/testkit/bridgetest": {"bridge", "checkpoint", "feed", "internal/testkit/sinktest"},
	"internal/testkit/must":       {},
	"internal/testkit/parallel":   {},
	"internal/testkit/samplefeed": {"feed"},
	"internal/testkit/tlstest":    {"internal/testkit/must"},
	"sink/nats":                   {"docs", "internal/fleet", "sink", "feed", "checkpoint", "internal/setting", "internal/credential", "message", "internal/limit", "internal/retry"},
	"sink/kafka":                  {"docs", "internal/fleet", "sink", "feed", "checkpoint", "internal/setting", "internal/credential", "message", "internal/limit", "internal/retry"},
	"sink/nats/embedded":          {},
	"internal/testkit/kafkatest":  {"internal/testkit/freeport"},
	"internal/testkit/floor":      {"checkpoint", "feed", "sink/kafka", "sink/nats"},

	"serve":          {"serve/snapshot", "internal/connlimit", "internal/jsonpage", "internal/limit", "internal/xmlcopy", "feed", "internal/entry", "message", "internal/safetext"},
	"serve/snapshot": {"feed", "internal/limit", "internal/logonce"},
	"internal/chaos": {},
	"internal/trace": {"bridge", "checkpoint", "feed", "internal/logonce", "internal/safetext", "sink"},

	"config": {"docs", "feed", "internal/setting", "internal/credential", "internal/safetext", "message", "serve", "source", "source/datareplication", "source/httpfeed", "source/syndication", "source/syndication/feedxml", "sink", "sink/nats", "sink/kafka"},
	"daemon": {"internal/trace", "internal/admin", "internal/admin/status", "bridge", "checkpoint", "config", "internal/credential", "feed", "internal/fleet", "internal/limit", "internal/logonce", "internal/readahead", "internal/retry", "internal/safetext", "serve", "sink", "sink/kafka", "sink/nats", "sink/nats/embedded", "source", "source/datareplication", "source/link", "source/httpfeed", "source/syndication", "source/syndication/feedxml"},

	"internal/asyncapi": {"config", "docs", "feed", "internal/entry", "message", "sink", "sink/kafka", "sink/nats", "source/datareplication", "source/syndication", "source/syndication/feedxml"},

	// Commands reach buses and servers through package daemon, and nothing else imports it.
	"cmd/feedbridge": {"docs", "internal/admin/status", "internal/asyncapi", "bridge", "checkpoint", "config", "internal/conformance", "internal/credential", "daemon", "feed", "internal/logonce", "message", "internal/retry", "internal/safetext", "serve", "sink", "source", "source/datareplication", "source/datareplication/sample", "source/httpfeed", "source/syndication", "internal/verify"},
}

// alone lists the modules that the given packages import and no others (but for tests), so that
// replacing a library changes one package.
var alone = map[string][]string{
	"github.com/nats-io/nats.go":      {"sink/nats", "internal/testkit/floor", "examples/comparison", "examples/comparison/script", "examples/consumers/go/nats"},
	"github.com/nats-io/nats-server":  {"sink/nats/embedded", "examples/comparison"},
	"github.com/twmb/franz-go":        {"sink/kafka", "internal/testkit/kafkatest", "internal/testkit/floor", "examples/consumers/go/kafka"},
	"github.com/tomnomnom/linkheader": {"source/link"},
	"github.com/spf13/cobra":          {"cmd/feedbridge"},
	"github.com/spf13/viper":          {"config"},
	"github.com/prometheus":           {"internal/admin"},
	"golang.org/x/oauth2":             {"internal/credential"},
	"code.dny.dev/ssrf":               {"source"},
	"github.com/coreos/go-systemd":    {"daemon"},
	"go.opentelemetry.io":             {"internal/trace"},
}

// standard are the packages that may import nothing but the standard library.
var standard = []string{"feed", "message", "internal/limit", "internal/logonce", "internal/retry", "internal/safetext", "checkpoint", "internal/connlimit"}

// badNames are names that say nothing.
var badNames = []string{"util", "utils", "common", "helper", "helpers", "types", "misc"}

func TestImportsRunOneWay(t *testing.T) {
	imports := map[string][]string{}
	err := filepath.WalkDir(".", func(file string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (d.Name() == "testdata" || strings.HasPrefix(d.Name(), ".") && file != "." || isOtherModule(file)) {
			return fs.SkipDir
		}
		dir := filepath.ToSlash(filepath.Dir(file))
		if dir == "." || !strings.HasSuffix(file, ".go") || strings.HasSuffix(file, "_test.go") {
			return nil
		}
		imports[dir] = append(imports[dir], dir) // a package may have no imports
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		for _, spec := range parsed.Imports {
			imported, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				return err
			}
			imports[dir] = append(imports[dir], imported)
			checkImport(t, file, dir, imported)
		}
		return nil
	})
	must.Succeed(t, err)
	for dir := range imports {
		if _, ok := layers[dir]; !ok {
			t.Errorf("package %s is in no layer: add it to layers", dir)
		}
		if slices.Contains(badNames, path.Base(dir)) {
			t.Errorf("package %s has a name that says nothing", dir)
		}
	}
	for dir := range layers {
		if imports[dir] == nil {
			t.Errorf("layers names package %s, which does not exist", dir)
		}
	}
	for prefix, owners := range alone {
		for _, owner := range owners {
			if !slices.ContainsFunc(imports[owner], func(imported string) bool { return isPartOf(imported, prefix) }) {
				t.Errorf("alone names package %s, which does not import %s", owner, prefix)
			}
		}
	}
}

// isOtherModule reports whether a directory below this one is a module of its own, as those
// are that build and test what is not the program.
func isOtherModule(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, "go.mod"))
	return dir != "." && err == nil
}

func checkImport(t *testing.T, file, dir, imported string) {
	t.Helper()
	if ours, ok := strings.CutPrefix(imported, module+"/"); ok {
		if allowed := layers[dir]; !slices.Contains(allowed, ours) && !slices.Contains(allowed, "*") {
			t.Errorf("%s: package %s must not import %s, only %v", file, dir, ours, allowed)
		}
		return
	}
	if strings.Contains(strings.SplitN(imported, "/", 2)[0], ".") && slices.Contains(standard, dir) {
		t.Errorf("%s: package %s must not import %s, only the standard library", file, dir, imported)
	}
	for prefix, owners := range alone {
		if isPartOf(imported, prefix) && !slices.Contains(owners, dir) {
			t.Errorf("%s: %s is for package %v alone", file, imported, owners)
		}
	}
	if imported == "net/http" && slices.Contains([]string{"feed", "checkpoint", "bridge"}, dir) {
		t.Errorf("%s: package %s must not import net/http", file, dir)
	}
}

// isPartOf reports whether a package is prefix, or below it.
func isPartOf(imported, prefix string) bool {
	return imported == prefix || strings.HasPrefix(imported, prefix+"/")
}
