// Package deploy_test checks the files in deploy against the program and its documents.
package deploy_test

import (
	"errors"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v4"

	"github.com/feedbridge/feedbridge/internal/testkit/must"
)

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	must.Succeed(t, err)
	return string(text)
}

// Every alert is documented and tried by alerts.test.yaml, and asks for metrics
// that docs/metrics-and-alerts.md has, which docs_test.go compares with the program.
func TestAlerts(t *testing.T) {
	t.Parallel()
	var rules struct {
		Groups []struct {
			Rules []struct{ Alert, Expr string }
		}
	}
	must.Succeed(t, yaml.Unmarshal([]byte(read(t, "alerts.yaml")), &rules))
	document, tests := read(t, "../docs/metrics-and-alerts.md"), read(t, "testdata/alerts.test.yaml")
	metric := regexp.MustCompile(`\bfeedbridge_\w+`)
	var alerts []string
	for _, group := range rules.Groups {
		for _, rule := range group.Rules {
			alerts = append(alerts, rule.Alert)
			for _, name := range metric.FindAllString(rule.Expr, -1) {
				if !strings.Contains(document, "\n| `"+name+"` |") {
					t.Errorf("%s asks for %s, and docs/metrics-and-alerts.md has no such metric", rule.Alert, name)
				}
			}
			if !regexp.MustCompile(`alertname: ` + rule.Alert + `\n\s+exp_alerts:\n`).MatchString(tests) {
				t.Errorf("no test in alerts.test.yaml sees %s fire", rule.Alert)
			}
		}
	}
	var documented []string
	for _, m := range regexp.MustCompile("(?m)^\\| `(Feed[a-zA-Z]+)` \\|").FindAllStringSubmatch(document, -1) {
		documented = append(documented, m[1])
	}
	if len(alerts) == 0 || !slices.Equal(alerts, documented) {
		t.Errorf("the alerts are %v, docs/metrics-and-alerts.md has %v", alerts, documented)
	}
}

func TestAlertsFire(t *testing.T) {
	t.Parallel()
	promtool, err := exec.LookPath("promtool")
	if errors.Is(err, exec.ErrNotFound) {
		t.Skip("there is no promtool, which comes with Prometheus")
	} else if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), promtool, "test", "rules", "alerts.test.yaml")
	cmd.Dir = "testdata"
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
