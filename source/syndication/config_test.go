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
	for _, text := range []string{"tomorrow", "after:1", "id:1@2026-01-01T00:00:00Z", "snapshot:https://shop.example.com/snapshot"} {
		if _, err := syndication.ParseCursor(text); err == nil {
			t.Errorf("%s is a position", text)
		}
	}
}
