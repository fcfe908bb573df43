// Command release builds the files of a release into a directory: archives for all systems, deb
// and rpm packages for Linux, the licences of all dependencies, a bill of materials (SBOM) for
// each program, and checksums.
//
//	go run -C deploy/release . -version v1.2.3 -out ../../dist
//
// The same commit, version and Go give the same bytes: every date is that of the commit.
package main

import (
	"context"
	"crypto/sha256"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// allTargets are the systems of a release.
var allTargets = []string{"linux/amd64", "linux/arm64", "darwin/amd64", "darwin/arm64", "windows/amd64", "windows/arm64"}

// versions are those of releases, as tags have them.
var versions = regexp.MustCompile(`^v\d+\.\d+\.\d+(-[0-9A-Za-z.-]+)?$`)

// release has what all files of a release have in common.
type release struct {
	source  string // the root of the repository
	out     string // where the files go
	work    string // for files that are only packed
	version string // as v1.2.3
	date    time.Time
}

// number is the version without its v, as packages want it.
func (r *release) number() string { return strings.TrimPrefix(r.version, "v") }

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, stdout io.Writer) error {
	flags := flag.NewFlagSet("release", flag.ContinueOnError)
	version := flags.String("version", "", "version of the release, such as v1.2.3; default: v0.0.0- and the commit")
	out := flags.String("out", "../../dist", "directory for the files, which must be empty or missing")
	source := flags.String("source", "../..", "root of the repository")
	var targets []string
	flags.Func("target", "system to build for, such as linux/amd64, several times; default: all", func(target string) error {
		if !slices.Contains(allTargets, target) {
			return fmt.Errorf("unknown target, want one of %s", strings.Join(allTargets, ", "))
		}
		targets = append(targets, target)
		return nil
	})
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return nil
	case err != nil:
		return err
	case flags.NArg() > 0:
		return fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	if len(targets) == 0 {
		targets = allTargets
	}
	r, err := newRelease(ctx, *source, *out, *version)
	if err != nil {
		return err
	}
	return errors.Join(r.build(ctx, targets, stdout), os.RemoveAll(r.work))
}

// newRelease returns a release of the commit that is checked out.
func newRelease(ctx context.Context, source, out, version string) (*release, error) {
	git := func(args ...string) (string, error) {
		cmd := exec.CommandContext(ctx, "git", args...)
		cmd.Dir, cmd.Stderr = source, os.Stderr
		text, err := cmd.Output()
		return strings.TrimSpace(string(text)), err
	}
	if version == "" {
		commit, err := git("rev-parse", "--short=12", "HEAD")
		if err != nil {
			return nil, fmt.Errorf("git rev-parse: %w; set -version", err)
		}
		version = "v0.0.0-" + commit
	}
	if !versions.MatchString(version) {
		return nil, fmt.Errorf("invalid version %q: want one such as v1.2.3 or v1.2.3-rc.1", version)
	}
	text, err := git("log", "-1", "--format=%ct")
	if err != nil {
		return nil, fmt.Errorf("git log: %w; a release is built from a clone", err)
	}
	seconds, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return nil, err
	}
	if files, err := os.ReadDir(out); err == nil && len(files) > 0 {
		return nil, fmt.Errorf("%s is not empty: name another directory with -out, or remove it", out)
	}
	r := &release{version: version, date: time.Unix(seconds, 0).UTC()}
	if r.source, err = filepath.Abs(source); err != nil {
		return nil, err
	}
	if r.out, err = filepath.Abs(out); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(r.out, 0o755); err != nil {
		return nil, err
	}
	r.work, err = os.MkdirTemp("", "feedbridge-release-")
	return r, err
}

// build makes all files, and prints the size of each.
func (r *release) build(ctx context.Context, targets []string, stdout io.Writer) error {
	if err := r.generateDocuments(ctx); err != nil {
		return err
	}
	for _, target := range targets {
		system, architecture, _ := strings.Cut(target, "/")
		p := &program{release: r, system: system, architecture: architecture}
		for _, step := range []func(context.Context) error{p.compile, p.writeLicenses, p.writeSBOM, p.writeArchive, p.writePackages} {
			if err := step(ctx); err != nil {
				return fmt.Errorf("%s: %w", target, err)
			}
		}
		info, err := os.Stat(p.binary())
		if err != nil {
			return err
		}
		fmt.Fprintf(stdout, "%10d  feedbridge for %s\n", info.Size(), target)
	}
	return r.writeChecksums(stdout)
}

// writeChecksums writes checksums.txt, which sha256sum -c reads, with all files in out.
func (r *release) writeChecksums(stdout io.Writer) error {
	files, err := os.ReadDir(r.out) // in the order of their names
	if err != nil {
		return err
	}
	var sums strings.Builder
	for _, file := range files {
		f, err := os.Open(filepath.Join(r.out, file.Name()))
		if err != nil {
			return err
		}
		hash := sha256.New()
		size, err := io.Copy(hash, f)
		_ = f.Close()
		if err != nil {
			return err
		}
		fmt.Fprintf(&sums, "%x  %s\n", hash.Sum(nil), file.Name())
		fmt.Fprintf(stdout, "%10d  %s\n", size, file.Name())
	}
	return os.WriteFile(filepath.Join(r.out, "checksums.txt"), []byte(sums.String()), 0o644)
}
