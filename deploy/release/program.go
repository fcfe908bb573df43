package main

import (
	"bytes"
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// program is feedbridge for one system.
type program struct {
	*release
	system, architecture string
}

// name is the start of the names of its files.
func (p *program) name() string {
	return "feedbridge_" + p.number() + "_" + p.system + "_" + p.architecture
}

// dir has the files that are packed.
func (p *program) dir() string { return filepath.Join(p.work, p.name()) }

func (p *program) binary() string {
	if p.system == "windows" {
		return filepath.Join(p.dir(), "feedbridge.exe")
	}
	return filepath.Join(p.dir(), "feedbridge")
}

// environ is the environment of the go command for this system. Settings of the person who
// builds do not change the result.
func (p *program) environ() []string {
	return append(os.Environ(), "CGO_ENABLED=0", "GOOS="+p.system, "GOARCH="+p.architecture, "GOFLAGS=-mod=readonly", "GOAMD64=v1", "GOARM64=v8.0", "GOEXPERIMENT=")
}

// goCommand runs the go command in the repository, and returns its output.
func (p *program) goCommand(ctx context.Context, args ...string) ([]byte, error) {
	return runGo(ctx, p.source, p.environ(), args...)
}

func runGo(ctx context.Context, dir string, environ []string, args ...string) ([]byte, error) {
	var out, errs bytes.Buffer
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = dir, environ, &out, &errs
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("go %s: %w\n%s", args[0], err, errs.Bytes())
	}
	return out.Bytes(), nil
}

// compile builds the program, and returns an error unless it is static.
func (p *program) compile(ctx context.Context) error {
	if err := os.MkdirAll(p.dir(), 0o755); err != nil {
		return err
	}
	if _, err := p.goCommand(ctx, "build", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w -X main.version="+p.version, "-o", p.binary(), "./cmd/feedbridge"); err != nil {
		return err
	}
	if p.system != "linux" {
		return nil
	}
	return checkStatic(p.binary())
}

// checkStatic returns an error unless a program for Linux is static and stripped.
func checkStatic(program string) error {
	file, err := elf.Open(program)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	for _, part := range file.Progs {
		if part.Type == elf.PT_INTERP {
			return errors.New("the program needs a dynamic linker: something in it uses cgo")
		}
	}
	if file.Section(".debug_info") != nil {
		return errors.New("the program has debug information")
	}
	return nil
}

// shells are those whose completion is packed, with the name of the file.
var shells = map[string]string{"bash": "feedbridge", "fish": "feedbridge.fish", "zsh": "_feedbridge"}

// generateDocuments writes the manual pages and the completion of shells, with the program for
// this system.
func (r *release) generateDocuments(ctx context.Context) error {
	feedbridge := filepath.Join(r.work, "feedbridge")
	environ := append(os.Environ(), "FEEDBRIDGE_CONFIG=", "SOURCE_DATE_EPOCH="+fmt.Sprint(r.date.Unix()))
	if _, err := runGo(ctx, r.source, environ, "build", "-tags", "man", "-buildvcs=false", "-ldflags", "-X main.version="+r.version, "-o", feedbridge, "./cmd/feedbridge"); err != nil {
		return err
	}
	generate := func(args ...string) ([]byte, error) {
		cmd := exec.CommandContext(ctx, feedbridge, args...)
		cmd.Env, cmd.Stderr = environ, os.Stderr
		return cmd.Output()
	}
	for _, dir := range []string{"man", "completion"} {
		if err := os.MkdirAll(filepath.Join(r.work, dir), 0o755); err != nil {
			return err
		}
	}
	if _, err := generate("man", filepath.Join(r.work, "man")); err != nil {
		return fmt.Errorf("manual pages: %w", err)
	}
	for shell, file := range shells {
		script, err := generate("completion", shell)
		if err != nil {
			return fmt.Errorf("completion of %s: %w", shell, err)
		}
		if err := os.WriteFile(filepath.Join(r.work, "completion", file), script, 0o644); err != nil {
			return err
		}
	}
	return nil
}
