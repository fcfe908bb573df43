package main

import (
	"cmp"
	"fmt"
	"regexp"
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
// a release they are those that Go has recorded, also with go install and no checkout.
func builtFrom() (tag, revision string) {
	if version != "" && commit != "" {
		return version, commit
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		info = &debug.BuildInfo{}
	}
	tag, revision = recorded(info)
	return cmp.Or(version, tag), cmp.Or(commit, revision)
}

// pseudoVersion matches a version without a tag, v0.0.0-20261127010203-0123456789ab, which ends with its commit.
var pseudoVersion = regexp.MustCompile(`\d{14}-([0-9a-f]{12})(?:\+|$)`)

// recorded returns the version and the commit in the build information.
func recorded(info *debug.BuildInfo) (tag, revision string) {
	tag = info.Main.Version
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			revision = s.Value
		}
	}
	if m := pseudoVersion.FindStringSubmatch(tag); m != nil {
		revision = cmp.Or(revision, m[1])
	}
	if tag == "" || tag == "(devel)" {
		tag = "devel"
		if revision != "" {
			tag += "-" + short(revision)
		}
	}
	return tag, revision
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
