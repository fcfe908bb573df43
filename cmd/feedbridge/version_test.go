package main

import (
	"runtime/debug"
	"testing"
)

func TestVersionAndCommitAreThoseOfTheBuild(t *testing.T) {
	const revision = "0123456789abcdef0123456789abcdef01234567"
	for name, c := range map[string]struct{ version, revision, wantVersion, wantCommit string }{
		"go install of a tag":       {"v1.2.3", "", "v1.2.3", ""},
		"go install of a branch":    {"v1.2.4-0.20261127010203-0123456789ab", "", "v1.2.4-0.20261127010203-0123456789ab", "0123456789ab"},
		"go build in a checkout":    {"v1.2.4-0.20261127010203-0123456789ab+dirty", revision, "v1.2.4-0.20261127010203-0123456789ab+dirty", revision},
		"go build of a tag":         {"v1.2.3", revision, "v1.2.3", revision},
		"no version control system": {"(devel)", "", "devel", ""},
		"no version":                {"", revision, "devel-0123456789ab", revision},
	} {
		t.Run(name, func(t *testing.T) {
			info := &debug.BuildInfo{Main: debug.Module{Version: c.version}}
			if c.revision != "" {
				info.Settings = []debug.BuildSetting{{Key: "vcs.revision", Value: c.revision}}
			}
			if v, r := recorded(info); v != c.wantVersion || r != c.wantCommit {
				t.Errorf("the version is %q and the commit %q, want %q and %q", v, r, c.wantVersion, c.wantCommit)
			}
		})
	}
}
