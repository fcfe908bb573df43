package deploy_test

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v4"

	"github.com/feedbridge/feedbridge/internal/testkit/must"
)

// dashboard is the part of a Grafana dashboard that has queries.
type dashboard struct {
	Panels []struct {
		Title   string
		Type    string
		Targets []struct{ Expr string }
	}
	Templating struct {
		List []struct {
			Name, Type string
			Query      any
		}
	}
}

func readDashboard(t *testing.T) dashboard {
	t.Helper()
	var d dashboard
	must.Succeed(t, json.Unmarshal([]byte(read(t, "monitoring/grafana/dashboard.json")), &d))
	return d
}

// Each query of the dashboard asks for metrics and labels that docs/metrics-and-alerts.md has,
// which docs_test.go compares with the program.
func TestDashboard(t *testing.T) {
	t.Parallel()
	documented := documentedLabels(t)
	d := readDashboard(t)
	used := map[string]bool{}
	for _, p := range d.Panels {
		if p.Type != "row" && len(p.Targets) == 0 {
			t.Errorf("panel %q has no query", p.Title)
		}
		for _, target := range p.Targets {
			for name := range metricsOf(t, p.Title, target.Expr, documented) {
				used[name] = true
			}
		}
	}
	for _, v := range d.Templating.List {
		if query, ok := v.Query.(map[string]any); ok {
			metricsOf(t, "variable "+v.Name, query["query"].(string), documented)
		}
	}
	if len(used) < 20 {
		t.Errorf("the panels show %d metrics, want most of those that there are", len(used))
	}
}

var (
	metricName = regexp.MustCompile(`\b(?:feedbridge|process)_\w+`)
	metricRow  = regexp.MustCompile("(?m)^\\| `(feedbridge_\\w+)` \\| (\\w+) \\|([^|]*)\\|")
	labelName  = regexp.MustCompile("`(\\w+)`")
	// matcherOf and groupedBy match the labels in a query.
	matcherOf = regexp.MustCompile(`(\w+)\s*(?:=~|!~|!=|=)\s*"`)
	groupedBy = regexp.MustCompile(`\bby \(([^)]*)\)`)
)

// documentedLabels returns the labels of each metric, those of histograms by the names of
// their series.
func documentedLabels(t *testing.T) map[string][]string {
	t.Helper()
	labels := map[string][]string{}
	for _, m := range metricRow.FindAllStringSubmatch(read(t, "../docs/metrics-and-alerts.md"), -1) {
		own := []string{"job", "instance"} // Prometheus adds these
		if !slices.Contains([]string{"feedbridge_build_info", "feedbridge_bus_up", "feedbridge_feeds", "feedbridge_stale_feeds", "feedbridge_left_behind_feeds"}, m[1]) {
			own = append(own, "feed")
		}
		for _, l := range labelName.FindAllStringSubmatch(m[3], -1) {
			own = append(own, l[1])
		}
		if m[2] == "histogram" {
			labels[m[1]+"_bucket"] = append(own, "le")
			continue
		}
		labels[m[1]] = own
	}
	for _, name := range []string{"process_resident_memory_bytes", "process_cpu_seconds_total", "process_open_fds"} {
		labels[name] = []string{"job", "instance"}
	}
	return labels
}

// metricsOf returns the metrics of a query, and reports those that are not documented and
// labels that none of them has.
func metricsOf(t *testing.T, where, query string, documented map[string][]string) map[string]bool {
	t.Helper()
	found := map[string]bool{}
	var labels []string
	for _, name := range metricName.FindAllString(query, -1) {
		own, ok := documented[name]
		if !ok {
			t.Errorf("%s: docs/metrics-and-alerts.md has no metric %s", where, name)
		}
		found[name] = true
		labels = append(labels, own...)
	}
	if len(found) == 0 {
		t.Errorf("%s: the query has no metric: %s", where, query)
	}
	var asked []string
	for _, m := range matcherOf.FindAllStringSubmatch(query, -1) {
		asked = append(asked, m[1])
	}
	for _, m := range groupedBy.FindAllStringSubmatch(query, -1) {
		asked = append(asked, strings.Split(m[1], ", ")...)
	}
	for _, label := range asked {
		if !slices.Contains(labels, label) {
			t.Errorf("%s: no metric of the query has the label %s: %s", where, label, query)
		}
	}
	return found
}

// promtool reads the queries of the dashboard as rules.
func TestDashboardQueries(t *testing.T) {
	t.Parallel()
	promtool, err := exec.LookPath("promtool")
	if errors.Is(err, exec.ErrNotFound) {
		t.Skip("there is no promtool, which comes with Prometheus")
	} else if err != nil {
		t.Fatal(err)
	}
	type rule struct {
		Record string `yaml:"record"`
		Expr   string `yaml:"expr"`
	}
	var rules []rule
	values := strings.NewReplacer("$__rate_interval", "5m", "$job", ".*", "$feed", ".*")
	for _, p := range readDashboard(t).Panels {
		for _, target := range p.Targets {
			rules = append(rules, rule{"panel", values.Replace(target.Expr)})
		}
	}
	// A rule with the name and the labels of another is an error, so each has a group.
	var groups []map[string]any
	for i, r := range rules {
		groups = append(groups, map[string]any{"name": "query" + string(rune('a'+i/26)) + string(rune('a'+i%26)), "rules": []rule{r}})
	}
	text, err := yaml.Marshal(map[string]any{"groups": groups})
	must.Succeed(t, err)
	file := filepath.Join(t.TempDir(), "queries.yaml")
	must.Succeed(t, os.WriteFile(file, text, 0o600))
	if out, err := exec.CommandContext(t.Context(), promtool, "check", "rules", file).CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// The compose files mount files that are there.
func TestComposeMounts(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("compose*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no compose files: %v", err)
	}
	for _, file := range files {
		var composed struct {
			Services map[string]struct{ Volumes []string }
		}
		must.Succeed(t, yaml.Unmarshal([]byte(read(t, file)), &composed))
		if _, ok := composed.Services["grafana"]; !ok {
			t.Errorf("%s has no Grafana", file)
		}
		for name, s := range composed.Services {
			for _, v := range s.Volumes {
				if source, _, _ := strings.Cut(v, ":"); strings.HasPrefix(source, "./") {
					if _, err := os.Stat(source); err != nil {
						t.Errorf("%s, service %s: %v", file, name, err)
					}
				}
			}
		}
	}
}
