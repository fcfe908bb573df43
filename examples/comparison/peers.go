//go:build unix

package main

import (
	"context"
	"debug/buildinfo"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// A peer is a program that copies the feed to the subject entries.
type peer struct {
	name string
	// build makes the program, and returns its command and its version.
	build func(ctx context.Context, dir string) (command []string, version string, err error)
	// ownStream is set for a peer that creates its stream.
	ownStream bool
	env       func(feedURL, natsURL string, every time.Duration) []string
}

// here is the directory of the configurations, from the root of the repository.
const here = "examples/comparison"

var peers = []peer{
	{
		name: "feedbridge", ownStream: true,
		build: func(ctx context.Context, dir string) ([]string, string, error) {
			program := filepath.Join(dir, "feedbridge")
			err := command(ctx, ".", "go", "build", "-o", program, "./cmd/feedbridge")
			return []string{program, "run", "-c", absolute("feedbridge/feedbridge.yaml")}, "this commit", err
		},
		env: func(feedURL, natsURL string, every time.Duration) []string {
			return []string{
				"FEEDBRIDGE_BUSES_MAIN_NATS_URL=" + natsURL, "FEEDBRIDGE_FEEDS_ENTRIES_URL=" + feedURL,
				"FEEDBRIDGE_FEEDS_ENTRIES_EVERY=" + every.String(),
			}
		},
	},
	{name: "script", build: script(), env: environment},
	{name: "script-msg-id", build: script("-msg-id"), env: environment},
	{
		name: "bento",
		build: func(ctx context.Context, dir string) ([]string, string, error) {
			program := filepath.Join(dir, "bento")
			if err := command(ctx, here+"/bento", "go", "build", "-o", program, "."); err != nil {
				return nil, "", err
			}
			version, err := moduleVersion(program, "github.com/warpstreamlabs/bento")
			return []string{program, "-c", absolute("bento/bento.yaml")}, version, err
		},
		env: environment,
	},
}

func environment(feedURL, natsURL string, every time.Duration) []string {
	return []string{"FEED_URL=" + feedURL, "NATS_URL=" + natsURL, "EVERY=" + every.String()}
}

func script(arguments ...string) func(context.Context, string) ([]string, string, error) {
	return func(ctx context.Context, dir string) ([]string, string, error) {
		program := filepath.Join(dir, "script")
		if err := command(ctx, ".", "go", "build", "-o", program, "./"+here+"/script"); err != nil {
			return nil, "", err
		}
		version, err := moduleVersion(program, "github.com/mmcdole/gofeed")
		return append([]string{program}, arguments...), "gofeed " + version, err
	}
}

func command(ctx context.Context, dir, name string, arguments ...string) error {
	cmd := exec.CommandContext(ctx, name, arguments...)
	cmd.Dir = dir
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s %s: %w", name, strings.Join(arguments, " "), err)
	}
	return nil
}

func moduleVersion(program, module string) (string, error) {
	info, err := buildinfo.ReadFile(program)
	if err != nil {
		return "", err
	}
	for _, dep := range info.Deps {
		if dep.Path == module {
			return dep.Version, nil
		}
	}
	return "", fmt.Errorf("%s is not built with %s", program, module)
}

func absolute(path string) string {
	absolute, err := filepath.Abs(filepath.Join(here, path))
	if err != nil {
		return path // the working directory is gone
	}
	return absolute
}
