package config

import (
	"regexp"
	"strings"
	"sync"

	"github.com/feedbridge/feedbridge/docs"
)

// settingRow matches the row of a setting in docs/configuration.md: its path, type, default
// and meaning.
var settingRow = regexp.MustCompile("(?m)^\\| `([a-zA-Z0-9_.]+)` \\| (.*?) \\| (.*?) \\| (.*) \\|$")

// descriptions returns the meanings of all settings without Markdown, by the path as spec.path
// writes it.
var descriptions = sync.OnceValue(func() map[string]string {
	found := map[string]string{}
	for _, row := range settingRow.FindAllStringSubmatch(docs.Configuration, -1) {
		found[strings.ReplaceAll(row[1], "NAME", "*")] = docs.Plain(row[4])
	}
	return found
})
