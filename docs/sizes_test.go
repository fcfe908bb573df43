package docs_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"github.com/feedbridge/feedbridge/internal/testkit/must"
)

// The sizes of the program are documented, for linux/amd64. With -update they are written. Otherwise they
// may differ by a tenth, and are compared only if REQUIRE_SIZES is set: to build the two programs takes
// minutes.
func TestSizesAreDocumented(t *testing.T) {
	if !*update && os.Getenv("REQUIRE_SIZES") == "" {
		t.Skip("it builds the program twice; set REQUIRE_SIZES=1")
	}
	const page = "docs/install.md"
	document := read(t, page)
	commands := map[string]string{"": `-ldflags "-s -w" ./cmd/feedbridge`, "noembedded": "-tags noembedded"}
	for tags, command := range commands {
		file := filepath.Join(t.TempDir(), "feedbridge")
		build := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w", "-tags", tags, "-o", file, "./cmd/feedbridge")
		build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH=amd64")
		if out, err := build.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		info, err := os.Stat(file)
		must.Succeed(t, err)
		size := float64(info.Size()) / 1e6
		row := regexp.MustCompile(`(?m)^(\| .*` + regexp.QuoteMeta(command) + "` \\| )([\\d.]+) MB, go[\\d.]+ \\|$")
		m := row.FindStringSubmatch(document)
		if m == nil {
			t.Fatalf("%s has no size of the program with the tags %q", page, tags)
		}
		var documented float64
		_, _ = fmt.Sscan(m[2], &documented)
		if !*update && (documented < 0.9*size || documented > 1.1*size) {
			t.Errorf("%s has %s MB for the program with the tags %q, and it has %.1f MB: run this test with -update", page, m[2], tags, size)
		}
		document = strings.Replace(document, m[0], fmt.Sprintf("%s%.1f MB, %s |", m[1], size, runtime.Version()), 1)
	}
	if *update {
		must.Succeed(t, os.WriteFile(page, []byte(document), 0o644))
	}
}
