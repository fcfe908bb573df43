package config

import (
	"fmt"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/feedbridge/feedbridge/internal/setting"
)

// Every setting has a description in docs/configuration.md.
func TestEverySettingIsDescribed(t *testing.T) {
	t.Parallel()
	schemaRoot.forEachSetting(func(s *spec) {
		text := descriptions()[s.documentedPath()]
		if !strings.HasSuffix(text, ".") && !strings.HasSuffix(text, ".)") || strings.ContainsAny(text, "`[]|\n") {
			t.Errorf("%s: want sentences, and no Markdown but code and links: %q", s.path, text)
		}
	})
}

// The tables of docs/configuration.md are generated but for the meanings, and the defaults that
// are no constants: -update writes them. Each table follows a comment that names the settings in
// it by the start of their paths. A setting is in the table that names most of its path.
func TestReferenceIsUpToDate(t *testing.T) {
	t.Parallel()
	const file = "../docs/configuration.md"
	document := string(read(t, file))
	table := regexp.MustCompile(`(?m)^<!-- options: (.*) -->\n(?:\|.*\n)*`)
	rows := map[string][]string{} // by the prefix in the comment
	written := map[string][]string{}
	for _, row := range settingRow.FindAllStringSubmatch(document, -1) {
		written[row[1]] = row
	}
	var prefixes []string
	for _, m := range table.FindAllStringSubmatch(document, -1) {
		prefixes = append(prefixes, strings.Fields(m[1])...)
	}
	schemaRoot.forEachSetting(func(s *spec) {
		if s.documentedPath() != s.path {
			return
		}
		best := ""
		for _, prefix := range prefixes {
			if (s.path == prefix || strings.HasPrefix(s.path, prefix+".")) && len(prefix) > len(best) {
				best = prefix
			}
		}
		if best == "" {
			t.Errorf("%s has no table for %s", file, s.path)
		}
		path := strings.ReplaceAll(s.path, "*", "NAME")
		row := written[path]
		if row == nil {
			row = make([]string, 5)
		}
		if s.preset != "" {
			row[3] = "`" + s.preset + "`"
		}
		rows[best] = append(rows[best], fmt.Sprintf("| `%s` | %s | %s | %s |\n", path, referenceType(s), row[3], row[4]))
	})
	got := table.ReplaceAllStringFunc(document, func(old string) string {
		var b strings.Builder
		comment, _, _ := strings.Cut(old, "\n")
		b.WriteString(comment + "\n| Key | Type | Default | Meaning |\n|---|---|---|---|\n")
		for _, prefix := range strings.Fields(table.FindStringSubmatch(old)[1]) {
			if len(rows[prefix]) == 0 {
				t.Errorf("%s: no setting starts with %s", file, prefix)
			}
			b.WriteString(strings.Join(rows[prefix], ""))
		}
		return b.String()
	})
	golden(t, file, []byte(got))
}

// referenceType names the values that a setting takes.
func referenceType(s *spec) string {
	if s.isList() {
		if s.elem.typ == secretType {
			return "list of secrets"
		}
		return "list"
	}
	switch valid := setting.Words(s.typ); {
	case valid != nil:
		return "`" + strings.Join(valid, "`, `") + "`"
	case s.typ == secretType:
		return "secret"
	case s.typ == reflect.TypeFor[time.Duration]():
		return "duration"
	case s.typ == startType:
		return "position"
	case s.typ == keyType:
		return "JSON pointer or `header:NAME`"
	}
	switch s.typ.Kind() {
	case reflect.Bool:
		return "`true`, `false`"
	case reflect.Int64:
		return "bytes"
	case reflect.Int, reflect.Float64:
		return "number"
	}
	switch name := s.name; {
	case strings.HasSuffix(name, "_file"), strings.HasSuffix(name, "dir"):
		return "path"
	case strings.HasSuffix(name, "url"):
		return "URL"
	case name == "listen":
		return "host:port"
	}
	return "text"
}
