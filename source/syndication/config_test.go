package syndication_test

import (
	"strings"
	"testing"
	"time"

	"github.com/feedbridge/feedbridge/source/syndication"
)

func TestConfig(t *testing.T) {
	t.Parallel()
	tests := map[string]edit{
		"":           func(*syndication.Config) {},
		"url:":       func(c *syndication.Config) { c.URL = "" },
		"mode: tail": func(c *syndication.Config) { c.Mode = "tail" },
		"ignore_changes_in[1]:": func(c *syndication.Config) {
			c.IgnoreChangesIn = []string{"comments", "slash:comments"}
		},
		"max_delete_ratio:": func(c *syndication.Config) { c.MaxDeleteRatio = 50 },
		"full_every:":       func(c *syndication.Config) { c.FullEvery = -time.Hour },
	}
	for key, edit := range tests {
		cfg := syndication.Defaults()
		cfg.URL = host
		edit(&cfg)
		errs := cfg.Validate()
		if key == "" && len(errs) == 0 {
			continue
		}
		if len(errs) != 1 || !strings.HasPrefix(errs[0].Error(), key) || key == "" {
			t.Errorf("%s %v", key, errs)
		}
	}
	for text, want := range map[string]string{"": "beginning", "now": "now", "2026-01-01T01:00:00+01:00": "2026-01-01T00:00:00Z"} {
		if start, err := syndication.ParseStart(text); err != nil || start.String() != want {
			t.Errorf("start %q is %s, %v", text, start, err)
		}
	}
	if _, err := syndication.ParseStart("tomorrow"); err == nil {
		t.Error("tomorrow is a start")
	}
}
