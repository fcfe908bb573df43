package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/feedbridge/feedbridge/internal/testkit/must"
)

// A file that another program has changed since it was read is not replaced, and nothing is left beside it.
func TestConfigFileIsChangedMeanwhile(t *testing.T) {
	t.Parallel()
	name := filepath.Join(t.TempDir(), "feedbridge.yaml")
	must.Succeed(t, os.WriteFile(name, []byte("a"), 0o600))
	f, err := openConfigFile(name)
	must.Succeed(t, err)
	must.Succeed(t, os.WriteFile(name, []byte("b"), 0o600))
	if err := f.replace([]byte("c")); err == nil || !strings.Contains(err.Error(), "another program has changed it meanwhile") {
		t.Errorf("got %v", err)
	}
	data, err := os.ReadFile(name)
	must.Succeed(t, err)
	files, err := os.ReadDir(filepath.Dir(name))
	if err != nil || string(data) != "b" || len(files) != 1 {
		t.Errorf("the file has %q, and there are %d files: %v", data, len(files), err)
	}
}
