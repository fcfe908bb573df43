package main

import (
	"cmp"
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// version and commit are set by release builds: -ldflags "-X main.version=v1.2.3 -X main.commit=...".
var version, commit string

// programVersion returns the version of this program; "devel" if it is not known.
func programVersion() string {
	tag, _ := builtFrom()
	return tag
}

// builtFrom returns the version of this program and its commit, which is empty if it is not known. Without the values of
// a release they are those that Go has recorded. The version of go install from a branch ends with its commit.
func builtFrom() (tag, revision string) {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		info = &debug.BuildInfo{}
	}
	if tag = info.Main.Version; tag == "" || tag == "(devel)" {
		tag = "devel"
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			revision = s.Value
		}
	}
	return cmp.Or(version, tag), cmp.Or(commit, revision)
}

func short(revision string) string { return revision[:min(len(revision), 12)] }

func versionLine() string {
	tag, revision := builtFrom()
	if revision != "" {
		revision = "commit " + short(revision) + ", "
	}
	return fmt.Sprintf("feedbridge %s (%s%s %s/%s)", tag, revision, runtime.Version(), runtime.GOOS, runtime.GOARCH)
}

func versionCommand(a *app) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the version and the commit",
		Args:  exactArgs(),
		RunE: func(*cobra.Command, []string) error {
			if asJSON {
				tag, revision := builtFrom()
				return printJSON(a.out, map[string]string{"version": tag, "commit": revision, "go": runtime.Version(), "os": runtime.GOOS, "arch": runtime.GOARCH})
			}
			_, err := fmt.Fprintln(a.out, versionLine())
			return err
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}
