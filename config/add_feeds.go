package config

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"
)

// NewFeed is a feed that is added to a configuration file.
type NewFeed struct {
	URL string `yaml:"url"`
	// Headers and Auth are set, and empty, if those of feed_defaults are not for the feed.
	Headers *[0]string `yaml:"headers,omitempty"`
	Auth    *struct{}  `yaml:"auth,omitempty"`
}

// AddFeeds returns a configuration file with the content data to which feeds are added, by their names. Lines are
// inserted, and all else stays. They are before the feeds that the file has: comments behind these, such as keys that
// are switched off, belong to the last one. The names must be valid, and not be in the file. The result is not checked
// by [Load].
//
// It must have exactly the old values and the new feeds, because YAML has many forms. Otherwise the error has the
// lines.
func AddFeeds(data []byte, feeds map[string]NewFeed) ([]byte, error) {
	lines, encodeErr := encodeFeeds(feeds)
	root, err := parseYAML(data)
	switch {
	case encodeErr != nil:
		return nil, encodeErr
	case err != nil && err.Text != emptyFile:
		return nil, err
	case err != nil:
		root = &yaml.Node{Kind: yaml.MappingNode}
	case root.Kind != yaml.MappingNode:
		return nil, errors.New("the file is not a mapping of keys, such as feeds: {...}")
	}
	changed := insertFeeds(data, root, lines)
	want, got, added := map[string]any{}, map[string]any{}, map[string]map[string]any{}
	decodeErr := errors.Join(root.Decode(&want), yaml.Unmarshal(changed, &got), yaml.Unmarshal([]byte(lines), &added))
	if before, ok := want["feeds"].(map[string]any); ok {
		maps.Copy(added["feeds"], before)
	}
	want["feeds"] = added["feeds"]
	if decodeErr != nil || !reflect.DeepEqual(want, got) {
		return nil, fmt.Errorf("feeds cannot be added to YAML of this form; write feeds without braces, * and ~, with these lines:\n%s", lines)
	}
	return changed, nil
}

// encodeFeeds returns the key feeds with a value of only new feeds.
func encodeFeeds(feeds map[string]NewFeed) (string, error) {
	escaped := map[string]NewFeed{}
	for name, f := range feeds {
		f.URL = escapeVariables(f.URL)
		escaped[name] = f
	}
	lines, err := dumpYAML(map[string]map[string]NewFeed{"feeds": escaped})
	return string(lines), err
}

// insertFeeds inserts the lines of encodeFeeds behind the line feeds:, or all of them at the end of the file.
func insertFeeds(data []byte, root *yaml.Node, lines string) []byte {
	before, after, text := data, []byte(nil), lines
	if len(data) > 0 && !bytes.HasSuffix(data, []byte("\n\n")) {
		text = "\n" + lines
	}
	for i := 0; i < len(root.Content); i += 2 {
		key, value := root.Content[i], root.Content[i+1]
		if key.Value != "feeds" {
			continue
		}
		indent := strings.Repeat(" ", key.Column+1)
		if len(value.Content) > 0 {
			indent = strings.Repeat(" ", value.Content[0].Column-1)
		}
		text = ""
		for line := range strings.Lines(strings.TrimPrefix(lines, "feeds:\n")) {
			text += indent + line[2:]
		}
		all := bytes.SplitAfter(data, []byte("\n"))
		before, after = bytes.Join(all[:key.Line], nil), bytes.Join(all[key.Line:], nil)
	}
	if len(before) > 0 && !bytes.HasSuffix(before, []byte("\n")) {
		text = "\n" + text
	}
	if bytes.Contains(data, []byte("\r\n")) {
		text = strings.ReplaceAll(text, "\n", "\r\n")
	}
	return slices.Concat(before, []byte(text), after)
}
