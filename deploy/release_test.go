package deploy_test

import (
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"go.yaml.in/yaml/v4"

	"github.com/feedbridge/feedbridge/internal/testkit/must"
)

// The notes of a release are the newest section of the changelog. Another tag is refused.
func TestReleaseNotesAreOfTheTag(t *testing.T) {
	version := regexp.MustCompile(`(?m)^## (\d+\.\d+\.\d+(?:-\S+)?)$`).FindStringSubmatch(read(t, "../CHANGELOG.md"))
	if version == nil {
		t.Fatal("CHANGELOG.md has no section such as '## 1.2.3'")
	}
	notes, err := exec.CommandContext(t.Context(), "package/notes", "v"+version[1]).CombinedOutput()
	must.Succeed(t, err)
	if relative := regexp.MustCompile(`\]\([^:)]*\)`).Find(notes); relative != nil || len(notes) < 100 {
		t.Errorf("the notes have %d bytes, and the relative link %q", len(notes), relative)
	}
	out, err := exec.CommandContext(t.Context(), "package/notes", "v99.0.0").CombinedOutput()
	if want := "tag v99.0.0: the newest section of CHANGELOG.md is '## " + version[1] + "', want '## 99.0.0'"; err == nil || !strings.HasPrefix(string(out), want) {
		t.Errorf("another tag ends with %v and %q, want an error with %q", err, out, want)
	}
}

// 'go install github.com/feedbridge/feedbridge/cmd/feedbridge@latest' refuses a module with these.
func TestModuleCanBeInstalled(t *testing.T) {
	if found := regexp.MustCompile(`(?m)^(replace|exclude)\b.*`).FindString(read(t, "../go.mod")); found != "" {
		t.Errorf("go install of a version fails, because go.mod has %q", found)
	}
}

// Workflows may read by default, end by themselves, use actions of GitHub in a fixed version only, and fail if any command
// of a pipe does, which takes the shell to be named.
func TestWorkflowsAreRestricted(t *testing.T) {
	files, err := filepath.Glob("../.github/workflows/*.yml")
	if err != nil || len(files) < 4 {
		t.Fatalf("there are %d workflows: %v", len(files), err)
	}
	for _, file := range files {
		var workflow struct {
			Permissions map[string]string
			Defaults    struct{ Run struct{ Shell string } }
			Jobs        map[string]struct {
				Uses    string
				Timeout int `yaml:"timeout-minutes"`
				Steps   []struct{ Uses string }
			}
		}
		must.Succeed(t, yaml.Unmarshal([]byte(read(t, file)), &workflow))
		if len(workflow.Permissions) != 1 || workflow.Permissions["contents"] != "read" {
			t.Errorf("%s: every job may %v, want contents: read", file, workflow.Permissions)
		}
		if workflow.Defaults.Run.Shell != "bash" {
			t.Errorf("%s: the shell is %q, want bash", file, workflow.Defaults.Run.Shell)
		}
		for name, job := range workflow.Jobs {
			if job.Uses == "" && job.Timeout == 0 {
				t.Errorf("%s: job %s has no timeout-minutes", file, name)
			}
			for _, step := range job.Steps {
				if !regexp.MustCompile(`^(actions/[a-z-]+@v\d+)?$`).MatchString(step.Uses) {
					t.Errorf("%s: job %s uses %s, want an action of GitHub and its version", file, name, step.Uses)
				}
			}
		}
	}
}
