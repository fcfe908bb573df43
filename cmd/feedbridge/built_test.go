package main

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"github.com/feedbridge/feedbridge/internal/testkit/must"
)

// startBuilt starts a program that is built from a package, as a user builds feedbridge, and returns
// what it prints. Benchmarks measure such programs: the test's binary has the packages of the tests,
// too, so it takes longer to start, and 6 to 10 MiB more of resident memory.
func startBuilt(tb testing.TB, pkg string, env []string, args ...string) (*exec.Cmd, io.Reader) {
	tb.Helper()
	program, err := builds.path(pkg)
	must.Succeed(tb, err)
	cmd := exec.Command(program, args...)
	cmd.Env = append(os.Environ(), env...)
	return cmd, startCommand(tb, pkg, cmd)
}

// builds has the programs that were built, until the tests have run.
var builds builtPrograms

// builtPrograms is a directory of programs.
type builtPrograms struct {
	mu    sync.Mutex
	dir   string
	paths map[string]string // by package
}

// path returns the path of a program. It is built once.
func (p *builtPrograms) path(pkg string) (string, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if path, ok := p.paths[pkg]; ok {
		return path, nil
	}
	if p.dir == "" {
		dir, err := os.MkdirTemp("", "feedbridge-built")
		if err != nil {
			return "", err
		}
		p.dir, p.paths = dir, map[string]string{}
	}
	path := filepath.Join(p.dir, fmt.Sprint("program-", len(p.paths)))
	build := exec.Command("go", "build", "-o", path, pkg)
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build %s: %w: %s", pkg, err, out)
	}
	p.paths[pkg] = path
	return path, nil
}

func (p *builtPrograms) remove() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.dir != "" {
		_ = os.RemoveAll(p.dir)
	}
}

// testRun runs the tests, and removes the programs that they have built.
type testRun struct{ *testing.M }

func (r testRun) Run() int {
	defer builds.remove()
	return r.M.Run()
}
